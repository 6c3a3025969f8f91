"""What a forward pass costs, counted and not guessed."""

from dataclasses import dataclass

from torch import Tensor, nn
from torch.nn.modules.conv import _ConvNd

from fedtailor.models.catalogue import CATALOGUE
from fedtailor.models.evaluating import evaluating
from fedtailor.models.inputs import Inputs
from fedtailor.models.layers import MeanEmbedding
from fedtailor.models.network import NORMALISATION, Network, build
from fedtailor.models.settings import ModelSettings


@dataclass(frozen=True)
class Card:
    """A line of `fedtailor models`."""

    name: str
    description: str
    inputs: Inputs
    parameters: int
    flops: int


def cards() -> list[Card]:
    """All networks of the catalogue, each at the inputs that are typical for it."""
    made = []
    for name, entry in CATALOGUE.items():
        network = build(ModelSettings(name=name), entry.typical, seed=0)
        flops = count_flops(network, entry.typical)
        made.append(Card(name, entry.description, entry.typical, network.size, flops))
    return made


def count_flops(network: Network, inputs: Inputs) -> int:
    """Multiply-adds of one sample's forward pass through convolutions, linear layers and normalisation.

    Biases, activations and pools are not counted. A normalisation is one multiply-add per element, an
    embedding of a text one addition per token and dimension.
    """
    total = 0

    def count(layer: nn.Module, given: tuple[Tensor, ...], output: Tensor) -> None:
        nonlocal total
        total += _multiply_adds(layer, given[0], output)

    counted = (*NORMALISATION, nn.Linear, _ConvNd, MeanEmbedding)
    hooks = [layer.register_forward_hook(count) for layer in network.module.modules() if isinstance(layer, counted)]
    try:
        with evaluating(network.module):
            network(inputs.example(samples=1))
    finally:
        for hook in hooks:
            hook.remove()
    return total


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
        case _:
            return output.numel()
