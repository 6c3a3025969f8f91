"""Notices which runs changed, from the times and sizes of their files, without opening a database."""

from pathlib import Path
from typing import Any

from fedtailor.runs.store import DATABASE, in_use

Stamp = tuple[Any, ...]


def stamp(folder: Path) -> Stamp:
    """What changes whenever the run does: times and sizes of its database, and whether a process runs it."""
    return (*(_of(folder / f"{DATABASE}{ending}") for ending in ("", "-wal")), in_use(folder))


def runs_below(root: Path) -> dict[str, Path]:
    """The runs below a folder by their path in it, which names them in addresses."""
    return {str(path.parent.relative_to(root)): path.parent for path in sorted(root.rglob(DATABASE))}


def changed(before: dict[str, Stamp], now: dict[str, Stamp]) -> list[str]:
    """The names of the runs that are new, gone or different."""
    return sorted(name for name in before.keys() | now.keys() if before.get(name) != now.get(name))


def _of(path: Path) -> tuple[int, int] | None:
    try:
        found = path.stat()
    except OSError:
        return None
    return found.st_mtime_ns, found.st_size
