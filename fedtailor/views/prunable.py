"""What can be deleted below a folder of runs, as a table."""

from collections.abc import Sequence
from pathlib import Path

from rich.console import RenderableType
from rich.text import Text

from fedtailor.runs.pruning import Item
from fedtailor.views.numbers import NOTHING, size
from fedtailor.views.tables import Grid

HOW = "delete with --drafts, --checkpoints, --models, --states or --run NAME"


def prunable_page(items: Sequence[Item], folder: Path, listing: bool) -> list[RenderableType]:
    """The items with their sizes, and how to delete them."""
    if not items:
        return [Text(f"nothing to delete in {folder}")]
    rows = tuple((item.name, item.kind, size(item.bytes), item.loses or NOTHING) for item in items)
    grid = Grid(("run", "what", "size", "no longer possible"), rows, words=frozenset({0, 1, 3}))
    return [grid.rich(), *([Text(HOW, style="dim")] if listing else [])]


def freed_text(freed: int) -> str:
    return f"deleted: {size(max(0, freed))} less on disk"
