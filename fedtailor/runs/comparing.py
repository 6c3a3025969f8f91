"""Compare methods: the same experiment with every method and every seed."""

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pydantic import BaseModel

from fedtailor.data import Federation
from fedtailor.errors import UserError, unknown
from fedtailor.learning.measures import ACCURACY, Measure
from fedtailor.methods import Method
from fedtailor.runs import toml
from fedtailor.runs.assembly import assemble, check_data, job_of
from fedtailor.runs.callbacks import Callback, Callbacks, one_callback
from fedtailor.runs.completion import about_devices, compared, own_settings
from fedtailor.runs.disk import check_disk, least_bytes
from fedtailor.runs.folders import PLAN
from fedtailor.runs.frames import frame
from fedtailor.runs.reading import MODELS, Run, value_of
from fedtailor.runs.resources import Resources
from fedtailor.runs.results import (
    ClientTable,
    ComparisonRow,
    ComparisonSummary,
    MeanClock,
    Note,
    RunSummary,
    Spread,
    equal_rows,
    mean,
    sampled_rows,
    spread,
)
from fedtailor.runs.running import resume, run
from fedtailor.runs.settings import Experiment, experiment, make_method, method_dict, read_toml, recorded
from fedtailor.runs.statistics import difference, wins
from fedtailor.runs.store import DATABASE
from fedtailor.runs.tracking import check_trackers, mirror

LONGEST = 100  # characters of a label, which names a folder


@dataclass(frozen=True)
class _Finished:
    """A finished run of a comparison, with each client's score and headline measure of the headline model."""

    seed: int
    summary: RunSummary
    scores: tuple[tuple[Any, ...], ...]
    values: Mapping[int, float]  # by client for which it is defined
    names: tuple[str, ...] = ()  # of the clients, if they have names of their own

    @classmethod
    def read(cls, folder: Path, model: str) -> "list[_Finished]":
        """The run in a folder, if it is finished and not damaged."""
        try:
            with Run(folder) as run:
                if not run.finished:
                    return []
                rows, summary = run.scores(model), run.summary()
                scores = [(row["client"], row["correct"], row["loss"], row["samples"]) for row in rows]
                values = {row["client"]: value for row in rows if (value := value_of(row, run.headline)) is not None}
                return [cls(summary.seed, summary, tuple(scores), values, run.names)]
        except UserError:
            return []


class Comparison:
    """The runs of a comparison and the table that they make.

    Parameters
    ----------
    folder : str or Path
        The folder of the comparison.

    Attributes
    ----------
    folder : Path
        The folder of the comparison.
    experiment : Experiment
        The settings that all runs share, with the methods and seeds in ``experiment.compare``.

    Examples
    --------
    >>> comparison = fedtailor.Comparison("runs/first-comparison")
    >>> [(row.method, row.seeds) for row in comparison.table()]
    [('fedper', 2), ('fedavg', 2)]
    """

    def __init__(self, folder: str | Path):
        self.folder = Path(folder)
        if not (self.folder / PLAN).is_file():
            raise UserError(f"{self.folder} is not a comparison: it has no {PLAN}")
        self.experiment = recorded(read_toml(self.folder / PLAN))

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
        """The names of the finished runs."""
        return [folder.name for folders in self.runs().values() for folder in folders if _finished(folder)]

    def table(self) -> list[ComparisonRow]:
        """A row per method, sorted by the headline: over the finished seeds, accuracies, bytes and time.

        Every row is compared with the baseline: the method that ``compare.baseline`` names, or the first.
        """
        return self._rows(self._finished_runs())

    def summary(self) -> ComparisonSummary:
        """The comparison in one table.

        Returns
        -------
        ComparisonSummary
            Its ``as_dict()`` is the JSON document that ``fedtailor compare --json`` prints.
        """
        compare = self.experiment.compare
        finished = self._finished_runs()
        measured = _measured(finished)
        measures = {row: [one.summary.metrics.get(compare.model) for one in runs] for row, runs in finished.items()}
        return ComparisonSummary(
            name=self.experiment.name,
            folder=str(self.folder),
            model=compare.model,
            measure=measured.name,
            percent=measured.percent,
            average="per sample" if compare.pooled else "per client",
            seeds=tuple(compare.seeds),
            table=tuple(self._rows(finished)),
            baseline=self._baseline,
            notes=(*self._notes, *self._warnings(finished), *self._equal_rows(finished), *sampled_rows(measures)),
        )

    def frame(self, what: str = "table") -> Any:
        """The ``table`` as a pandas frame, or ``clients``: the headline of every client, method and seed."""
        if what == "table":
            return frame([row.as_dict() for row in self.table()])
        if what != "clients":
            raise unknown("frame", what, ("table", "clients"))
        return frame(self.clients().rows())

    def clients(self) -> ClientTable:
        """The headline measure of the headline model for every client; finished runs only."""
        finished = self._finished_runs()
        return ClientTable(
            values={label: {one.seed: one.values for one in runs} for label, runs in finished.items()},
            names={one.seed: one.names for runs in finished.values() for one in runs if one.names},
            less_is_better=_direction(_measured(finished)) < 0,
        )

    @property
    def _notes(self) -> list[Note]:
        return about_devices(self.experiment, _plan(self.experiment))

    @property
    def _baseline(self) -> str:
        return self.experiment.compare.baseline or next(iter(_plan(self.experiment)))

    def _finished_runs(self) -> dict[str, list[_Finished]]:
        model = self.experiment.compare.model
        return {
            label: [one for folder in folders for one in _Finished.read(folder, model)]
            for label, folders in self.runs().items()
        }

    def _rows(self, finished: Mapping[str, list[_Finished]]) -> list[ComparisonRow]:
        rows = [self._row(label, runs, finished[self._baseline]) for label, runs in finished.items()]
        headline = self.experiment.compare.model
        better = _direction(_measured(finished))

        def place(row: ComparisonRow) -> float:
            value = row.headline[headline].mean
            return math.inf if value is None or math.isnan(value) else -better * value

        return sorted(rows, key=place)

    def _row(self, label: str, runs: list[_Finished], base: list[_Finished]) -> ComparisonRow:
        summaries = [run.summary for run in runs]
        statistic, headline = "pooled" if self.experiment.compare.pooled else "mean", self.experiment.compare.model
        measured = _measured({label: [*base, *runs]})
        better = _direction(measured)

        def over_seeds(model: str, measure: str) -> Spread:
            return spread(getattr(s.metrics[model].main, measure) for s in summaries if model in s.metrics)

        def by_seed(those: list[_Finished]) -> dict[int, float | None]:
            found = {one.seed: one.summary.metrics.get(headline) for one in those}
            values = {seed: getattr(one.main, statistic) for seed, one in found.items() if one is not None}
            scale = 100 if measured.percent else 1
            return {seed: None if value is None else scale * value for seed, value in values.items()}

        others = label != self._baseline
        return ComparisonRow(
            method=label,
            seeds=len(summaries),
            headline={model: over_seeds(model, statistic) for model in MODELS},
            worst=over_seeds(headline, "worst"),
            worst_tenth=over_seeds(headline, "worst_tenth"),
            deviation=over_seeds(headline, "deviation"),
            megabytes=mean((s.bytes_up + s.bytes_down) / 1e6 for s in summaries),
            seconds=mean(s.seconds for s in summaries),
            clock=None if self.experiment.devices is None else _mean_clock(summaries),
            difference=difference(by_seed(runs), by_seed(base), measured.percent, better) if others else None,
            wins=wins({one.seed: one.values for one in runs}, {one.seed: one.values for one in base}, better)
            if others
            else None,
        )

    def _warnings(self, finished: Mapping[str, list[_Finished]]) -> list[Note]:
        """What the methods warned about, starts and best rounds, once for all seeds and rows that it concerns."""
        rows: dict[str, dict[str, None]] = {}
        for label, one in ((label, one) for label, those in finished.items() for one in those):
            for sentence in (*one.summary.warnings, *(f"{note} (seed {one.seed})" for note in one.summary.notes)):
                rows.setdefault(sentence, {})[label] = None
        return [Note(tuple(labels), sentence) for sentence, labels in rows.items()]

    def _equal_rows(self, finished: Mapping[str, list[_Finished]]) -> list[Note]:
        """A note for rows in which every client has the same score in every seed, with the methods' reason."""
        scores = {
            label: tuple((one.seed, one.scores) for one in those)
            for label, those in finished.items()
            if any(one.scores for one in those)
        }
        return equal_rows(scores, _plan(self.experiment), self.experiment.training)


def compare(
    source: "str | Path | Mapping[str, Any] | Experiment | None" = None,
    *,
    methods: Iterable[str | Mapping[str, Any] | Method] | None = None,
    seeds: Iterable[int] | None = None,
    folder: str | Path | None = None,
    federation: Federation | None = None,
    callbacks: Callbacks = None,
) -> Comparison:
    """Run every method with every seed. Finished runs are kept, interrupted runs are resumed.

    Parameters
    ----------
    source : str, Path, mapping, Experiment or None, optional
        The experiment: a TOML file, its settings, or an `Experiment`; None for the default settings.
    methods : iterable of str, mapping or Method, optional
        The methods, instead of those in the settings: names, tables with a name and settings, or methods.
    seeds : iterable of int, optional
        The seeds, instead of those in the settings.
    folder : str or Path, optional
        The folder of the comparison; ``runs/<name>-comparison`` by default.
    federation : Federation, optional
        The clients' data, instead of those that the data settings describe.
    callbacks : Callback or sequence of Callback, optional
        They observe all runs, one after the other.

    Returns
    -------
    Comparison
        The runs and their table.

    Examples
    --------
    >>> settings = {"name": "first", "rounds": 2}
    >>> comparison = fedtailor.compare(settings, methods=["fedavg", "fedper"], seeds=[0, 1])
    >>> comparison.summary().row("fedper").headline["final"].mean > 0.5
    True
    """
    settings = experiment(source)
    changes: dict[str, Any] = {}
    if methods is not None:
        changes["methods"] = [
            m if isinstance(m, str) else method_dict(m) if isinstance(m, Method) else dict(m) for m in methods
        ]
    if seeds is not None:
        changes["seeds"] = list(seeds)
    settings = own_settings(experiment(settings.as_dict(), {f"compare.{key}": one for key, one in changes.items()}))
    plan = _plan(settings)
    settings = compared(settings, plan.values())
    if federation is not None:
        settings = Resources(federation).resolved(settings)
    place = Path(folder) if folder is not None else default_folder(settings)
    observer = one_callback(callbacks)
    runs = [  # seed by seed, so that the data of a seed are loaded once
        settings.model_copy(update={"method": method, "seed": seed, "name": _run_name(label, seed)})
        for seed in settings.compare.seeds
        for label, method in plan.items()
    ]
    with Resources(federation) as resources:
        for method in plan.values():  # check everything before anything is written
            method.check()
        check_trackers(settings.track)
        job_of(runs[0], resources)
        resources.engine_for(runs[0])
        for one in runs:
            _check_kept(place / one.name, one, resources)
        check_disk(place, _least_bytes(place, runs, resources))
        _claim(place, settings)
        if kept := [one.name for one in runs if _finished(place / one.name)]:
            observer.kept(kept)
        for one in runs:
            _run_or_resume(place / one.name, one, observer, resources)
    for reason in mirror(place, settings.track).values():
        observer.warning(f"{reason}; 'fedtailor track {place}' adds what is missing")
    return Comparison(place)


def _least_bytes(place: Path, runs: list[Experiment], resources: Resources) -> int:
    """The least that the runs of the first seed that have not begun will store, times the number of seeds."""
    first = [one for one in runs if one.seed == runs[0].seed and not (place / one.name).exists()]
    return len(runs[0].compare.seeds) * sum(least_bytes(assemble(one, job_of(one, resources))) for one in first)


def _measured(finished: Mapping[str, list[_Finished]]) -> Measure:
    """The headline measure of finished runs; accuracy before there is one."""
    every = (one for runs in finished.values() for one in runs)
    for found in (found for one in every for found in one.summary.metrics.values()):
        lower = found.main.better == "lower"
        return Measure(found.headline, "any", "lower" if lower else "higher", found.main.percent)
    return ACCURACY


def _direction(measure: Measure) -> int:
    return 1 if measure.better == "higher" else -1


def default_folder(settings: Experiment, runs: Path = Path("runs")) -> Path:
    """The default folder of a comparison, next to that of a run of the same experiment."""
    return runs / f"{settings.name}-comparison"


def _finished(folder: Path) -> bool:
    try:
        with Run(folder) as one:
            return one.finished
    except UserError:  # it is damaged
        return False


def _mean_clock(summaries: list[RunSummary]) -> MeanClock:
    clocks = [s.clock for s in summaries if s.clock is not None]
    return MeanClock(
        seconds=mean(clock.seconds for clock in clocks),
        latency=mean(clock.latency for clock in clocks),
        idle=mean(clock.idle for clock in clocks),
        late=mean(clock.late for clock in clocks),
        dropped=mean(clock.dropped for clock in clocks),
    )


def _check_kept(folder: Path, settings: Experiment, resources: Resources) -> None:
    """Raise a `UserError` if the folder's run has other settings or data: a label does not determine them."""
    if folder.exists():
        with Run(folder) as before:
            method, digest = before.asked, before.data_digest
        if settings.data.source in ("folder", "python"):
            check_data(settings, resources.federation(settings), digest, f"{folder} cannot be kept")
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
    """The methods by label. The default label is the name with every setting that differs from its default."""
    plan: dict[str, Method] = {}
    for table in settings.compare.methods:
        given = {"name": table} if isinstance(table, str) else dict(table)
        label = given.pop("label", None)
        method = make_method(given, "compare.methods")
        if label is None:
            changed = _changed({key: value for key, value in given.items() if key != "name"}, _defaults(method))
            name = method_dict(method)["name"].rpartition(":")[2]
            label = name + "".join(f" {key.removeprefix('agents.')}={value}" for key, value in changed.items())
        elif not isinstance(label, str) or not 1 <= len(label.strip(" .")) <= LONGEST:
            said = f"compare.methods has the label {label!r}"
            raise UserError(f'{said}: give it a text of at most {LONGEST} characters, as in label = "ours"')
        if _run_name(label, 0) in {_run_name(other, 0) for other in plan}:
            raise UserError(f"compare.methods names {label!r} twice")
        plan[label] = method
    baseline = settings.compare.baseline
    if baseline is not None and baseline not in plan:
        raise UserError(f"compare.baseline = {baseline!r} is not compared: it is one of {', '.join(plan)}")
    return plan


def _defaults(method: Method) -> dict[str, Any]:
    fields = {name: field.get_default(call_default_factory=True) for name, field in type(method).model_fields.items()}
    return {
        name: value.model_dump(mode="json") if isinstance(value, BaseModel) else value for name, value in fields.items()
    }


def _changed(given: Mapping[str, Any], usual: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    """The given settings that differ from their defaults, by dotted name."""
    found: dict[str, Any] = {}
    for key, value in given.items():
        before = usual.get(key, usual.get(key.replace("-", "_")))
        if isinstance(value, Mapping) and isinstance(before, Mapping):
            found |= _changed(value, before, f"{prefix}{key}.")
        elif value != before:
            found[prefix + key] = value
    return found


def _run_name(label: str, seed: int) -> str:
    safe = "".join(c if c.isalnum() or c in "-_.=" else "_" for c in label)
    return f"{safe}-s{seed}"


def _claim(place: Path, settings: Experiment) -> None:
    """Make the folder, or check that it holds this comparison; methods, seeds and headline may differ."""
    facts, plan = _facts(settings), place / PLAN
    if place.exists():
        # parsed as settings, so that a setting that an older plan lacks has its default
        before = _facts(recorded(read_toml(plan))) if plan.is_file() else None
        free: dict[str, Any] = {"compare": None, "pretrain": None, "track": None}  # settings that change no run
        if before is None or {**before, **free} != {**facts, **free}:
            raise UserError(f"{place} exists and holds something else: choose another name with --name to keep both")
    try:
        place.mkdir(parents=True, exist_ok=True)
        # with the engine, so that runs that have not begun use it when the comparison is resumed
        plan.write_text(toml.dumps({**facts, "engine": settings.as_dict()["engine"]}), encoding="utf-8")
    except OSError as error:
        raise UserError(f"{place} cannot be made: {error.strerror}") from None


def _facts(settings: Experiment) -> dict[str, Any]:
    """The settings that all runs of a comparison share, without the engine."""
    values = settings.model_copy(update={"data": settings.data.filled}).as_dict()
    return {key: value for key, value in values.items() if key not in ("engine", "method", "seed")}
