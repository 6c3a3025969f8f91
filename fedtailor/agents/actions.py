"""Kinds of action that a decision can consist of.

A kind turns the unbounded outputs of a network into numbers for every slot, or into one number for all slots.
Exploration changes the outputs, never the action, so every action is valid. Empty slots take no part in it.
"""

from dataclasses import dataclass
from typing import ClassVar, Protocol

import torch
from torch import Tensor

from fedtailor.agents.heads import Head, IntegerHead, MultiCategoricalHead, SimplexHead

BOUND = 5.0  # numbers in [-1, 1] become logits up to this bound: two weights differ by a factor of e^10 at most


class Action(Protocol):
    """Turns the logits of every slot into an action; empty slots take no part in it."""

    @property
    def outputs(self) -> int:
        """Number of logits per slot, and of numbers per slot in the action."""

    def __call__(self, logits: Tensor, mask: Tensor) -> Tensor:
        """The action for logits of shape (..., slots, outputs) and a mask (..., slots) of the present slots."""


class Kind(Protocol):
    """A kind of action in a declared decision."""

    @property
    def per_slot(self) -> bool:
        """Whether every slot has numbers of its own."""

    def head(self) -> Head:
        """The distribution from which a stochastic policy draws the action."""

    def neutral(self, mask: Tensor) -> Tensor:
        """The default action, used when no agent decides."""

    def random(self, mask: Tensor, stream: torch.Generator) -> Tensor:
        """A random action, for rounds in which the agent cannot decide yet."""

    def units(self, slots: int) -> int:
        """The number of values in [-1, 1] that encode an action."""

    def from_units(self, numbers: Tensor, mask: Tensor) -> Tensor:
        """Decode an action from values in [-1, 1], as a gymnasium environment receives it."""

    def describe(self) -> str:
        """A text that must be equal in two runs that share a policy."""


@dataclass(frozen=True)
class Simplex:
    """Non-negative weights of the present slots that sum to one: a softmax."""

    deviation: float = 0.5  # initial deviation of a stochastic policy's logits
    unit: float = 1.0  # factor of a stochastic policy's logits: with a small unit, weights learn slowly
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
        """Draws from (0, 1], divided by their sum."""
        return self((1 - torch.rand(*mask.shape, 1, generator=stream)).log(), mask)

    def units(self, slots: int) -> int:
        return slots

    def from_units(self, numbers: Tensor, mask: Tensor) -> Tensor:
        """The softmax of ``bound`` times the numbers."""
        return self(self.bound * numbers[:, None], mask)

    def describe(self) -> str:
        return "weights" if self.unit == 1 else f"weights in units of {self.unit:g}"


@dataclass(frozen=True)
class Integer:
    """One integer from ``low`` to ``high`` for all slots, on a logarithmic scale."""

    low: int
    high: int
    usual: int | None = None  # the default action; None: `low`
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
        """Divide [-1, 1] into equal parts, one for each integer from ``low`` to ``high``."""
        return _integers(numbers, self.low, self.high)

    def describe(self) -> str:
        return f"{self.low} to {self.high}"


@dataclass(frozen=True)
class Categorical:
    """One of ``options`` for every present slot: the numbers 0, ..., options - 1."""

    options: int
    usual: int = 0  # the default action
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
        """Divide [-1, 1] into equal parts, one for each option."""
        return _integers(numbers, 0, self.options - 1) * mask

    def describe(self) -> str:
        return f"one of {self.options}"


@dataclass(frozen=True)
class MeanDeviation:
    """A mean in (0, span) and a deviation in (0, beta * mean) for every present slot; zeros in empty slots."""

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
        """The same mean for all slots, without deviation."""
        return torch.stack([self.span / 2 * mask.float(), torch.zeros(mask.shape)], -1)

    def random(self, mask: Tensor, stream: torch.Generator) -> Tensor:
        return self(torch.randn(*mask.shape, 2, generator=stream), mask)

    def units(self, slots: int) -> int:
        return 2 * slots

    def from_units(self, numbers: Tensor, mask: Tensor) -> Tensor:
        """Use `BOUND` times the numbers as the two logits of every slot."""
        return self(BOUND * numbers.reshape(-1, 2), mask)

    def describe(self) -> str:
        return f"means up to {self.span:g} with deviations up to {self.beta:g} of them"


def _integers(numbers: Tensor, low: int, high: int) -> Tensor:
    """Map numbers in [-1, 1] to integers from ``low`` to ``high``."""
    return (low + (high + 1 - low) * (numbers + 1) / 2).floor().clamp(max=high)
