"""Pieces of Markdown that the generated pages share."""

import re
from collections.abc import Iterable, Sequence


def code(text: object) -> str:
    """A text as code, also inside a table."""
    shown = str(text).replace("|", "\\|")
    return f"`` {shown} ``" if "`" in shown else f"`{shown}`"


def cell(text: str) -> str:
    """A text on one line, for a cell of a table."""
    parts = " ".join(text.split()).replace("|", "\\|").split("`")
    return "`".join(part if number % 2 else part.replace("<", "&lt;") for number, part in enumerate(parts))


def rows_of(header: Sequence[str], rows: Iterable[Sequence[str]]) -> list[str]:
    """The lines of a table."""
    lines = [header, ["---"] * len(header), *rows]
    return [f"| {' | '.join(line)} |" for line in lines]


def text_of(text: str) -> str:
    """A docstring's text as Markdown: code has one back quote instead of two."""
    return re.sub(r"``(.+?)``", r"`\1`", text, flags=re.DOTALL)
