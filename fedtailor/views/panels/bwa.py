"""BWA and its relatives: the batch size and the weights of clients in every round, and rewards."""

from dataclasses import dataclass
from statistics import fmean
from typing import Any

from fedtailor.runs import Run
from fedtailor.views.panels import decisions
from fedtailor.views.panels.kinds import Panel, counted, curves


@dataclass(frozen=True)
class Episode:
    """A federation from its first round to its last, as the agent saw it."""

    gained: float  # the sum of its rewards
    accuracy: float  # of the global model on validation data, before the last round
    batch: float | None  # mean batch size; None where the run's is used
    evenness: float | None  # 1 / (K sum lambda^2): 1 for equal weights, 1 / K for a single client


def panels(run: Run) -> list[Panel]:
    rows = run.decisions()
    if not rows:
        return []
    found, controls = decisions.panels(run, rows), run.settings["method"]["controls"]
    if controls != "batch":
        line = ([counted(run, row) for row in rows], [evenness(row, controls) for row in rows])
        note = "1: all clients of the round count the same; 1 / K: a single one of K counts."
        found.append(curves("Evenness of the weights", note, {"evenness": line}, x="round", y="evenness"))
    return [*found, *decisions.rewards(run, rows)]


def episodes(run: Run) -> list[Episode]:
    """Every episode that has a reward, in order."""
    controls = run.settings["method"]["controls"]
    rows: dict[int, list[dict[str, Any]]] = {}
    for row in run.decisions():
        if row["reward"] is not None:
            rows.setdefault(row["episode"], []).append(row)
    return [
        Episode(
            sum(row["reward"] for row in of),
            float(of[-1]["observation"][0, 4]),
            None if controls == "weights" else fmean(float(row["action"][0]) for row in of),
            None if controls == "batch" else fmean(evenness(row, controls) for row in of),
        )
        for of in rows.values()
    ]


def weights_of(row: dict[str, Any], controls: str) -> Any:
    """The weights in a decision, of every slot."""
    return row["action"][1:] if controls == "both" else row["action"]


def evenness(row: dict[str, Any], controls: str) -> float:
    weights = weights_of(row, controls)
    return 1 / float(int(row["mask"].sum()) * weights.square().sum().clamp(min=1e-12))
