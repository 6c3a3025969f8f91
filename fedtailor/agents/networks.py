"""The networks of agents."""

from collections.abc import Sequence
from itertools import pairwise
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor


class Network:
    """A function with learned parameters that can be saved, restored and averaged."""

    parameters: list[Tensor]

    def __call__(self, x: Tensor) -> Tensor:
        raise NotImplementedError

    def approach(self, other: "Network", keep: float) -> None:
        """Polyak averaging: own <- keep * own + (1 - keep) * other."""
        with torch.no_grad():
            for own, source in zip(self.parameters, other.parameters, strict=True):
                own.mul_(keep).add_(source, alpha=1 - keep)

    def state_dict(self) -> dict[str, Any]:
        return {"parameters": self.parameters}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        with torch.no_grad():
            for own, stored in zip(self.parameters, state["parameters"], strict=True):
                own.copy_(stored)


class MLP(Network):
    """Fully connected layers with ReLU between them.

    The initial weights are uniform within 1/sqrt(inputs), and within ``last`` in the last layer: the initial policy
    then hardly depends on the state, and initial values are nearly zero (Lillicrap et al., 2015, section 7). They
    are drawn from the stream, since ``torch.nn`` would draw from the global generator.
    """

    def __init__(
        self, inputs: int, hidden: Sequence[int], outputs: int, stream: torch.Generator, *, last: float = 3e-3
    ):
        self.parameters: list[Tensor] = []  # weight and bias of each layer
        for before, after in pairwise([inputs, *hidden]):
            self._add(before, after, before**-0.5, stream)
        self._add([inputs, *hidden][-1], outputs, last, stream)

    def _add(self, before: int, after: int, bound: float, stream: torch.Generator) -> None:
        for shape in ((after, before), (after,)):
            self.parameters.append(torch.empty(shape).uniform_(-bound, bound, generator=stream).requires_grad_())

    def __call__(self, x: Tensor) -> Tensor:
        *hidden, last = zip(self.parameters[::2], self.parameters[1::2], strict=True)
        for weight, bias in hidden:
            x = F.relu(F.linear(x, weight, bias))
        return F.linear(x, *last)


class PerSlot(Network):
    """One network for every slot, which also sees the mean over slots: for any number and order of slots.

    The input is that of `seen`. With e_k = relu(encoder(features of slot k)) and m the mean of e_k over the present
    slots, each slot has ``per_slot`` outputs f(e_k, m), which move with the slot, and all slots together have
    ``shared`` outputs g(m), which do not depend on the order. The output is flat, as that of an `MLP`: slot 0,
    slot 1, ..., then the shared outputs.
    """

    def __init__(self, features: int, hidden: Sequence[int], per_slot: int, shared: int, stream: torch.Generator):
        self.features = features
        *before, width = hidden
        self.encoder = MLP(features, before, width, stream, last=[features, *before][-1] ** -0.5)
        self.slot = MLP(2 * width, (width,), per_slot, stream) if per_slot else None
        self.shared = MLP(width, (width,), shared, stream) if shared else None
        self.parameters = [p for part in (self.encoder, self.slot, self.shared) if part for p in part.parameters]

    def __call__(self, x: Tensor) -> Tensor:
        slots = x.shape[-1] // (self.features + 1)
        state, mask = x.split_with_sizes([slots * self.features, slots], -1)
        mask = mask.unsqueeze(-1)  # (..., slots, 1)
        each = F.relu(self.encoder(state.reshape(*mask.shape[:-1], self.features)))  # (..., slots, width)
        mean = (each * mask).sum(-2) / mask.sum(-2)  # (..., width)
        outputs = []
        if self.slot:
            outputs.append(self.slot(torch.cat([each, mean.unsqueeze(-2).expand_as(each)], -1)).flatten(-2))
        if self.shared:
            outputs.append(self.shared(mean))
        return torch.cat(outputs, -1)  # (..., slots * per_slot + shared)


def seen(state: Tensor, mask: Tensor) -> Tensor:
    """The input of a network: the features, with zeros in empty slots, and the mask of the present slots.

    A state is (..., slots, features), a mask (..., slots).  # (..., slots * (features + 1))
    """
    return torch.cat([state.masked_fill(~mask.unsqueeze(-1), 0.0).flatten(-2), mask.to(state.dtype)], -1)
