"""Trials: runs on training data alone, scored on validation data, that a search compares."""

from fedtailor.runs.trials.holdout import held_out
from fedtailor.runs.trials.runner import SearchCallback, TrialRunner
from fedtailor.runs.trials.searched import Searched
from fedtailor.runs.trials.trial import Reading, Trial

__all__ = ["Reading", "SearchCallback", "Searched", "Trial", "TrialRunner", "held_out"]
