"""Computation in bf16 with fp32 master weights.

A network that computes in bf16 keeps its weights in fp32: the *masters*. Its parameters become bf16 copies of them for
a while; gradients of the copies move the masters. Normalisation with running statistics stays in fp32 as a whole, and
so do all buffers.
"""

from collections.abc import Iterator
from contextlib import contextmanager

import torch
from torch import Tensor, nn

from fedtailor.models.network import Network


@contextmanager
def in_bf16(network: Network) -> Iterator[None]:
    """Let the network compute in bf16 in the block; its tensors, as ``weights`` and ``load`` see them, stay in fp32.

    Examples
    --------
    >>> with in_bf16(network):
    ...     outputs = network(inputs)  # computed in bf16, returned in fp32
    """
    masters: dict[int, nn.Parameter] = {}
    halved = [value for value in _parameters(network.module) if value.dtype == torch.float32]
    try:
        for parameter in halved:
            masters[id(parameter)] = nn.Parameter(parameter.data, requires_grad=False)
            parameter.data = _half(parameter.data)
        for one in network.members:
            one.masters, one.half = masters, True
        yield
    finally:
        for one in network.members:
            one.masters, one.half = {}, False
        for parameter in halved:
            if id(parameter) in masters:
                parameter.data = masters[id(parameter)].data


def _parameters(module: nn.Module) -> Iterator[nn.Parameter]:
    """All parameters except those of normalisation with running statistics, each once."""
    # torch normalises a bf16 batch by fp32 statistics only with fp32 parameters.
    fixed = {
        id(parameter)
        for layer in module.modules()
        if isinstance(layer, nn.modules.batchnorm._NormBase)
        for parameter in layer.parameters()
    }
    return (parameter for parameter in module.parameters() if id(parameter) not in fixed)


def _half(tensor: Tensor) -> Tensor:
    """A bf16 copy with the same memory layout."""
    return torch.empty_like(tensor, dtype=torch.bfloat16).copy_(tensor)
