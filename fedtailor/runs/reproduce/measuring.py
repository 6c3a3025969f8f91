"""Measures: the numbers that a table shows of a run, computed from its record.

A measure is a short text::

    held.accuracy                            a model and a statistic, after the last round, in %
    held.accuracy max                        the highest of the evaluated rounds
    rounds to held.accuracy 80               the first evaluated round that has 80 %
    rounds to held.accuracy near 1           ... that is within 1 point of the run's best
    rounds to held.accuracy of fedavg        ... that has fedavg's last accuracy, in the mean of its seeds
    bytes to held.accuracy of fedavg         likewise steps, seconds, clock, bytes or work until then
    held.accuracy within steps of fedavg     the last accuracy within as many steps as fedavg takes in all
    held.accuracy after clock of fedavg      the first one at or after the time that fedavg takes, or the last
    clock.seconds, clock.latency, clock.idle, clock.late, clock.dropped
    bytes, bytes.up, bytes.down              in MB; bytes.client: in kB, of a client in a round
    rounds, steps, seconds, work             seconds are those of the clients' tasks; work is in rounds of FedAvg
    reward.size, reward.size first           the mean reward of a decision; of its first (last) three episodes

``of best`` means the best of the table's other rows; ``of experiment/method`` names another experiment.
"""

import re
from dataclasses import dataclass
from itertools import accumulate
from statistics import fmean

from fedtailor.errors import UserError
from fedtailor.learning.measures import MEASURES
from fedtailor.runs.reproduce.records import Record

STATISTICS = {
    **dict.fromkeys(("accuracy", "pooled", "worst", "worst_tenth"), "%"),
    "deviation": "%",
    "loss": "",
    "pooled_loss": "",
    **{name: "%" if one.percent else "" for name, one in MEASURES.items() if name != "accuracy"},  # over clients
}
AXES = {"rounds": "", "steps": "", "seconds": "s", "clock": "s", "bytes": "MB", "work": "rounds of FedAvg"}
TOTALS = {
    "clock.seconds": "s",
    "clock.latency": "s",
    "clock.idle": "%",
    "clock.late": "",
    "clock.dropped": "",
    "bytes.up": "MB",
    "bytes.down": "MB",
    "bytes.client": "kB",
}
WINDOW = 3  # number of episodes in `first` and `last`
_FORM = re.compile(
    r"(?:(?P<axis>\w+) to )?(?P<what>[\w./-]+)"
    r"(?: (?P<how>max|first|last|within \w+|after \w+))?"
    r"(?: (?:near (?P<near>[\d.]+)|of (?P<of>.+)|(?P<target>[\d.]+)))?"
)


@dataclass(frozen=True)
class Measure:
    """A parsed measure."""

    text: str
    what: str
    axis: str | None = None  # the quantity in `to`, `within`, `after`
    how: str = "last"
    of: str | None = None  # the method, or experiment/method, that gives the target or the limit
    near: float | None = None
    target: float | None = None

    @property
    def unit(self) -> str:
        if self.how == "to":
            return AXES[str(self.axis)]
        return _unit(self.what)

    @property
    def better(self) -> int:
        """1 if more is better, -1 if less is better, 0 otherwise."""
        if self.how == "to":
            return -1
        statistic = self.what.rpartition(".")[2]
        if statistic in ("loss", "pooled_loss", "deviation"):
            return -1
        if statistic in MEASURES:
            return 1 if MEASURES[statistic].better == "higher" else -1
        return 1 if self.unit == "%" and self.what != "clock.idle" else 0

    @property
    def points(self) -> bool:
        """Whether differences are in percentage points."""
        return self.unit == "%"

    def reference(self) -> "Measure | None":
        """The measure of the runs that `of` names."""
        if self.of is None:
            return None
        return parse(self.what) if self.how == "to" else Measure(str(self.axis), str(self.axis))


def parse(text: str) -> Measure:
    """Parse a measure. The caller adds the place in the file to the message of an error."""
    found = _FORM.fullmatch(text)
    if found is None:
        raise UserError(f"measure {text!r} is not understood: write for example held.accuracy")
    axis, what, how, of = found["axis"], found["what"], found["how"] or "last", found["of"]
    if how.startswith(("within ", "after ")):
        how, _, axis = how.partition(" ")
        if of is None:
            raise UserError(f"measure {text!r}: say of which method, as in {what} {how} {axis} of fedavg")
    elif axis is not None:
        how = "to"
        if of is None and found["near"] is None and found["target"] is None:
            raise UserError(f"measure {text!r}: name the target: a number, near 1, or of fedavg")
    elif of is not None or found["near"] or found["target"]:
        raise UserError(f"measure {text!r}: begin with what is counted, as in rounds to {what} 80")
    if axis is not None and axis not in AXES:
        raise UserError(f"measure {text!r}: {axis} is none of {', '.join(AXES)}")
    _unit(what)
    known = MEASURES.get(what.rpartition(".")[2])
    if how in ("max", "to") and known is not None and known.better == "lower":
        raise UserError(f"measure {text!r}: less is better of {known.name}, so only its last value can be used")
    numbers = {name: float(found[name]) if found[name] else None for name in ("near", "target")}
    return Measure(text, what, axis, how, of, **numbers)


def measured(measure: Measure, record: Record, reference: float | None = None) -> float | None:
    """The measure of one run; None if the run has none, or does not reach the target."""
    if measure.how in ("first", "last") and measure.what.startswith("reward."):
        return _reward(measure, record)
    if measure.how == "last":
        return _last(measure.what, record)
    points = _points(measure.what, record)
    if not points:
        return None
    if measure.how == "max":
        return max(value for _, value in points)
    assert measure.axis is not None
    spent = _spent(measure.axis, record)
    if measure.how == "to":
        target = measure.target if measure.near is None else max(value for _, value in points) - measure.near
        target = reference if measure.of is not None else target
        return None if target is None else next((spent[r - 1] for r, value in points if value >= target), None)
    if reference is None or not spent:
        return None
    if measure.how == "within":
        inside = [value for round, value in points if spent[round - 1] <= reference]
        return inside[-1] if inside else None
    return next((value for round, value in points if spent[round - 1] >= reference), points[-1][1])


def curve(measure: Measure, record: Record, axis: str) -> list[tuple[float, float]]:
    """The curve of a measure over the evaluated rounds: rounds or what they cost so far, and values."""
    spent = _spent(axis, record)
    return [(spent[round - 1], value) for round, value in _points(measure.what, record) if round <= len(spent)]


def _unit(what: str) -> str:
    if what in AXES or what in TOTALS:
        return {**AXES, **TOTALS}[what]
    model, dot, statistic = what.rpartition(".")
    if what.startswith("reward."):
        return ""
    if not dot or not model or statistic not in STATISTICS:
        known = ", ".join([*AXES, *TOTALS, *(f"MODEL.{name}" for name in STATISTICS)])
        raise UserError(f"measure {what!r} is not known: it is one of {known}, reward.DECISION")
    return STATISTICS[statistic]


def _last(what: str, record: Record) -> float | None:
    if what in AXES:
        spent = _spent(what, record)
        return spent[-1] if spent else None
    if what.startswith("bytes."):
        kinds = {"bytes.up": ("bytes_up",), "bytes.down": ("bytes_down",)}.get(what, ("bytes_up", "bytes_down"))
        total = sum(sum(record.rounds[kind]) for kind in kinds)
        return total / sum(record.rounds["cohort"]) / 1e3 if what == "bytes.client" else total / 1e6
    if what.startswith("clock."):
        return _on_clock(what, record)
    model, _, statistic = what.rpartition(".")
    values = record.metrics.get(model, {}).get(statistic, ())
    return None if not values or values[-1] is None else _scaled(what, values[-1])


def _on_clock(what: str, record: Record) -> float | None:
    if not record.clock:
        return None
    if what == "clock.seconds":
        return record.clock["end"][-1]
    if what == "clock.late":
        return float(record.failed.get("late", 0))
    if what == "clock.dropped":
        return float(record.failed.get("dropped out", 0) + record.failed.get("its device failed", 0))
    known = [value for value in record.clock[what.removeprefix("clock.")] if value is not None]
    return (100 if what == "clock.idle" else 1) * fmean(known) if known else None


def _reward(measure: Measure, record: Record) -> float | None:
    values = record.rewards.get(measure.what.removeprefix("reward."), ())
    if not values:
        return None
    if measure.text == measure.what:
        return fmean(values)
    return fmean(values[:WINDOW] if measure.how == "first" else values[-WINDOW:])


def _points(what: str, record: Record) -> list[tuple[int, float]]:
    """Rounds and values, at every evaluation."""
    model, _, statistic = what.rpartition(".")
    of_model = record.metrics.get(model, {})
    pairs = zip(of_model.get("round", ()), of_model.get(statistic, ()), strict=True)
    return [(int(round), _scaled(what, value)) for round, value in pairs if round is not None and value is not None]


def _spent(axis: str, record: Record) -> list[float]:
    """The cumulative cost up to each round."""
    rounds = len(record.rounds["cohort"])
    if axis == "clock":
        return [end for end in record.clock.get("end", ()) if end is not None]
    if axis in ("rounds", "work"):
        return [index * (record.passes if axis == "work" else 1.0) for index in range(1, rounds + 1)]
    if axis == "bytes":
        both = zip(record.rounds["bytes_up"], record.rounds["bytes_down"], strict=True)
        return [total / 1e6 for total in accumulate(up + down for up, down in both)]
    return [float(total) for total in accumulate(record.rounds["client_seconds" if axis == "seconds" else axis])]


def _scaled(what: str, value: float) -> float:
    return 100 * value if _unit(what) == "%" else value
