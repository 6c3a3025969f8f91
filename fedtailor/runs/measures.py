"""From counts per client to the numbers of a table."""

import math
from collections.abc import Mapping
from typing import Any

import numpy as np

from fedtailor.learning import Score


def measures(scores: Mapping[int, Score], untrained: int = 0) -> dict[str, Any]:
    """Accuracy per client (mean, deviation, worst, worst tenth) and pooled over samples, and the losses.

    Clients without test samples do not count.
    """
    tested = [score for _, score in sorted(scores.items()) if score.samples > 0]
    if not tested:
        return {
            **dict.fromkeys(("accuracy", "pooled", "deviation", "worst", "worst_tenth", "loss", "pooled_loss")),
            "clients": 0,
            "samples": 0,
            "untrained": untrained,
        }
    correct = np.array([score.correct for score in tested], dtype=np.float64)
    loss = np.array([score.loss for score in tested], dtype=np.float64)
    samples = np.array([score.samples for score in tested], dtype=np.float64)
    accuracy = correct / samples
    tenth = np.sort(accuracy)[: math.ceil(len(accuracy) / 10)]
    return {
        "accuracy": float(accuracy.mean()),
        "pooled": float(correct.sum() / samples.sum()),
        "deviation": float(accuracy.std()),
        "worst": float(accuracy.min()),
        "worst_tenth": float(tenth.mean()),
        "loss": float((loss / samples).mean()),
        "pooled_loss": float(loss.sum() / samples.sum()),
        "clients": len(tested),
        "samples": int(samples.sum()),
        "untrained": untrained,
    }
