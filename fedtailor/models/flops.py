"""The multiply-adds of a forward pass, counted from its layers."""

from dataclasses import dataclass
from typing import Any

from torch import Tensor, nn
from torch.nn.modules.conv import _ConvNd
from torch.nn.modules.module import register_module_forward_hook

from fedtailor.models.catalogue import CATALOGUE
from fedtailor.models.evaluating import evaluating
from fedtailor.models.inputs import Inputs
from fedtailor.models.layers import LastState, MeanEmbedding
from fedtailor.models.network import NORMALISATION, Network, build
from fedtailor.models.settings import ModelSettings

TRAINING = 3  # forward passes that a forward and a backward pass cost together
COUNTED = (*NORMALISATION, nn.Linear, _ConvNd, MeanEmbedding, LastState)


@dataclass(frozen=True)
class Card:
    """A line of `fedtailor models`."""

    name: str
    description: str
    inputs: Inputs
    parameters: int
    flops: int


def cards() -> list[Card]:
    """All networks of the catalogue, each at its typical inputs; size families also at other inputs."""
    made = []
    for name, entry in CATALOGUE.items():
        for inputs in (*entry.others, entry.typical):
            network = build(ModelSettings(name=name), inputs, seed=0)
            made.append(Card(name, entry.description, inputs, network.size, count_flops(network, inputs)))
    return made


def count_flops(network: Network, inputs: Inputs) -> int:
    """Multiply-adds of one sample's forward pass through convolutions, linear, recurrent and normalisation layers.

    Biases, activations and pools are not counted. A normalisation is one multiply-add per element, an
    embedding of a text one addition per token and dimension; in a recurrent layer, looking up an embedding is none.
    """
    with evaluating(network.module), WorkCounter() as work:
        network(inputs.example(samples=1))
    return work.total


class WorkCounter:
    """Counts the multiply-adds of all networks while it is open.

    Work that leads to gradients counts `TRAINING` times: a backward pass costs two forward passes.
    """

    def __init__(self) -> None:
        self.total = 0

    def __enter__(self) -> "WorkCounter":
        self._hook = register_module_forward_hook(self._count, with_kwargs=True)
        return self

    def __exit__(self, *_: object) -> None:
        self._hook.remove()

    def _count(self, layer: nn.Module, given: tuple[Any, ...], named: dict[str, Any], output: Any) -> None:
        if isinstance(layer, COUNTED):
            work = _multiply_adds(layer, (*given, *named.values())[0], output)
            self.total += work * TRAINING if output.requires_grad else work


def _multiply_adds(layer: nn.Module, given: Tensor, output: Tensor) -> int:
    match layer:
        case nn.Linear():
            return output.numel() * layer.in_features
        case nn.ConvTranspose1d() | nn.ConvTranspose2d() | nn.ConvTranspose3d():
            return given.numel() * layer.weight[0].numel()
        case _ConvNd():
            return output.numel() * layer.weight[0].numel()  # per output: input channels of its group x kernel
        case MeanEmbedding():
            return given.numel() * layer.embedding_dim
        case LastState():
            return given.numel() * layer.work
        case _:
            return output.numel()
