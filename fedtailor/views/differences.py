"""What differs between two runs, as tables."""

from collections.abc import Sequence
from typing import Any

from rich.console import RenderableType
from rich.text import Text

from fedtailor.runs.differing import Difference, Differences
from fedtailor.views.numbers import NOTHING
from fedtailor.views.tables import Grid

MOST = 30  # rows of a table
LONGEST = 40  # characters of a value


def differences_page(found: Differences, one: str, other: str, clients: bool) -> list[RenderableType]:
    """A table for each kind of difference."""
    groups = {"settings": found.settings, "versions": found.versions, "data": found.data, "results": found.results}
    groups |= {"clients": found.clients} if clients else {}
    parts: list[RenderableType] = [_grid(name, rows, one, other).rich() for name, rows in groups.items() if rows]
    parts += [Text(f"... and {len(rows) - MOST} more {name}") for name, rows in groups.items() if len(rows) > MOST]
    if found.clients and not clients:
        parts.append(Text(f"{len(found.clients)} scores of clients differ: --clients shows them", style="dim"))
    if found.equal:
        parts.append(Text("equal" if not found.settings else "equal: what differs changes no result", style="green"))
    return parts


def _grid(name: str, rows: Sequence[Difference], one: str, other: str) -> Grid:
    lines = [
        (row.what if row.counts else f"{row.what} (changes no result)", _shown(row.one), _shown(row.other))
        for row in rows[:MOST]
    ]
    return Grid((name, one, other), tuple(lines), words=frozenset({0, 1, 2}), title=f"{name} that differ")


def _shown(value: Any) -> str:
    text = NOTHING if value is None else str(value)
    return text if len(text) <= LONGEST else f"{text[: LONGEST - 3]}..."
