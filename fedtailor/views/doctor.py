"""What is installed and usable on this machine."""

from collections.abc import Sequence

from rich.console import Group, RenderableType
from rich.text import Text

from fedtailor.runs.doctor import Finding
from fedtailor.views.tables import Grid

TITLES = {"machine": "this machine", "package": "packages", "extra": "extras", "data": "data", "program": "programs"}


def doctor_page(findings: Sequence[Finding]) -> RenderableType:
    """A table for each group, and a sentence that says whether FedTailor works here."""
    parts: list[RenderableType] = []
    for group, title in TITLES.items():
        rows = tuple((one.name, one.state, one.about) for one in findings if one.group == group)
        parts.append(Grid(("name", "state", "about"), rows, words=frozenset({0, 1, 2}), title=title).rich())
    problems = [one.name for one in findings if one.state == "problem"]
    parts.append(Text(f"problems: {', '.join(problems)}" if problems else "FedTailor works here."))
    return Group(*parts)
