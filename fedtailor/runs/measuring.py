"""Computes the measures of a model from the scores of its clients."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace

import numpy as np

from fedtailor.learning.measures import Measure, Measuring, measure
from fedtailor.records import Score
from fedtailor.runs.measures import Measures, MeasureSummary

USUAL_MEASURING = Measuring()


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
