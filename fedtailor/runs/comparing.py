"""Compare methods: the same experiment with every method and every seed."""

import statistics
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from fedtailor.errors import UserError
from fedtailor.methods import Method
from fedtailor.runs import toml
from fedtailor.runs.callbacks import Callback
from fedtailor.runs.reading import MODELS, Run
from fedtailor.runs.running import Resources, job_of, resume, run
from fedtailor.runs.settings import Experiment, experiment, make_method, method_dict
from fedtailor.runs.store import DATABASE

PLAN = "comparison.toml"
LONGEST = 100  # letters of a label, which names a folder


class Comparison:
    """The runs of a comparison and the table they make."""

    def __init__(self, folder: str | Path):
        self.folder = Path(folder)
        if not (self.folder / PLAN).is_file():
            raise UserError(f"{self.folder} is not a comparison: it has no {PLAN}")
        self.experiment = experiment(self.folder / PLAN)

    def runs(self) -> dict[str, list[Path]]:
        """The folders of the runs that have begun, by method."""
        plan = _plan(self.experiment)
        return {
            label: [
                self.folder / _run_name(label, seed)
                for seed in self.experiment.compare.seeds
                if (self.folder / _run_name(label, seed) / DATABASE).exists()
            ]
            for label in plan
        }

    def finished(self) -> list[str]:
        """The names of the runs that need not run again."""
        return [folder.name for folders in self.runs().values() for folder in folders if _finished(folder)]

    def table(self) -> list[dict[str, Any]]:
        """A row per method: mean and deviation over the seeds of every model's accuracy, bytes and time."""
        statistic = "pooled" if self.experiment.compare.pooled else "accuracy"
        rows = []
        for label, folders in self.runs().items():
            summaries = []
            for folder in folders:
                summaries += _finished(folder)
            row: dict[str, Any] = {"method": label, "seeds": len(summaries)}
            for model in MODELS:
                row |= _spread(model, [s["metrics"].get(model, {}).get(statistic) for s in summaries])
            for extra in ("worst", "worst_tenth", "deviation"):
                headline = self.experiment.compare.metric
                row |= _spread(extra, [s["metrics"].get(headline, {}).get(extra) for s in summaries])
            row["megabytes"] = _mean([(s["bytes_up"] + s["bytes_down"]) / 1e6 for s in summaries])
            row["seconds"] = _mean([s["seconds"] for s in summaries])
            if self.experiment.devices is not None:
                clocks = [s["clock"] for s in summaries]
                row["virtual_seconds"] = _mean([clock["seconds"] for clock in clocks])
                for key in ("latency", "idle", "late", "dropped"):
                    row[key] = _mean([clock[key] for clock in clocks if clock[key] is not None])
            rows.append(row)
        return rows

    def summary(self) -> dict[str, Any]:
        """The comparison in one JSON document."""
        compare = self.experiment.compare
        return {
            "name": self.experiment.name,
            "folder": str(self.folder),
            "metric": compare.metric,
            "average": "per sample" if compare.pooled else "per client",
            "seeds": list(compare.seeds),
            "table": self.table(),
        }


def compare(
    source: "str | Path | Mapping[str, Any] | Experiment | None" = None,
    *,
    methods: Iterable[str | Mapping[str, Any] | Method] | None = None,
    seeds: Iterable[int] | None = None,
    folder: str | Path | None = None,
    callbacks: Callback | None = None,
) -> Comparison:
    """Run every method with every seed; what is already there is kept, what was interrupted goes on."""
    settings = experiment(source)
    changes: dict[str, Any] = {}
    if methods is not None:
        changes["methods"] = [
            m if isinstance(m, str) else method_dict(m) if isinstance(m, Method) else dict(m) for m in methods
        ]
    if seeds is not None:
        changes["seeds"] = list(seeds)
    settings = experiment({**settings.as_dict(), "compare": {**settings.as_dict()["compare"], **changes}})
    plan = _plan(settings)
    validation = settings.validation or any(method.needs_validation for method in plan.values())
    settings = settings.model_copy(update={"validation": validation})
    place = Path(folder) if folder is not None else default_folder(settings)
    callbacks = callbacks or Callback()
    runs = [  # the seed outside: the data of a seed are loaded once
        settings.model_copy(update={"method": method, "seed": seed, "name": _run_name(label, seed)})
        for seed in settings.compare.seeds
        for label, method in plan.items()
    ]
    with Resources() as resources:
        for method in plan.values():  # what cannot begin writes nothing
            method.check()
        job_of(runs[0], resources)
        resources.engine_for(runs[0])
        for one in runs:
            _check_kept(place / one.name, one)
        _claim(place, settings)
        for one in runs:
            _run_or_resume(place / one.name, one, callbacks, resources)
    return Comparison(place)


def default_folder(settings: Experiment, runs: Path = Path("runs")) -> Path:
    """Beside the run of the same experiment, not in its place."""
    return runs / f"{settings.name}-comparison"


def _finished(folder: Path) -> list[dict[str, Any]]:
    """The summary of a run, if it is finished and not damaged."""
    try:
        with Run(folder) as one:
            return [one.summary()] if one.finished else []
    except UserError:
        return []


def _check_kept(folder: Path, settings: Experiment) -> None:
    """A label does not tell settings apart: what is kept must be what is asked for."""
    if folder.exists():
        with Run(folder) as before:
            method = method_dict(before.experiment.method)
        if method != method_dict(settings.method):
            raise UserError(f"{folder} holds a run with other settings: choose another label, or --name to keep both")


def _run_or_resume(folder: Path, settings: Experiment, callbacks: Callback, resources: Resources) -> None:
    if not folder.exists():
        run(settings, folder=folder, callbacks=callbacks, resources=resources).close()
        return
    with Run(folder) as before:
        finished = before.finished
    if not finished:
        resume(
            folder, callbacks=callbacks, resources=resources, engine=settings.engine.model_dump(exclude_none=True)
        ).close()


def _plan(settings: Experiment) -> dict[str, Method]:
    """The methods by label: the one that is given, or the name and every setting that differs from the default."""
    plan: dict[str, Method] = {}
    for table in settings.compare.methods:
        given = {"name": table} if isinstance(table, str) else dict(table)
        label = given.pop("label", None)
        method = make_method(given, "compare.methods")
        if label is None:
            fields = type(method).model_fields
            changed = {k: v for k, v in given.items() if k != "name" and v != fields[k].get_default()}
            name = method_dict(method)["name"].rpartition(":")[2]
            label = name + "".join(f" {key}={value}" for key, value in changed.items())
        elif not isinstance(label, str) or not 1 <= len(label.strip(" .")) <= LONGEST:
            said = f"compare.methods has the label {label!r}"
            raise UserError(f'{said}: give it a text of at most {LONGEST} letters, as in label = "ours"')
        if _run_name(label, 0) in {_run_name(other, 0) for other in plan}:
            raise UserError(f"compare.methods names {label!r} twice")
        plan[label] = method
    return plan


def _run_name(label: str, seed: int) -> str:
    safe = "".join(c if c.isalnum() or c in "-_.=" else "_" for c in label)
    return f"{safe}-s{seed}"


def _claim(place: Path, settings: Experiment) -> None:
    """Make the folder, or make sure that it holds this comparison, perhaps with other methods, seeds or headline."""
    values, plan = _facts(settings), place / PLAN
    if place.exists():
        # read as settings, so that one that a later version knows has its default in an earlier plan
        before = _facts(experiment(plan)) if plan.is_file() else None
        free: dict[str, Any] = {"compare": None, "pretrain": None}  # how long agents learn elsewhere changes no run
        if before is None or {**before, **free} != {**values, **free}:
            raise UserError(f"{place} exists and holds something else: choose another name with --name to keep both")
    try:
        place.mkdir(parents=True, exist_ok=True)
        plan.write_text(toml.dumps(values), encoding="utf-8")
    except OSError as error:
        raise UserError(f"{place} cannot be made: {error.strerror}") from None


def _spread(name: str, values: list[float | None]) -> dict[str, float | None]:
    known = [value for value in values if value is not None]
    deviation = statistics.stdev(known) if len(known) > 1 else None
    return {name: _mean(known), f"{name}_std": deviation}


def _mean(values: list[float]) -> float | None:
    return statistics.fmean(values) if values else None


def _facts(settings: Experiment) -> dict[str, Any]:
    """What is the same for all runs of a comparison, and does not say where they run."""
    return {key: value for key, value in settings.as_dict().items() if key not in ("engine", "method", "seed")}
