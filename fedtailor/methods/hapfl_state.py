"""The state of HAPFL's server."""

from dataclasses import dataclass, field

from fedtailor.parties import State
from fedtailor.weights import Weights


@dataclass
class Allocation(State):
    """The sizes and epochs of the clients of a round, in the order of their assessed times."""

    seconds: dict[int, float]  # T^d
    sizes: dict[int, str]  # a
    epochs: dict[int, int]  # tau
    training: dict[int, float] = field(default_factory=dict)  # T^l of the clients that answered


@dataclass
class Kept(State):
    """What the server keeps besides the LiteModel: ``server.state["hapfl"]``."""

    lite: int  # multiply-adds of the LiteModel's forward pass per sample
    flops: dict[str, int]  # the same for both models, by size; M(a) is their ratio to `lite`
    sizes: dict[str, Weights]  # the model of every size

    @property
    def ratios(self) -> dict[str, float]:
        """M(a) of every size."""
        return {name: flops / self.lite for name, flops in self.flops.items()}


@dataclass
class Timeline(State):
    """The allocations of the first and the latest round: ``server.state["timeline"]``."""

    first: Allocation | None = None
    latest: Allocation | None = None
