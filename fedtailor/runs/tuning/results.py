"""Typed results of a search for settings."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from fedtailor.errors import UserError
from fedtailor.runs.settings import Experiment
from fedtailor.runs.trials import Searched
from fedtailor.runs.tuning.space import Dimension


@dataclass(frozen=True)
class TrialRow:
    """A trial: its settings and what it reached on validation data.

    Attributes
    ----------
    number : int
        Its number; trial 0 has the settings of the experiment.
    values : mapping of str to any
        The settings that the search chose, by dotted key.
    state : str
        ``complete``; ``stopped``: it was below the median, and ended early; ``failed``: it has no usable model.
    value : float or None
        The headline measure at the end of a complete trial, the mean over seeds.
    curve : mapping of int to float
        The measure of the held models at the rounds at which trials are compared.
    rounds : int
        The rounds that it ran.
    seconds : float
        Measured time of its rounds.
    failure : str
        Why it failed.
    """

    number: int
    values: Mapping[str, Any]
    state: str
    value: float | None
    curve: Mapping[int, float]
    rounds: int
    seconds: float
    failure: str = ""


@dataclass(frozen=True)
class Tuned:
    """The search for the settings of one method."""

    method: str
    space: tuple[Dimension, ...]
    trials: tuple[TrialRow, ...]
    settings: Experiment  # those of the best trial
    best: TrialRow
    importance: Mapping[str, float] = field(default_factory=dict)  # shares of settings in the differences of trials

    @property
    def own(self) -> TrialRow:
        """The trial with the settings of the experiment."""
        return self.trials[0]

    def as_dict(self) -> dict[str, Any]:
        return {
            "method": self.method,
            "over": [dimension.as_text() for dimension in self.space],
            "best": vars(self.best),
            "importance": dict(self.importance),
            "trials": [vars(trial) for trial in self.trials],
        }


@dataclass(frozen=True, kw_only=True)
class Tuning(Searched):
    """A finished search for settings; its further attributes are those of every search.

    Attributes
    ----------
    methods : tuple of Tuned
        The methods, best first. Every trial is the mean over the seeds.
    written : mapping of str to Path
        By method, the TOML file with its best settings.
    """

    methods: tuple[Tuned, ...]
    written: Mapping[str, Path]

    OBJECTS = ("methods", "written")

    def of(self, method: str | None = None) -> Tuned:
        """The search of a method, by default the best one."""
        for one in self.methods:
            if method in (None, one.method):
                return one
        raise UserError(f"{self.folder} does not tune {method!r}: {', '.join(one.method for one in self.methods)}")

    @property
    def best(self) -> Experiment:
        """The best settings that were found, ready to run."""
        return self.of().settings

    def as_dict(self) -> dict[str, Any]:
        """The search as one JSON document."""
        return {
            **self.plain(),
            "written": {method: str(path) for method, path in self.written.items()},
            "methods": [one.as_dict() for one in self.methods],
        }
