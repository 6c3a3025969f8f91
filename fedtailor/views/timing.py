"""Where the time of a run's rounds went."""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from fedtailor.errors import UserError
from fedtailor.runs import Run
from fedtailor.views.tables import Grid

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

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
    each = _each_worker(total)
    whole = sum(rounds)
    total["other"] = max(0.0, whole - sum(total.values()))
    found = {"rounds": len(rounds), "seconds": whole, "phases": total, "workers": workers}
    return {**found, "each_worker": each} if each else found


def _each_worker(total: dict[str, float]) -> list[dict[str, float]]:
    """By worker, the seconds of its tasks and without one while the server waited, taken out of ``total``."""
    names = [name for name in total if name.startswith("worker ")]
    tasks = {tuple(name.split()[1:]): total.pop(name) for name in names}
    waited = total.get("train", 0.0) + total.get("evaluate", 0.0)
    found = []
    for worker in sorted({int(worker) for worker, _ in tasks}):
        spent = {kind: tasks.get((str(worker), kind), 0.0) for kind in ("train", "evaluate")}
        found.append({"worker": worker, **spent, "idle": max(0.0, waited - sum(spent.values()))})
    return found


def phases_by_round(phases: Sequence[Mapping[str, Any]], rounds: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """For pictures: the seconds of every round by phase, with the rest as ``other``, and those of the workers.

    ``rounds`` are rows of that table, with episode, round and seconds.
    """
    spent = {(row["episode"], row["round"], row["phase"]): row["seconds"] for row in phases}
    names = [name for name in ABOUT if any(key[2] == name for key in spent)]
    found = {
        name: [spent.get((row["episode"], row["round"], name), 0.0) for row in rounds] for name in (*names, *OF_WORKERS)
    }
    workers = {name: found.pop(name) for name in OF_WORKERS}
    known = [sum(values) for values in zip(*found.values(), strict=True)] or [0.0] * len(rounds)
    found["other"] = [max(0.0, row["seconds"] - sum_) for row, sum_ in zip(rounds, known, strict=True)]
    return {"round": list(range(1, len(rounds) + 1)), "phases": found, "workers": workers}


def profile_figure(run: Run) -> "Figure":
    """A bar per round with its phases on top of each other; below, what the workers did, summed over them."""
    from fedtailor.views.curves import COLOURS, FAINT, GREY, new_figure, title

    each = profile_document(run).get("each_worker", [])  # fails with a sentence if nothing was measured
    found = phases_by_round(run.phases(), run.rounds())
    figure = new_figure(9, 6 + (1.5 + 0.25 * len(each) if each else 0))
    heights = (2.0, 1.0, 0.5 + 0.1 * len(each)) if each else (2.0, 1.0)
    panels = figure.subplots(len(heights), 1, height_ratios=heights)
    panels[0].sharex(panels[1])
    colours = {name: COLOURS[place] for place, name in enumerate(found["phases"])} | {"busy": GREY, "idle": FAINT}
    for axes, parts, about in zip(
        panels[:2], (found["phases"], found["workers"]), ("seconds", "seconds of all workers"), strict=True
    ):
        below = [0.0] * len(found["round"])
        for name, values in parts.items():
            axes.bar(found["round"], values, bottom=below, width=0.9, color=colours[name], label=name)
            below = [a + b for a, b in zip(below, values, strict=True)]
        axes.set_ylabel(about)
        axes.legend(loc="center left", bbox_to_anchor=(1, 0.5), frameon=False)
        axes.spines[["top", "right"]].set_visible(False)
    panels[1].set_xlabel("round")
    panels[1].locator_params(axis="x", integer=True)
    title(panels[0], run.name, f"where the time of {len(found['round'])} rounds went")
    if each:
        _draw_workers(panels[2], each)
    return figure


def _draw_workers(axes: "Axes", each: Sequence[Mapping[str, float]]) -> None:
    """A bar per worker: its training, testing and idle seconds in all rounds."""
    from fedtailor.views.curves import COLOURS, FAINT

    names = [f"worker {one['worker']}" for one in each]
    left = [0.0] * len(each)
    for kind, colour in (("train", COLOURS[0]), ("evaluate", COLOURS[1]), ("idle", FAINT)):
        values = [one[kind] for one in each]
        axes.barh(names, values, left=left, color=colour, label=kind)
        left = [a + b for a, b in zip(left, values, strict=True)]
    axes.invert_yaxis()
    axes.set_xlabel("seconds of all rounds")
    axes.legend(loc="center left", bbox_to_anchor=(1, 0.5), frameon=False)
    axes.spines[["top", "right"]].set_visible(False)


def profile_grid(found: Mapping[str, Any]) -> Grid:
    """The same as a table, with the shares of the whole."""
    rounds, workers = max(1, found["rounds"]), found["workers"]
    known = {name: found["phases"][name] for name in ABOUT if name in found["phases"]}
    rows = [_row(name, seconds, rounds, found["seconds"]) for name, seconds in known.items()]
    rows.append(_row("all", found["seconds"], rounds, found["seconds"]))
    rows += [_row(name, workers[name], rounds, sum(workers.values())) for name in OF_WORKERS]
    for one in found.get("each_worker", ()):
        spent = {kind: one[kind] for kind in ("train", "evaluate", "idle")}
        label = f"worker {one['worker']}"
        rows += [_row(f"{label} {kind}", seconds, rounds, sum(spent.values())) for kind, seconds in spent.items()]
    title = f"Where the time of {found['rounds']} rounds went"
    return Grid(("phase", "seconds", "a round", "share", ""), tuple(rows), frozenset({0, 4}), title)


def _row(name: str, seconds: float, rounds: int, whole: float) -> tuple[str, ...]:
    share = f"{100 * seconds / whole:.1f} %" if whole else "–"
    return name, f"{seconds:.2f}", f"{seconds / rounds:.3f}", share, ABOUT.get(name, "")
