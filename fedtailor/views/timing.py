"""Where the time of a run's rounds went."""

from collections.abc import Mapping, Sequence
from typing import Any

from fedtailor.errors import UserError
from fedtailor.runs import Run
from fedtailor.views.tables import Grid

ABOUT = {
    "train": "waiting for clients that train",
    "evaluate": "waiting for clients that are tested",
    "server": "the method's work on the server",
    "codec": "packing and unpacking",
    "store": "the database",
    "other": "everything else",
    "busy": "tasks, summed over the workers",
    "idle": "workers without a task, summed over them",
}
OF_WORKERS = ("busy", "idle")  # seconds of workers, which pass during the others


def profile_document(run: Run) -> dict[str, Any]:
    """The seconds of all rounds by phase, and of the workers meanwhile."""
    return profile(run.phases(), [row["seconds"] for row in run.rounds()], str(run.folder))


def profile(phases: Sequence[Mapping[str, Any]], rounds: Sequence[float], place: str) -> dict[str, Any]:
    """The seconds by phase: ``phases`` are rows of that table, ``rounds`` the seconds of every round."""
    if not phases:
        raise UserError(f"{place} has no measured phases: it has no complete round, or is of an earlier version")
    total: dict[str, float] = {}
    for row in phases:
        total[row["phase"]] = total.get(row["phase"], 0.0) + row["seconds"]
    workers = {name: total.pop(name, 0.0) for name in OF_WORKERS}
    whole = sum(rounds)
    total["other"] = max(0.0, whole - sum(total.values()))
    return {"rounds": len(rounds), "seconds": whole, "phases": total, "workers": workers}


def profile_grid(found: Mapping[str, Any]) -> Grid:
    """The same as a table, with the shares of the whole."""
    rounds, workers = max(1, found["rounds"]), found["workers"]
    known = {name: found["phases"][name] for name in ABOUT if name in found["phases"]}
    rows = [_row(name, seconds, rounds, found["seconds"]) for name, seconds in known.items()]
    rows.append(_row("all", found["seconds"], rounds, found["seconds"]))
    rows += [_row(name, workers[name], rounds, sum(workers.values())) for name in OF_WORKERS]
    title = f"Where the time of {found['rounds']} rounds went"
    return Grid(("phase", "seconds", "a round", "share", ""), tuple(rows), frozenset({0, 4}), title)


def _row(name: str, seconds: float, rounds: int, whole: float) -> tuple[str, ...]:
    share = f"{100 * seconds / whole:.1f} %" if whole else "–"
    return name, f"{seconds:.2f}", f"{seconds / rounds:.3f}", share, ABOUT.get(name, "")
