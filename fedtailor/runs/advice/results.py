"""Typed results of a search for a method."""

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from fedtailor.errors import UserError
from fedtailor.runs.advice.rules import LeftOut
from fedtailor.runs.advice.traits import Traits
from fedtailor.runs.settings import Experiment
from fedtailor.runs.statistics import Difference, Wins, decided
from fedtailor.runs.trials import Searched


@dataclass(frozen=True)
class Standing:
    """How far a method came, with the settings that served it best.

    Attributes
    ----------
    method : str
        Its name.
    changes : mapping of str to any
        The settings that differ from the experiment's own, by dotted key.
    last : bool
        Whether it took part in the last stage: all rounds, on seeds that no choice was made on.
    rounds : int
        The rounds of its longest trials.
    value : float or None
        The headline on validation data in those trials, the mean over seeds; None if they failed.
    values : mapping of int to float
        The same by seed.
    difference : Difference or None
        The recommended method minus this one, paired by seed; None if they have no trials of the same length.
    wins : Wins or None
        The clients, over all seeds, for which the recommended method is better, equal or worse.
    megabytes, work, seconds : float
        What clients received and sent in such a run; passes over the data, compared with FedAvg; measured time.
    failure : str
        Why there is no value.
    """

    method: str
    changes: Mapping[str, Any]
    last: bool
    rounds: int
    value: float | None
    values: Mapping[int, float]
    difference: Difference | None
    wins: Wins | None
    megabytes: float
    work: float
    seconds: float
    failure: str = ""

    def as_dict(self) -> dict[str, Any]:
        """The standing with one value per key; its difference is that of the recommended method to it."""
        plain = {key: value for key, value in vars(self).items() if key not in ("difference", "wins")}
        return {**plain, **decided(self.difference, self.wins)}


@dataclass(frozen=True, kw_only=True)
class Advice(Searched):
    """The answer to: which method for this federation? Its further attributes are those of every search.

    Attributes
    ----------
    choosing : tuple of int
        The seeds of the stages before the last, for which ``seeds`` are.
    traits : Traits
        What is known about the federation.
    standings : tuple of Standing
        Every candidate, best first.
    left_out : tuple of LeftOut
        The methods that were no candidates, and why.
    reasons : tuple of str
        The answer in plain words.
    best : Experiment
        The recommended settings, ready to run.
    written : Path
        The TOML file with them.
    """

    choosing: tuple[int, ...]
    traits: Traits
    standings: tuple[Standing, ...]
    left_out: tuple[LeftOut, ...]
    reasons: tuple[str, ...]
    best: Experiment
    written: Path

    OBJECTS = ("traits", "standings", "left_out", "best", "written")

    @property
    def method(self) -> str:
        """The recommended method."""
        return self.standings[0].method

    def of(self, method: str) -> Standing:
        """The standing of a method."""
        for one in self.standings:
            if one.method == method:
                return one
        for other in self.left_out:
            if other.method == method:
                raise UserError(f"{method} was left out: {other.reason}")
        raise UserError(f"{self.folder} does not compare {method!r}")

    def as_dict(self) -> dict[str, Any]:
        """The advice as one JSON document."""
        return {
            **self.plain(),
            "method": self.method,
            "written": str(self.written),
            "best": self.best.as_dict(),
            "traits": asdict(self.traits),
            "standings": [one.as_dict() for one in self.standings],
            "left_out": [asdict(one) for one in self.left_out],
        }
