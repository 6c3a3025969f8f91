"""What an agent may do: functions from the unbounded outputs of its network to actions.

Exploration changes the logits, never the action, so an action cannot leave its set.
"""

from typing import ClassVar, Protocol

import torch
from torch import Tensor


class Action(Protocol):
    """Turns the logits of every slot into an action; masked slots take no part in it."""

    @property
    def outputs(self) -> int:
        """Logits, and numbers in the action, per slot."""

    def __call__(self, logits: Tensor, mask: Tensor) -> Tensor:
        """The action for logits of shape (..., slots, outputs) and a mask (..., slots) of the present slots."""


class Simplex:
    """Weights of the present slots that are not negative and sum to one: the softmax over them."""

    outputs: ClassVar = 1

    def __call__(self, logits: Tensor, mask: Tensor) -> Tensor:
        return logits.squeeze(-1).masked_fill(~mask, -torch.inf).softmax(-1)  # (..., slots)

    def random(self, mask: Tensor, stream: torch.Generator) -> Tensor:
        """Any weights, all equally likely: what to do before there is something to learn from."""
        # normalised exponential variables are uniform on the simplex
        return self(torch.empty(*mask.shape, 1).exponential_(generator=stream).log(), mask)
