"""Records of finished runs, without weights: tables are made from them, and they are committed with the recipe."""

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from statistics import fmean
from typing import Any

from fedtailor.errors import UserError
from fedtailor.methods import AgentMethod
from fedtailor.parties.policy import CARD
from fedtailor.records import cause
from fedtailor.runs.policies import built_in_digest
from fedtailor.runs.reading import Run
from fedtailor.runs.reproduce.plan import REFERENCE, Step
from fedtailor.version import RESULTS

FORMAT = 1
FOLDER = "records"
MOST = 500  # rewards kept per decision; more are reduced to the means of equal parts
MEASURES = ("accuracy", "pooled", "deviation", "worst", "worst_tenth", "loss", "pooled_loss", "untrained")
NOT_JSON = {"NaN": math.nan, "Infinity": math.inf, "-Infinity": -math.inf}  # values without a JSON number


@dataclass(frozen=True)
class Record:
    """The record of a finished run; all numbers are exact."""

    key: str
    experiment: str
    method: str
    seed: int
    results: int  # the results version
    settings: Mapping[str, Any]
    data: str  # digest of the federation
    policy: str | None  # digest of the policy that the run started with or, for a pre-training, wrote
    versions: Mapping[str, str]
    clients: int
    seconds: float  # duration of all rounds
    passes: float  # passes over a client's data per round; FedAvg has 1
    rounds: Mapping[str, Sequence[float]]  # by quantity: a number per round; for a pre-training, sums
    clock: Mapping[str, Sequence[float | None]]  # end, latency and idle share of each round; empty without devices
    failed: Mapping[str, int]  # number of failures by cause
    metrics: Mapping[str, Mapping[str, Sequence[float | None]]]  # by model and measure, at every evaluated round
    scores: Mapping[str, Mapping[str, Sequence[float]]]  # by model: each client's last score
    rewards: Mapping[
        str, Sequence[float]
    ]  # by decision: the mean of each round; with several episodes, the sum of each
    warnings: Sequence[str] = ()  # settings that make the method inert or break one of its assumptions

    @property
    def name(self) -> str:
        return f"{self.experiment}/{self.method}, seed {self.seed}"


def record_of(step: Step, run: Run) -> Record:
    """Make the record of a finished run."""
    method, epochs = step.settings.method, step.settings.training.epochs
    settings = {key: value for key, value in run.settings.items() if key not in ("engine", "compare", "name")}
    settings["data"] = {key: value for key, value in settings["data"].items() if key != "dir"}
    if step.needs is not None:
        settings["method"] = {**settings["method"], "policy": REFERENCE + step.needs.experiment}
    events = [event for event in run.events() if event["kind"] == "failed"]
    causes = [cause(event["detail"]) for event in events]
    rounds = _rounds(run)
    return Record(
        key=step.key,
        experiment=step.experiment,
        method=step.method,
        seed=step.seed,
        results=RESULTS,
        settings=settings,
        data=run.data_digest,
        policy=_policy(run, step),
        versions={name: str(value) for name, value in run.environment.items()},
        clients=len(run.scores("held")) or run.summary().clients,
        seconds=float(sum(rounds["seconds"])),
        passes=method.passes(epochs) / epochs,
        rounds={name: [sum(values)] for name, values in rounds.items()} if step.pretrains else rounds,
        clock=_clock(run),
        failed={name: causes.count(name) for name in sorted(set(causes))},
        metrics=_metrics(run),
        scores={model: _scores(run, model) for model in sorted(run.last())},
        rewards=_rewards(run),
        warnings=list(run.warnings),
    )


def write_record(folder: Path, step: Step, record: Record) -> Path:
    """Write a record atomically: the file is complete or does not exist."""
    place = folder / FOLDER / f"{step.file}.json"
    place.parent.mkdir(parents=True, exist_ok=True)
    draft = place.with_name(f".{place.name}")
    # one line per fact, so that a diff shows which one changed
    lines = [f"{json.dumps(key)}: {_dumps(value)}" for key, value in {"format": FORMAT, **vars(record)}.items()]
    draft.write_text("{\n" + ",\n".join(lines) + "\n}\n", encoding="utf-8")
    draft.replace(place)
    return place


def read_records(folder: Path) -> dict[str, Record]:
    """Read the records of a recipe folder, by key; those of another results version are left out."""
    found = {}
    for file in sorted((folder / FOLDER).glob("*.json")):
        try:
            values = _loaded(json.loads(file.read_text(encoding="utf-8")))
            if values.pop("format") != FORMAT:
                raise ValueError("it has another format")
            record = Record(**values)
        except (OSError, ValueError, TypeError, KeyError, AttributeError) as error:
            raise UserError(f"{file} is not a record ({error}): delete it to repeat its run") from None
        if record.results == RESULTS:
            found[record.key] = record
    return found


def _rounds(run: Run) -> dict[str, list[float]]:
    rows = run.rounds()
    place = {(row["episode"], row["round"]): index for index, row in enumerate(rows)}
    steps, work = [0] * len(rows), [0.0] * len(rows)
    for task in run.tasks():
        if (index := place.get((task["episode"], task["round"]))) is not None:  # the final pass is not a round
            steps[index] += task["steps"]
            work[index] += task["seconds"]
    return {
        "cohort": [len(row["cohort"]) for row in rows],
        "steps": list(steps),
        "client_seconds": work,
        "seconds": [row["seconds"] for row in rows],
        "bytes_down": [row["bytes_down"] for row in rows],
        "bytes_up": [row["bytes_up"] for row in rows],
    }


def _clock(run: Run) -> dict[str, list[float | None]]:
    rows = run.clock()
    if not rows or run.pretrains:
        return {}
    ends: list[float | None] = [row["begin"] + row["seconds"] for row in rows]
    return {"end": ends, "latency": [row["latency"] for row in rows], "idle": [row["idle"] for row in rows]}


def _metrics(run: Run) -> dict[str, dict[str, list[float | None]]]:
    rows = run.metrics()
    models = sorted({row["model"] for row in rows})
    found: dict[str, dict[str, list[float | None]]] = {
        model: {name: [row[name] for row in rows if row["model"] == model] for name in ("round", *MEASURES)}
        for model in models
    }
    for row in run.measures():  # the further ones: means over clients, at the same rounds
        found[row["model"]].setdefault(row["measure"], []).append(row["mean"])
    return found


def _scores(run: Run, model: str) -> dict[str, list[float]]:
    rows = run.scores(model)
    return {name: [row[name] for row in rows] for name in ("client", "correct", "loss", "samples")}


def _rewards(run: Run) -> dict[str, list[float]]:
    by_round: dict[str, dict[tuple[int, int], list[float]]] = {}
    for row in run.decisions():
        if row["reward"] is not None:
            by_round.setdefault(row["name"], {}).setdefault((row["episode"], row["round"]), []).append(row["reward"])
    found: dict[str, list[float]] = {}
    for name, rounds in by_round.items():
        means = {place: fmean(values) for place, values in sorted(rounds.items())}
        episodes = sorted({episode for episode, _ in means})
        if len(episodes) > 1:
            found[name] = [sum(value for (e, _), value in means.items() if e == episode) for episode in episodes]
        else:
            found[name] = _shortened(list(means.values()))
    return found


def _shortened(values: list[float]) -> list[float]:
    if len(values) <= MOST:
        return values
    edges = [round(index * len(values) / MOST) for index in range(MOST + 1)]
    return [fmean(values[low:high]) for low, high in pairwise(edges)]


def _policy(run: Run, step: Step) -> str | None:
    """The digest in the policy's card, or that of all that is built-in for the method."""
    method = step.settings.method
    if not isinstance(method, AgentMethod) or not (step.pretrains or method.has_policy):
        return None
    place = run.folder if step.pretrains else method.own_policy
    if place is None:
        return built_in_digest(method) if method.uses_built_in else None
    return str(json.loads((place / CARD).read_text(encoding="utf-8"))["digest"])


def _dumps(value: Any) -> str:
    return json.dumps(_jsonable(value), ensure_ascii=False, allow_nan=False)


def _jsonable(value: Any) -> Any:
    if isinstance(value, float) and not math.isfinite(value):
        return "NaN" if math.isnan(value) else "Infinity" if value > 0 else "-Infinity"
    if isinstance(value, Mapping):
        return {str(key): _jsonable(inner) for key, inner in value.items()}
    return [_jsonable(inner) for inner in value] if isinstance(value, list | tuple) else value


def _loaded(value: Any) -> Any:
    if isinstance(value, str):
        return NOT_JSON.get(value, value)
    if isinstance(value, dict):
        return {key: _loaded(inner) for key, inner in value.items()}
    return [_loaded(inner) for inner in value] if isinstance(value, list) else value
