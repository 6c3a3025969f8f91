"""The progress of downloads, on stderr."""

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from rich.progress import BarColumn, DownloadColumn, Progress, TaskID, TextColumn, TransferSpeedColumn

from fedtailor.views.console import messages

Report = Callable[[str, int, int | None], None]  # file name, bytes so far, total bytes if known


@contextmanager
def downloading(quiet: bool = False) -> Iterator[Report]:
    """Yield a callback for download progress: a bar per file in a terminal, a line per file otherwise."""
    console = messages()
    if quiet or not sys.stderr.isatty():
        begun: set[str] = set()

        def tell(name: str, done: int, total: int | None) -> None:
            if name not in begun and not quiet:
                console.print(f"downloading {name}")
            begun.add(name)

        yield tell
        return
    bars: dict[str, TaskID] = {}
    with Progress(
        TextColumn("{task.description}", markup=False),
        BarColumn(24),
        DownloadColumn(),
        TransferSpeedColumn(),
        console=console,
    ) as progress:

        def move(name: str, done: int, total: int | None) -> None:
            if name not in bars:
                bars[name] = progress.add_task(name)
            progress.update(bars[name], completed=done, total=total)

        yield move
