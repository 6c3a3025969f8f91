"""Computes the measures of a model from the scores of its clients."""

import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any

import numpy as np

from fedtailor.learning import Score


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

    def as_dict(self) -> dict[str, Any]:
        """The measures as one JSON document; the further ones are under ``measures``."""
        values = asdict(self)
        more = values.pop("more")
        return {**values, "measures": more} if more else values


def measures(scores: Mapping[int, Score], round: int = 0, untrained: int = 0) -> Measures:
    """Compute the measures of a model from every client's score; clients without test samples do not count."""
    tested = [score for _, score in sorted(scores.items()) if score.samples > 0]
    if not tested:
        return Measures(round, None, None, None, None, None, None, None, 0, 0, untrained)
    correct = np.array([score.correct for score in tested], dtype=np.float64)
    loss = np.array([score.loss for score in tested], dtype=np.float64)
    samples = np.array([score.samples for score in tested], dtype=np.float64)
    accuracy = correct / samples
    tenth = np.sort(accuracy)[: math.ceil(len(accuracy) / 10)]
    return Measures(
        round=round,
        accuracy=float(accuracy.mean()),
        pooled=float(correct.sum() / samples.sum()),
        deviation=float(accuracy.std()),
        worst=float(accuracy.min()),
        worst_tenth=float(tenth.mean()),
        loss=float((loss / samples).mean()),
        pooled_loss=float(loss.sum() / samples.sum()),
        clients=len(tested),
        samples=int(samples.sum()),
        untrained=untrained,
    )
