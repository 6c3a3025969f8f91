"""What an agent may do: the kinds of action that a decision can be made of.

A kind turns the unbounded outputs of a network into numbers for every slot, or into one number for all of them.
Exploration changes the outputs, never the action, so an action cannot leave its set. Slots that are not taken take
no part in it.
"""

from dataclasses import dataclass
from typing import ClassVar, Protocol

import torch
from torch import Tensor

from fedtailor.agents.heads import Head, IntegerHead, MultiCategoricalHead, SimplexHead

BOUND = 5.0  # of the logits that numbers in [-1, 1] stand for: two weights differ by e^10 at most


class Action(Protocol):
    """Turns the logits of every slot into an action; masked slots take no part in it."""

    @property
    def outputs(self) -> int:
        """Logits, and numbers in the action, per slot."""

    def __call__(self, logits: Tensor, mask: Tensor) -> Tensor:
        """The action for logits of shape (..., slots, outputs) and a mask (..., slots) of the present slots."""


class Kind(Protocol):
    """A kind of action in a declared decision."""

    @property
    def per_slot(self) -> bool:
        """Whether every slot has numbers of its own."""

    def head(self) -> Head:
        """The distribution that a stochastic policy draws it from."""

    def neutral(self, mask: Tensor) -> Tensor:
        """What is done where nobody decides."""

    def random(self, mask: Tensor, stream: torch.Generator) -> Tensor:
        """Any action, before there is something to learn from."""

    def units(self, slots: int) -> int:
        """How many numbers in [-1, 1] stand for an action."""

    def from_units(self, numbers: Tensor, mask: Tensor) -> Tensor:
        """The action that numbers in [-1, 1] stand for: what a gymnasium environment is given."""

    def describe(self) -> str:
        """What two runs must agree on to share a policy."""


@dataclass(frozen=True)
class Simplex:
    """Weights of the present slots that are not negative and sum to one: the softmax over them."""

    deviation: float = 0.5  # of the logits of a stochastic policy at the start
    unit: float = 1.0  # factor of its logits: a small unit makes weights that learn slowly
    bound: float = BOUND
    outputs: ClassVar[int] = 1
    per_slot: ClassVar[bool] = True

    def __call__(self, logits: Tensor, mask: Tensor) -> Tensor:
        return logits.squeeze(-1).masked_fill(~mask, -torch.inf).softmax(-1)  # (..., slots)

    def head(self) -> Head:
        return SimplexHead(self.deviation, unit=self.unit)

    def neutral(self, mask: Tensor) -> Tensor:
        """Equal weights."""
        return mask.float() / mask.sum()

    def random(self, mask: Tensor, stream: torch.Generator) -> Tensor:
        """Any weights, all equally likely."""
        # normalised exponential variables are uniform on the simplex
        return self(torch.empty(*mask.shape, 1).exponential_(generator=stream).log(), mask)

    def units(self, slots: int) -> int:
        return slots

    def from_units(self, numbers: Tensor, mask: Tensor) -> Tensor:
        """The softmax of ``bound`` times the numbers."""
        return self(self.bound * numbers[:, None], mask)

    def describe(self) -> str:
        return "weights"


@dataclass(frozen=True)
class Integer:
    """One whole number from ``low`` to ``high`` for all slots; twice as much counts as one step up, at any size."""

    low: int
    high: int
    usual: int | None = None  # where nobody decides; the smallest without one
    per_slot: ClassVar[bool] = False

    def head(self) -> Head:
        return IntegerHead(self.low, self.high, ratios=True)

    def neutral(self, mask: Tensor) -> Tensor:
        return torch.tensor([float(self.low if self.usual is None else self.usual)])

    def random(self, mask: Tensor, stream: torch.Generator) -> Tensor:
        return torch.randint(self.low, self.high + 1, (1,), generator=stream).float()

    def units(self, slots: int) -> int:
        return 1

    def from_units(self, numbers: Tensor, mask: Tensor) -> Tensor:
        """From the smallest to the largest, all for equal parts of [-1, 1]."""
        return _whole(numbers, self.low, self.high)

    def describe(self) -> str:
        return f"{self.low} to {self.high}"


@dataclass(frozen=True)
class Categorical:
    """One of ``options`` for every present slot: the numbers 0, ..., options - 1."""

    options: int
    usual: int = 0  # where nobody decides
    per_slot: ClassVar[bool] = True

    def head(self) -> Head:
        return MultiCategoricalHead(self.options)

    def neutral(self, mask: Tensor) -> Tensor:
        return self.usual * mask.float()

    def random(self, mask: Tensor, stream: torch.Generator) -> Tensor:
        return torch.randint(self.options, mask.shape, generator=stream).float() * mask

    def units(self, slots: int) -> int:
        return slots

    def from_units(self, numbers: Tensor, mask: Tensor) -> Tensor:
        """From the first option to the last, all for equal parts of [-1, 1]."""
        return _whole(numbers, 0, self.options - 1) * mask

    def describe(self) -> str:
        return f"one of {self.options}"


@dataclass(frozen=True)
class MeanDeviation:
    """A mean in (0, span) and a deviation in (0, beta * mean) for every slot; zeros in empty slots."""

    span: float
    beta: float
    outputs: ClassVar[int] = 2
    per_slot: ClassVar[bool] = True

    def __call__(self, logits: Tensor, mask: Tensor) -> Tensor:
        means = self.span * logits[..., 0].sigmoid()
        deviations = self.beta * means * logits[..., 1].sigmoid()
        return torch.stack([means, deviations], -1).masked_fill(~mask.unsqueeze(-1), 0.0)  # (..., slots, 2)

    def head(self) -> Head:
        raise NotImplementedError("means and deviations need an agent whose actions are functions of its logits: DDPG")

    def neutral(self, mask: Tensor) -> Tensor:
        """The same mean for all, no deviation."""
        return torch.stack([self.span / 2 * mask.float(), torch.zeros(mask.shape)], -1)

    def random(self, mask: Tensor, stream: torch.Generator) -> Tensor:
        return self(torch.randn(*mask.shape, 2, generator=stream), mask)

    def units(self, slots: int) -> int:
        return 2 * slots

    def from_units(self, numbers: Tensor, mask: Tensor) -> Tensor:
        """Two logits of every slot, `BOUND` times the numbers."""
        return self(BOUND * numbers.reshape(-1, 2), mask)

    def describe(self) -> str:
        return f"means up to {self.span:g} with deviations up to {self.beta:g} of them"


def _whole(numbers: Tensor, low: int, high: int) -> Tensor:
    """The whole numbers from ``low`` to ``high`` that numbers in [-1, 1] stand for."""
    return (low + (high + 1 - low) * (numbers + 1) / 2).floor().clamp(max=high)
