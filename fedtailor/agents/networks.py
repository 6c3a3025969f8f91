"""The networks of agents."""

from collections.abc import Sequence
from itertools import pairwise
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor


class MLP:
    """Fully connected layers with ReLU between them.

    The weights are drawn from the stream (``torch.nn`` would draw from the global generator): uniformly within
    1/sqrt(inputs), those of the last layer within 0.003, so that the first policy is nearly the same everywhere
    and the first values are nearly zero (Lillicrap et al., 2015, section 7).
    """

    def __init__(self, inputs: int, hidden: Sequence[int], outputs: int, stream: torch.Generator):
        self.parameters: list[Tensor] = []  # weight and bias of each layer
        for before, after in pairwise([inputs, *hidden]):
            self._add(before, after, before**-0.5, stream)
        self._add([inputs, *hidden][-1], outputs, 3e-3, stream)

    def _add(self, before: int, after: int, bound: float, stream: torch.Generator) -> None:
        for shape in ((after, before), (after,)):
            self.parameters.append(torch.empty(shape).uniform_(-bound, bound, generator=stream).requires_grad_())

    def __call__(self, x: Tensor) -> Tensor:
        *hidden, last = zip(self.parameters[::2], self.parameters[1::2], strict=True)
        for weight, bias in hidden:
            x = F.relu(F.linear(x, weight, bias))
        return F.linear(x, *last)

    def approach(self, other: "MLP", keep: float) -> None:
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
