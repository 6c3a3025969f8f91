"""The local training loop and evaluation."""

from fedtailor.learning.evaluation import evaluate, evaluate_each, outcomes
from fedtailor.learning.features import FeatureCache, features
from fedtailor.learning.loop import Trace, train
from fedtailor.learning.noise import Noise, seeded_noise, system_noise
from fedtailor.learning.objectives import Criterion
from fedtailor.learning.optimisers import optimiser, reach
from fedtailor.learning.options import Objective, TrainOptions, keywords_of
from fedtailor.learning.private import sample_rate, why_not_private
from fedtailor.learning.settings import TrainingSettings
from fedtailor.learning.steps import Batch, descend
from fedtailor.records import Score

__all__ = [
    "Batch",
    "Criterion",
    "FeatureCache",
    "Noise",
    "Objective",
    "Score",
    "Trace",
    "TrainOptions",
    "TrainingSettings",
    "descend",
    "evaluate",
    "evaluate_each",
    "features",
    "keywords_of",
    "optimiser",
    "outcomes",
    "reach",
    "sample_rate",
    "seeded_noise",
    "system_noise",
    "train",
    "why_not_private",
]
