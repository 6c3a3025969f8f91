"""The local training loop and evaluation."""

from fedtailor.learning.loop import Score, Trace, evaluate, outcomes, train
from fedtailor.learning.settings import TrainingSettings

__all__ = ["Score", "Trace", "TrainingSettings", "evaluate", "outcomes", "train"]
