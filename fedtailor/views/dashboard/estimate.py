"""How long a run will take, from the time that earlier runs with the same work took."""

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from fedtailor.errors import UserError
from fedtailor.runs import Experiment, Run
from fedtailor.views.numbers import duration

# Settings that change neither the time of a step nor the number of steps.
FREE = ("name", "seed", "rounds", "compare", "pretrain", "participation", "evaluation", "data", "training")
UNKNOWN = "Not known: no run below this folder had the same method, model, data set, training and engine."


def estimate(settings: Experiment, clients: int, runs: Iterable[tuple[str, Path]]) -> str:
    """A sentence with the expected time of the rounds and how it was found, or that nothing is known.

    The latest run that trained the same network with the same method on the same data set counts. Its seconds per
    client and round are scaled by the passes over the data, the samples of a client and the clients of a cohort.
    """
    wanted = settings.as_dict()
    best: tuple[float, str, str] | None = None  # when, name, sentence
    for name, folder in runs:
        try:
            with Run(folder) as run:
                changed = (folder / "run.db").stat().st_mtime
                if (best is None or changed > best[0]) and _kind(run.settings) == _kind(wanted):
                    found = _from(settings, wanted, clients, run)
                    best = best if found is None else (changed, name, found)
        except (UserError, OSError):  # a damaged run says nothing
            continue
    return UNKNOWN if best is None else f"{best[2]} (measured in {best[1]})."


def _from(settings: Experiment, wanted: Mapping[str, Any], clients: int, run: Run) -> str | None:
    rounds = run.rounds()
    tasks = sum(len(row["cohort"]) for row in rounds)
    if not tasks or run.nodes:
        return None
    each = sum(row["seconds"] for row in rounds) / tasks
    scale = _work(wanted["training"], clients) / _work(run.settings["training"], run.client_count)
    cohort = _cohort(settings, clients)
    seconds = each * scale * cohort
    return (
        f"About {duration(seconds * settings.rounds)} for {settings.rounds} rounds, without reading the data and the "
        f"final pass: {each:.3g} s per client and round, times {scale:.3g} for the work of a client, times "
        f"{cohort:.3g} clients in a round"
    )


def _kind(settings: Mapping[str, Any]) -> dict[str, Any]:
    """What must be the same in both runs."""
    data, training = settings["data"], settings["training"]
    found = {key: value for key, value in settings.items() if key not in FREE}
    found["training"] = {
        key: training.get(key) for key in ("batch_size", "optimiser", "precision", "dp_sgd", "loss") if key in training
    }
    found["work"] = "steps" if training.get("steps") is not None else "epochs"
    return {**found, "source": data["source"], "samples": data.get("samples"), "attack": None}


def _work(training: Mapping[str, Any], clients: int) -> float:
    """What a client does in a round, up to a factor: a data set that is divided among more clients is less for each."""
    if training.get("steps") is not None:
        return float(max(1, training["steps"]))
    return float(max(1, training["epochs"])) / max(1, clients)


def _cohort(settings: Experiment, clients: int) -> float:
    """The mean number of clients in a round."""
    asked = settings.participation
    if asked.clients is not None:
        return min(asked.clients, clients)
    ratio = sum(asked.ratio) / 2 if isinstance(asked.ratio, tuple) else asked.ratio
    return max(1.0, ratio * clients)
