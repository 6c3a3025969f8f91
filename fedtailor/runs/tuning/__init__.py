"""Searches for the settings of an experiment, on validation data."""

from fedtailor.runs.tuning.results import TrialRow, Tuned, Tuning
from fedtailor.runs.tuning.tuning import default_folder, tune

__all__ = ["TrialRow", "Tuned", "Tuning", "default_folder", "tune"]
