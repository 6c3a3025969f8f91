"""The privacy that a run promises, as it is recorded."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal


@dataclass(frozen=True)
class Promise:
    """What differential privacy a run gives.

    Attributes
    ----------
    level : str
        ``client``: whether a client took part; ``record``: whether a sample was among a client's training data.
    epsilon : float
        The bound after ``rounds`` rounds; infinite without noise.
    delta : float
        The probability with which the bound need not hold.
    not_covered : tuple of str
        What leaves the clients without noise.
    """

    level: Literal["client", "record"]
    epsilon: float
    delta: float
    rounds: int
    not_covered: tuple[str, ...]

    @classmethod
    def read(cls, stored: Mapping[str, Any]) -> "Promise":
        """Read a promise that a run recorded."""
        return cls(**{**stored, "not_covered": tuple(stored["not_covered"])})

    @property
    def sentence(self) -> str:
        """The promise in one sentence, for tables and cards."""
        return (
            f"{self.level}-level differential privacy: epsilon = {self.epsilon:.3g} at delta = {self.delta:g} after "
            f"{self.rounds} rounds; not covered: {', '.join(self.not_covered)}"
        )
