"""Typed summaries of runs and comparisons."""

import statistics
from collections.abc import Hashable, Iterable, Mapping
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

from fedtailor.errors import UserError
from fedtailor.runs.measures import Measures
from fedtailor.runs.promises import Promise
from fedtailor.runs.statistics import Difference, Wins, decided
from fedtailor.runs.stopping import Best

if TYPE_CHECKING:
    from fedtailor.learning import TrainingSettings
    from fedtailor.methods import Method


@dataclass(frozen=True)
class ClockSummary:
    """The times of a run on the clients' clock."""

    seconds: float  # of all rounds
    latency: float | None  # straggling seconds of a round, on average
    idle: float | None  # share of a round in which a client waits, on average
    late: int  # answers that came too late
    dropped: int  # clients that dropped out or whose device failed, over all rounds


@dataclass(frozen=True)
class RunSummary:
    """A run in a few numbers.

    Attributes
    ----------
    metrics : mapping of str to Measures
        The latest measures of every model: ``received``, ``held``, ``global``, ``final`` and the method's own.
    bytes_down, bytes_up : int
        What all clients received and sent.
    seconds : float
        Measured time of all rounds, without the final pass.
    failed_tasks : int
        The number of times that a client was left out of a round.
    clock : ClockSummary or None
        Time on the clients' devices; None without devices.
    warnings : tuple of str
        What the run warned about: settings that make the method inert or break one of its assumptions.
    privacy : tuple of Promise
        The differential privacy of clients and of records; empty without privacy.
    best : Best or None
        The best round by validation data, whose models were deployed; None without ``stopping``.
    stopped : int or None
        The round after which the run ended early; None if it did not.
    start : mapping or None
        The run or file that the run started from: path, round, what was carried over, digest.
    """

    name: str
    folder: str
    method: Mapping[str, Any]  # its name and settings
    seed: int
    status: str  # finished, running or stopped
    rounds: int  # of all episodes
    rounds_done: int
    clients: int
    metrics: Mapping[str, Measures]
    bytes_down: int
    bytes_up: int
    seconds: float
    failed_tasks: int
    clock: ClockSummary | None = None
    warnings: tuple[str, ...] = ()
    privacy: tuple[Promise, ...] = ()
    best: Best | None = None
    stopped: int | None = None
    start: Mapping[str, Any] | None = None

    @property
    def received(self) -> Measures:
        """The measures of the models that clients receive, before they train."""
        return self._measured("received")

    @property
    def held(self) -> Measures:
        """The measures of the models that clients hold after their latest training."""
        return self._measured("held")

    @property
    def final(self) -> Measures:
        """The measures of the final pass, in which every client receives and trains once more."""
        return self._measured("final")

    @property
    def notes(self) -> tuple[str, ...]:
        """Where the run started, its best round, and whether it ended early, as clauses."""
        said = []
        if (start := self.start) is not None:
            place = f"{start['path']} after round {start['round']}" if start["round"] else str(start["path"])
            said.append(f"started from {place} ({start['carried']}; digest {start['digest'][:8]})")
        if self.best is not None:
            said.append(f"best round by validation data: {self.best.round}")
        if self.stopped is not None:
            said.append(f"stopped early after round {self.stopped}")
        return tuple(said)

    def as_dict(self) -> dict[str, Any]:
        """The summary as one JSON document; without a clock, privacy, best round or start it has no such key."""
        values = {**vars(self), "metrics": {model: found.as_dict() for model, found in self.metrics.items()}}
        values["warnings"] = list(self.warnings)
        clock, privacy, best = values.pop("clock"), values.pop("privacy"), values.pop("best")
        values |= {} if clock is None else {"clock": asdict(clock)}
        values |= {} if best is None else {"best": asdict(best)}
        values = {key: value for key, value in values.items() if key not in ("stopped", "start") or value is not None}
        return values | ({"privacy": [asdict(found) for found in privacy]} if privacy else {})

    def _measured(self, model: str) -> Measures:
        if model not in self.metrics:
            known = ", ".join(self.metrics) or "none"
            raise UserError(f"{self.folder} has no measures of {model!r} models (it has: {known})")
        return self.metrics[model]


@dataclass(frozen=True)
class Spread:
    """Mean and deviation over seeds; None where too few seeds have a value."""

    mean: float | None
    std: float | None


@dataclass(frozen=True)
class MeanClock:
    """The times of a method's runs on the clients' clock, averaged over seeds."""

    seconds: float | None
    latency: float | None
    idle: float | None
    late: float | None
    dropped: float | None


@dataclass(frozen=True)
class ComparisonRow:
    """A method in a comparison, over its finished seeds.

    Attributes
    ----------
    method : str
        The label of the method.
    seeds : int
        Number of finished runs.
    headline : mapping of str to Spread
        The headline measure by model: ``received``, ``held``, ``global``, ``final`` and ``new``.
    worst, worst_tenth, deviation : Spread
        The measure of the worst client and of the worst tenth, and its deviation over clients, of the headline model.
    megabytes, seconds : float or None
        What a run sends and receives, and its measured time, on average.
    clock : MeanClock or None
        Time on the clients' devices; None without devices.
    difference : Difference or None
        The headline of this row minus that of the baseline, paired by seed; None for the baseline.
    wins : Wins or None
        The clients that are better off than with the baseline; None for the baseline.
    """

    method: str
    seeds: int
    headline: Mapping[str, Spread]
    worst: Spread
    worst_tenth: Spread
    deviation: Spread
    megabytes: float | None
    seconds: float | None
    clock: MeanClock | None = None
    difference: Difference | None = None
    wins: Wins | None = None

    def as_dict(self) -> dict[str, Any]:
        """The row with one value per key, as in the JSON document and the CSV file."""
        row: dict[str, Any] = {"method": self.method, "seeds": self.seeds}
        extras = {"worst": self.worst, "worst_tenth": self.worst_tenth, "deviation": self.deviation}
        for name, spread in {**self.headline, **extras}.items():
            if name != "new" or spread.mean is not None:  # most comparisons have no new clients
                row |= {name: spread.mean, f"{name}_std": spread.std}
        row |= {"megabytes": self.megabytes, "seconds": self.seconds, **decided(self.difference, self.wins)}
        if self.clock is not None:
            clock = asdict(self.clock)
            row |= {"virtual_seconds": clock.pop("seconds"), **clock}
        return row


@dataclass(frozen=True)
class ClientTable:
    """The headline of every client in a comparison."""

    values: Mapping[str, Mapping[int, Mapping[int, float]]]  # by method, seed and client for which it is defined
    names: Mapping[int, tuple[str, ...]]  # by seed, if the clients have names of their own
    less_is_better: bool

    def rows(self) -> list[dict[str, Any]]:
        """A row for every method, seed and client."""
        return [
            {"method": method, "seed": seed, "client": client, "value": value}
            for method, seeds in self.values.items()
            for seed, clients in seeds.items()
            for client, value in clients.items()
        ]


@dataclass(frozen=True)
class Note:
    """A footnote of a table: a sentence about some of its rows."""

    rows: tuple[str, ...]
    sentence: str

    @property
    def text(self) -> str:
        """The rows and the sentence; a sentence that begins with the name of the row does not repeat it.

        >>> Note(("fedbn",), "fedbn: this is FedAvg").text
        'fedbn: this is FedAvg'
        """
        named = f"{', '.join(self.rows)}: "
        return named + self.sentence.removeprefix(named)


@dataclass(frozen=True)
class ComparisonSummary:
    """A comparison in one table, sorted by the headline, best first."""

    name: str
    folder: str
    model: str  # the headline model
    measure: str  # the headline measure
    percent: bool  # whether the headline measure is a share that is written in percent
    average: str  # how the measure is averaged: "per client" or "per sample"
    seeds: tuple[int, ...]
    table: tuple[ComparisonRow, ...]
    baseline: str = ""  # the row that the others are compared with
    notes: tuple["Note", ...] = ()  # what a reader of the table must know about some of its rows

    @property
    def comparisons(self) -> int:
        """The number of rows that were compared with the baseline."""
        return sum(row.difference is not None and bool(row.difference.values) for row in self.table)

    def row(self, method: str) -> ComparisonRow:
        """The row of a method, by its label."""
        for row in self.table:
            if row.method == method:
                return row
        raise UserError(f"{self.folder} does not compare {method!r}: {', '.join(row.method for row in self.table)}")

    def as_dict(self) -> dict[str, Any]:
        """The comparison as one JSON document."""
        return {
            **vars(self),
            "seeds": list(self.seeds),
            "comparisons": self.comparisons,
            "notes": [{"rows": list(note.rows), "sentence": note.sentence} for note in self.notes],
            "table": [row.as_dict() for row in self.table],
        }


def equal_rows(
    scores: Mapping[str, Hashable], methods: "Mapping[str, Method]", training: "TrainingSettings"
) -> list[Note]:
    """A note for rows in which every client has the same score in every seed, with the methods' reason.

    Parameters
    ----------
    scores
        By row, the scores of all clients in all seeds.
    methods
        By row, its method.
    training
        The settings of training that all rows share.
    """
    groups: dict[Hashable, list[str]] = {}
    for row, found in scores.items():
        groups.setdefault(found, []).append(row)
    notes = []
    for rows in (rows for rows in groups.values() if len(rows) > 1):
        pairs = [(methods[one], methods[other]) for one in rows for other in rows if one != other]
        reasons = [reason for one, other in pairs if (reason := one.coincides(other, training))]
        same = "these rows are equal: every client has the same score in every seed"
        notes.append(Note(tuple(rows), "; ".join([same, *dict.fromkeys(reasons)])))
    return notes


def sampled_rows(measured: Mapping[str, Iterable[Measures | None]]) -> list[Note]:
    """A note for rows in which a sample of the clients was tested, with the widest interval of their means.

    Parameters
    ----------
    measured
        By row, the measures of the headline model in all seeds.
    """
    known = {
        row: [found for found in those if found is not None and found.population] for row, those in measured.items()
    }
    rows = tuple(row for row, those in known.items() if those)
    found = [(one.interval, one) for those in known.values() for one in those if one.interval is not None]
    if not found:
        return []
    width, one = max(found, key=lambda pair: pair[0])
    shown = f"{100 * width:.1f} points" if one.main.percent else f"{width:.3g}"
    said = f"over {one.clients:,} of {one.population:,} clients, the same for all rows of a seed"
    return [Note(rows, f"{said}; 95 % interval of a run's mean over all clients: at most ± {shown}")]


def mean(values: Iterable[float | None]) -> float | None:
    """The mean of the values that are known."""
    known = [value for value in values if value is not None]
    return statistics.fmean(known) if known else None


def spread(values: Iterable[float | None]) -> Spread:
    """Mean and deviation of the values that are known."""
    known = [value for value in values if value is not None]
    return Spread(mean(known), statistics.stdev(known) if len(known) > 1 else None)
