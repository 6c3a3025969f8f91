"""What HAPFL's server keeps."""

from dataclasses import dataclass, field

from fedtailor.parties import State
from fedtailor.weights import Weights


@dataclass
class Allocation(State):
    """What the clients of a round are given, in the order of their assessed times."""

    seconds: dict[int, float]  # T^d
    sizes: dict[int, str]  # a
    epochs: dict[int, int]  # tau
    training: dict[int, float] = field(default_factory=dict)  # T^l of those that answered


@dataclass
class Kept(State):
    """What the server keeps beside the LiteModel: ``server.state["hapfl"]``."""

    lite: int  # multiply-adds of a sample's forward pass through the LiteModel
    flops: dict[str, int]  # and through both models, for every size; M(a) is their ratio to the LiteModel's
    sizes: dict[str, Weights]  # the model of every size

    @property
    def ratios(self) -> dict[str, float]:
        """M(a) of every size."""
        return {name: flops / self.lite for name, flops in self.flops.items()}


@dataclass
class Timeline(State):
    """The first and the latest round: ``server.state["timeline"]``."""

    first: Allocation | None = None
    latest: Allocation | None = None
