"""The state of HAPFL's server, and the form of its clients' replies."""

from dataclasses import dataclass, field

from fedtailor.models import TRAINING, ModelFamily, Network, build, model_family
from fedtailor.parties import Range, Schema, State, Tensors
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
    def work(self) -> int:
        """Multiply-adds of a step of the LiteModel with one sample."""
        return TRAINING * self.lite

    @property
    def ratios(self) -> dict[str, float]:
        """M(a) of every size."""
        return {name: flops / self.lite for name, flops in self.flops.items()}


@dataclass
class Timeline(State):
    """The allocations of the first and the latest round: ``server.state["timeline"]``."""

    first: Allocation | None = None
    latest: Allocation | None = None


ASSESSED = Schema(numbers={"samples": Range("train", "train", whole=True)})
NUMBERS = {"entropy": Range(0), "lite accuracy": Range(0, 1), "local accuracy": Range(0, 1)}


def both_models(sizes: ModelFamily, network: Network, shared: frozenset[str]) -> Schema:
    """A reply with the LiteModel and the model of one of these sizes, without running statistics where they stay."""
    family = {name: build(model, network.inputs, 0) for name, model in model_family(sizes).items()}
    groups = {
        name: Tensors(frozenset(local.names), optional=True, may_lack=local.statistics)
        for name, local in (family or {"local": network}).items()
    }
    return Schema({"model": Tensors(shared), **groups}, NUMBERS)
