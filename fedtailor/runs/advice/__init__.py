"""Searches for the method that suits a federation, on validation data."""

from fedtailor.runs.advice.advising import advise, default_folder
from fedtailor.runs.advice.results import Advice, Standing
from fedtailor.runs.advice.rules import LeftOut, Needs
from fedtailor.runs.advice.traits import Traits

__all__ = ["Advice", "LeftOut", "Needs", "Standing", "Traits", "advise", "default_folder"]
