"""Trials: runs on training data alone, scored on validation data, that a search compares."""

from fedtailor.runs.trials.bench import Bench, Watcher
from fedtailor.runs.trials.holdout import held_out
from fedtailor.runs.trials.searched import Searched
from fedtailor.runs.trials.trial import Reading, Trial

__all__ = ["Bench", "Reading", "Searched", "Trial", "Watcher", "held_out"]
