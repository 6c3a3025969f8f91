"""What can be deleted below a folder of runs, how large it is, and its deletion. Results stay readable."""

import os
import shutil
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Literal

from fedtailor.errors import UserError, unknown
from fedtailor.runs.checkpoints import BEST, KEPT, prefix
from fedtailor.runs.disk import free_bytes
from fedtailor.runs.drafts import DRAFT, is_left, is_of_a_file, locked
from fedtailor.runs.exporting.writing import is_of_exports
from fedtailor.runs.folders import all_runs, is_of_a_run, ours, remove
from fedtailor.runs.store import DATABASE, Store, in_use, lock
from fedtailor.runs.tables import SCHEMA

Kind = Literal["drafts", "checkpoints", "models", "states", "run"]


@dataclass(frozen=True)
class Item:
    """Something that can be deleted.

    Attributes
    ----------
    kind : str
        ``drafts``: folders that a killed process left; ``checkpoints``: states of earlier rounds; ``models``: models
        that the final pass stored; ``states``: the last state of a finished run; ``run``: a whole run.
    name : str
        The run, relative to the folder that was searched.
    folder : Path
        The folder of the run or draft.
    bytes : int
        Its size.
    loses : str
        What is not possible any more without it.
    """

    kind: Kind
    name: str
    folder: Path
    bytes: int
    loses: str = ""

    def as_dict(self) -> dict[str, Any]:
        return {**asdict(self), "folder": str(self.folder)}


LOSES = {
    "checkpoints": "to start a run from these rounds",
    "models": "to export clients' models without training once more",
    "states": "to give it more rounds, to start or adapt from it, and to export models that it did not store",
    "run": "everything",
}


def prunable(folder: Path) -> list[Item]:
    """Everything that can be deleted below a folder; nothing of a run that a process runs now."""
    found = [Item("drafts", _name(draft, folder), draft, _size(draft)) for draft in _drafts(folder)]
    for place in all_runs(folder):
        if any(part.startswith(".") for part in place.relative_to(folder).parts) or in_use(place):
            continue
        name = _name(place, folder)
        with suppress(UserError):  # a run that cannot be read can only go as a whole
            found += _parts(place, name)
        found.append(Item("run", name, place, _size(place), LOSES["run"]))
    return found


def choose(items: Sequence[Item], kinds: Iterable[str], runs: Sequence[str], folder: Path) -> list[Item]:
    """The items of some kinds, and whole runs by name; a `UserError` if there is no such run, or if it is running."""
    known = {item.name for item in items if item.kind == "run"}
    for name in runs:
        if name not in known and in_use(folder / name):
            raise UserError(f"{folder / name} is running: stop it before it is deleted")
        if name not in known:
            raise unknown("run", name, known)
    kinds = set(kinds)
    return [
        item
        for item in items
        if (item.kind == "run" and item.name in runs) or (item.kind in kinds and item.name not in runs)
    ]


def delete(items: Sequence[Item], say: Callable[[str], None] = lambda sentence: None) -> int:
    """Delete items; returns the bytes that became free. ``say`` gets a sentence for each, before it is deleted.

    Raises
    ------
    UserError
        If one cannot be deleted; those before it are.
    """
    whole = [item.folder for item in items if item.kind == "run"]
    for place in whole:
        _check_whole(place)
    freed = 0
    for place in dict.fromkeys(item.folder for item in items):
        those = [item for item in items if item.folder == place]
        say(f"{place}: {', '.join(item.kind for item in those)}")
        before = _size(place)
        try:
            if place in whole:
                held = lock(place)  # raises if a process has begun to run it
                remove(place)
                os.close(held)
            elif those[0].kind == "drafts":
                with locked(place):  # raises if a process has begun to write it
                    shutil.rmtree(place)
            else:
                _delete_parts(place, [item.kind for item in those])
        except OSError as error:
            raise UserError(f"{place} cannot be deleted: {error.strerror}") from None
        freed += before - (_size(place) if place.exists() else 0)
    return freed


def _parts(place: Path, name: str) -> Iterator[Item]:
    """The parts of a run that can go and leave its results."""
    with Store(place, still=True) as store:
        if store.meta("schema") != SCHEMA:
            return
        finished = bool(store.meta("finished"))
        rows = store.rows("SELECT scope, SUM(LENGTH(data)) AS bytes FROM state GROUP BY scope")
        checkpoints = sum(row["bytes"] for row in rows if _is_checkpoint(row["scope"]))
        states = sum(row["bytes"] for row in rows if not _is_checkpoint(row["scope"]))
        models = store.rows("SELECT SUM(LENGTH(data)) AS bytes FROM models")[0]["bytes"] or 0
    sizes: tuple[tuple[Kind, int], ...] = (("checkpoints", checkpoints), ("models", models if finished else 0))
    for kind, size in (*sizes, ("states", states if finished else 0)):
        if size:
            yield Item(kind, name, place, size, LOSES[kind])


def _is_checkpoint(scope: str) -> bool:
    """Whether a scope is that of a round of ``checkpoints.every``; the best round is what a run deploys."""
    return scope.startswith(KEPT) and not scope.startswith(prefix(BEST))


def _delete_parts(place: Path, kinds: Sequence[Kind]) -> None:
    path = place / DATABASE
    left = path.stat().st_size - sum(item.bytes for item in _parts(place, "") if item.kind in kinds)
    if (free := free_bytes(place)) < left:
        raise UserError(
            f"{path} needs {left / 1e6:.0f} MB on disk to shrink, and {free / 1e6:.0f} MB are free: delete "
            "drafts or whole runs first"
        )
    with Store(place, write=True) as store:
        finished = bool(store.meta("finished"))
        if not finished and set(kinds) - {"checkpoints"}:
            raise UserError(f"{place} is not finished any more: nothing of it was deleted")
        scopes = [row["scope"] for row in store.rows("SELECT DISTINCT scope FROM state")]
        with store.transaction():
            if "checkpoints" in kinds:
                store.forget(*filter(_is_checkpoint, scopes))
            if "states" in kinds:
                store.forget(*(scope for scope in scopes if not _is_checkpoint(scope)))
            if "models" in kinds:
                store.delete("deployed", "1")
                store.delete("models", "1")
            store.set_meta("pruned", sorted({*(store.meta("pruned") or ()), *kinds}))
        store.shrink()


def _check_whole(place: Path) -> None:
    """Raise a `UserError` if a folder is more, or less, than a run."""
    if place.is_symlink():
        raise UserError(f"{place} is a link: delete the run that it leads to")
    if foreign := sorted({path.name for path in place.iterdir()} - ours()):
        raise UserError(f"{place} also holds {', '.join(foreign[:3])}: move it away, then the run can be deleted")


def _drafts(folder: Path) -> Iterator[Path]:
    """Folders that a killed process was making or removing: of runs, exports and files."""
    for path in sorted(folder.rglob(".*-*")):
        if DRAFT.fullmatch(path.name) and any(
            is_left(path, ours) for ours in (is_of_a_run, is_of_exports, is_of_a_file)
        ):
            yield path


def _size(place: Path) -> int:
    total = 0
    for path in place.rglob("*"):
        with suppress(OSError):
            total += path.lstat().st_size if not path.is_dir() else 0
    return total


def _name(place: Path, folder: Path) -> str:
    return str(place.relative_to(folder)) if place != folder else place.name
