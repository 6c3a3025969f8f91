"""The local training loop and evaluation."""

from fedtailor.learning.loop import Batch, Objective, Score, Trace, descend, evaluate, outcomes, train
from fedtailor.learning.settings import TrainingSettings

__all__ = [
    "Batch",
    "Objective",
    "Score",
    "Trace",
    "TrainingSettings",
    "descend",
    "evaluate",
    "outcomes",
    "train",
]
