"""The time that clients take: virtual in a simulation, measured in a deployment."""

from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from fedtailor.parties import Moment


@dataclass(frozen=True)
class Duration:
    """The seconds that a client's task takes."""

    compute: float = 0.0
    transfer: float = 0.0

    @property
    def seconds(self) -> float:
        return self.compute + self.transfer

    def __add__(self, other: "Duration") -> "Duration":
        return Duration(self.compute + other.compute, self.transfer + other.transfer)


class Clock(Protocol):
    """The seconds that tasks take on the clients' devices, in one round."""

    def at(self, moment: "Moment") -> "Clock":
        """The clock in another round."""
        ...

    def epoch_time(self, client: int, flops: float) -> float:
        """Seconds of one epoch on the client's training data.

        ``flops`` are the multiply-adds of a forward pass per sample, as `fedtailor.models.count_flops` counts them.
        """
        ...

    def task_time(self, client: int, work: float, down: int, up: int, task: str = "fit") -> Duration:
        """Seconds of a task with ``work`` multiply-adds and ``down`` and ``up`` bytes; ``task``: its `Ask`."""
        ...
