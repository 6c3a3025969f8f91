"""The folder of a run: a fresh name for it, and when an old one may be replaced."""

import os
import shutil
from pathlib import Path

from fedtailor.errors import UserError
from fedtailor.runs.store import DATABASE, in_use

PLAN = "comparison.toml"  # the file that makes a folder a comparison
SETTINGS_DRAFT = ".experiment.toml"  # what a killed process leaves when a run got more rounds


def ours() -> set[str]:
    """Everything that fedtailor writes into the folder of a run. A folder with anything else in it is not replaced."""
    from fedtailor.parties.policy import CARD, TENSORS

    return {
        *(DATABASE + ending for ending in ("", "-wal", "-shm", "-journal")),
        *("run.lock", "experiment.toml", SETTINGS_DRAFT, "environment.json", "preprocessing.json"),
        *("report.md", "report.html", "curves.png", "rewards.png"),
        *(CARD, TENSORS, "drawings", "exports", "tracking.json", "tensorboard", "wandb"),
    }


def all_runs(folder: Path) -> list[Path]:
    """The folders of all runs below a folder."""
    if not folder.is_dir():
        raise UserError(f"{folder} does not exist: 'fedtailor run' writes runs there")
    return sorted(path.parent for path in folder.rglob(DATABASE))


def fresh_name(parent: Path, name: str) -> str:
    """The name, or the first of NAME-2, NAME-3, ... that has no folder yet.

    >>> fresh_name(Path("nowhere"), "experiment")
    'experiment'
    """
    number, fresh = 1, name
    while os.path.lexists(parent / fresh):
        number += 1
        fresh = f"{name}-{number}"
    return fresh


def check_place(place: Path, overwrite: bool) -> None:
    """Raise a `UserError` unless a run may begin in this folder."""
    if not os.path.lexists(place):
        return
    if not overwrite:
        raise UserError(
            f"{place} exists: resume it with 'fedtailor resume {place}', replace it with --overwrite, or name another "
            "with --name"
        )
    if place.is_symlink() or not (place / DATABASE).is_file():
        raise UserError(f"{place} is not a run: --overwrite replaces only runs, so name another with --name")
    if in_use(place):
        raise UserError(f"{place} is running: stop it before --overwrite replaces it, or name another with --name")
    if foreign := sorted({path.name for path in place.iterdir()} - ours()):
        raise UserError(f"{place} also holds {', '.join(foreign[:3])}: move it away, then --overwrite replaces the run")


def is_of_a_run(draft: Path) -> bool:
    """Whether a draft holds nothing but what belongs to a run."""
    return {path.name for path in draft.iterdir()} <= ours()


def remove(place: Path) -> None:
    """Remove the folder of a run at once: under its name it is complete or does not exist."""
    if place.exists():
        aside = place.with_name(f".{place.name}-removed-{os.getpid()}")
        os.rename(place, aside)
        shutil.rmtree(aside, ignore_errors=True)
