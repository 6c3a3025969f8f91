"""What HAPFL's server keeps: its models and their work, and the allocations of rounds."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from fedtailor.models import TRAINING, Network, count_flops
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

    @classmethod
    def of(cls, network: Network, family: Mapping[str, Network]) -> "Kept":
        """The initial models and their work, for a LiteModel and the networks of all sizes."""
        lite = count_flops(network, network.inputs)
        flops = {name: lite + count_flops(local, local.inputs) for name, local in family.items()}
        return cls(max(lite, 1), flops, {name: local.weights() for name, local in family.items()})

    @property
    def ratios(self) -> dict[str, float]:
        """M(a) of every size."""
        return {name: flops / self.lite for name, flops in self.flops.items()}

    def assessing(self, samples: float) -> float:
        """Multiply-adds of an epoch of the LiteModel."""
        return TRAINING * self.lite * samples

    def training(self, size: str, samples: int, epochs: int) -> float:
        """Multiply-adds of epochs of both models."""
        return TRAINING * self.flops[size] * samples * epochs


@dataclass
class Timeline(State):
    """The allocations of the first and the latest round: ``server.state["timeline"]``."""

    first: Allocation | None = None
    latest: Allocation | None = None
