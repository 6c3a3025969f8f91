"""The local training loop and evaluation."""

from fedtailor.learning.loop import (
    Batch,
    FeatureCache,
    Objective,
    Score,
    Trace,
    descend,
    evaluate,
    features,
    outcomes,
    train,
)
from fedtailor.learning.optimisers import optimiser, reach
from fedtailor.learning.settings import TrainingSettings

__all__ = [
    "Batch",
    "FeatureCache",
    "Objective",
    "Score",
    "Trace",
    "TrainingSettings",
    "descend",
    "evaluate",
    "features",
    "optimiser",
    "outcomes",
    "reach",
    "train",
]
