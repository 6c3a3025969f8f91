"""Computes the measures of a model from the scores of its clients."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from typing import Any, ClassVar

import numpy as np

from fedtailor.learning import Score
from fedtailor.learning.measures import Measure, Measuring, measure
from fedtailor.runs.statistics import half_width

USUAL_MEASURING = Measuring()


@dataclass(frozen=True)
class MeasureSummary:
    """One measure of a model in a round. The values are None if it is defined for no client."""

    mean: float | None  # over the clients for which it is defined
    pooled: float | None  # over the samples of all clients; None if the measure cannot be pooled
    deviation: float | None  # over clients
    worst: float | None  # of the worst client
    worst_tenth: float | None  # mean of the worst tenth of the clients
    clients: int  # clients for which it is defined
    undefined: int = 0  # clients with test samples for which it is not
    better: str = "higher"  # or "lower"
    percent: bool = False  # whether it is a share that is written in percent

    STORED: ClassVar = ("mean", "pooled", "deviation", "worst", "worst_tenth", "clients", "undefined")


@dataclass(frozen=True)
class Measures:
    """The measures of a model in a round. The values are None if no client has test samples."""

    round: int
    accuracy: float | None  # mean over clients
    pooled: float | None  # accuracy over the samples of all clients
    deviation: float | None  # deviation of the accuracy over clients
    worst: float | None  # accuracy of the worst client
    worst_tenth: float | None  # mean accuracy of the worst tenth of the clients
    loss: float | None  # mean over clients
    pooled_loss: float | None  # mean over the samples of all clients
    clients: int  # clients with test samples
    samples: int
    untrained: int = 0  # clients that never trained; the model that they would receive counts as held
    more: Mapping[str, MeasureSummary] = field(default_factory=dict)  # further measures by name
    headline: str = "accuracy"  # the measure of tables and curves
    population: int = 0  # the clients that the tested ones were drawn from; 0 if these are all

    NOT_STORED: ClassVar = ("more", "headline", "population")

    @property
    def main(self) -> MeasureSummary:
        """The headline measure."""
        return self.of(self.headline)

    def of(self, measure: str) -> MeasureSummary:
        """A measure by its name; all values are None if it was not measured."""
        if measure == "accuracy":
            known = 0 if self.accuracy is None else self.clients
            spread = (self.accuracy, self.pooled, self.deviation, self.worst, self.worst_tenth)
            return MeasureSummary(*spread, clients=known, undefined=self.clients - known, percent=True)
        return self.more.get(measure, MeasureSummary(None, None, None, None, None, 0, self.clients))

    @property
    def interval(self) -> float | None:
        """Half of the 95 % interval of the headline's mean over all clients; None unless a sample was tested."""
        return half_width(self.main.deviation, self.main.clients, self.population)

    def as_dict(self) -> dict[str, Any]:
        """The measures as one JSON document; further ones are under ``measures``."""
        values = asdict(self)
        more, headline, population = (values.pop(key) for key in ("more", "headline", "population"))
        values |= {"population": population, "interval": self.interval} if population else {}
        return {**values, "headline": headline, "measures": more} if more else values


def measures(
    scores: Mapping[int, Score],
    round: int = 0,
    untrained: int = 0,
    measuring: Measuring = USUAL_MEASURING,
    population: int = 0,
) -> Measures:
    """Compute the measures of a model from every client's score; clients without test samples do not count."""
    tested = [score for _, score in sorted(scores.items()) if score.samples > 0]
    more = {name: _summary(measure(name), tested) for name in measuring.further}
    if not tested:
        nothing = Measures(round, None, None, None, None, None, None, None, 0, 0, untrained, more, measuring.headline)
        return replace(nothing, population=population)
    correct = np.array([score.correct for score in tested], dtype=np.float64)
    loss = np.array([score.loss for score in tested], dtype=np.float64)
    samples = np.array([score.samples for score in tested], dtype=np.float64)
    found = Measures(
        round=round,
        **_spread(correct / samples, worst_is_lowest=True),
        pooled=float(correct.sum() / samples.sum()),
        loss=float((loss / samples).mean()),
        pooled_loss=float(loss.sum() / samples.sum()),
        clients=len(tested),
        samples=int(samples.sum()),
        untrained=untrained,
        more=more,
        headline=measuring.headline,
        population=population,
    )
    if measuring.classes:
        return found
    return replace(found, accuracy=None, pooled=None, deviation=None, worst=None, worst_tenth=None)


def _summary(one: Measure, tested: Sequence[Score]) -> MeasureSummary:
    """One measure over the clients for which it is defined."""
    known = [value for score in tested if (value := score.values.get(one.name)) is not None]
    pooled = one.pooled([score.sums[one.statistic] for score in tested if one.statistic in score.sums])
    if not known:
        return MeasureSummary(None, pooled, None, None, None, 0, len(tested), one.better, one.percent)
    values = _spread(np.array(known, dtype=np.float64), worst_is_lowest=one.better == "higher")
    return MeasureSummary(
        values["accuracy"],
        pooled,
        values["deviation"],
        values["worst"],
        values["worst_tenth"],
        clients=len(known),
        undefined=len(tested) - len(known),
        better=one.better,
        percent=one.percent,
    )


def _spread(values: np.ndarray, worst_is_lowest: bool) -> dict[str, float]:
    """Mean and deviation over clients, the worst client and the worst tenth of the clients."""
    if np.isnan(values).any():  # a model that has diverged
        return dict.fromkeys(("accuracy", "deviation", "worst", "worst_tenth"), math.nan)
    ordered = np.sort(values) if worst_is_lowest else np.sort(values)[::-1]
    tenth = ordered[: math.ceil(len(values) / 10)]
    return {
        "accuracy": float(values.mean()),
        "deviation": float(values.std()),
        "worst": float(ordered[0]),
        "worst_tenth": float(tenth.mean()),
    }
