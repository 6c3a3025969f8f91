"""Features: the output of a network's body. Head training computes them once."""

import torch
from torch import Tensor, nn

from fedtailor.models import Network
from fedtailor.models.evaluating import evaluating

# Fastest for the CNNs here. It is fixed because the exact result of an evaluation depends on it.
CHUNK = 128


def features(network: Network, x: Tensor, batch_statistics: bool = False) -> Tensor:
    """The features of every sample in evaluation mode, without gradients. The network does not change.

    With ``batch_statistics``, layers normalise by the statistics of the samples of a chunk, as in training.
    """
    module = network.module.to(memory_format=torch.channels_last)  # type: ignore[call-overload]
    with evaluating(module):
        if not batch_statistics or not network.statistics or len(x) < 2:
            return torch.cat([network.features(inputs) for inputs in torch.split(x, CHUNK)])
        kept = network.weights()
        for layer, tensors in network.layers.items():
            module.get_submodule(layer).training = any(name in network.statistics for name in tensors)
        found = torch.cat([network.features(inputs) for inputs in torch.tensor_split(x, -(-len(x) // CHUNK))])
        network.load(kept)
        return found


class FeatureCache:
    """Keeps the latest features, and computes them again when the body or the inputs have changed."""

    def __init__(self) -> None:
        self._inputs: Tensor | None = None
        self._body: dict[str, Tensor] = {}
        self._found: Tensor | None = None

    def features(self, network: Network, x: Tensor) -> Tensor:
        """The features of every sample in evaluation mode."""
        body = network.weights("body") | network.weights("adapter")
        same = x is self._inputs and all(torch.equal(tensor, self._body[name]) for name, tensor in body.items())
        if self._found is None or not same:
            self._inputs, self._body, self._found = x, body, features(network, x)
        return self._found


def cacheable(network: Network) -> bool:
    """Whether a frozen body gives the same features in every pass."""
    head = tuple(f"{layer}." for layer in network.head_layers)
    return network.splittable and not any(
        _varies(module) and not f"{name}.".startswith(head) for name, module in network.module.named_modules()
    )


def _varies(module: nn.Module) -> bool:
    """Whether a frozen layer's output is random, or depends on the other samples of its batch."""
    if isinstance(module, nn.modules.batchnorm._BatchNorm):
        return not module.track_running_stats
    return isinstance(module, nn.RReLU) or (isinstance(module, nn.modules.dropout._DropoutNd) and module.p > 0)
