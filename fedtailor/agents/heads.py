"""Action distributions of stochastic policies; a network gives their logits.

An action is one flat tensor of floats, which `Joint` composes from the numbers of its heads and splits again. It holds
the final values (weights that sum to one, not their logits), so it can be recorded, scripted and read. Its probability
depends only on the logits and the action. Empty slots have weight and option 0 and contribute nothing to
probability, entropy or gradient.
"""

from collections.abc import Mapping
from math import log, pi
from typing import ClassVar, Protocol

import torch
import torch.nn.functional as F
from torch import Tensor


class Head(Protocol):
    """A distribution over numbers, given logits per slot (..., slots, outputs) or shared logits (..., outputs)."""

    parameters: list[Tensor]  # learned parameters that do not depend on the state: logarithms of deviations

    @property
    def per_slot(self) -> bool:
        """Whether every slot has logits and numbers of its own."""

    @property
    def outputs(self) -> int:
        """The number of logits: per slot, or shared."""

    @property
    def numbers(self) -> int:
        """The number of values in an action: per slot, or shared."""

    def sample(self, logits: Tensor, mask: Tensor, stream: torch.Generator | None) -> Tensor:
        """A flat action (..., numbers): drawn with a stream, the most likely one without."""

    def log_prob(self, logits: Tensor, mask: Tensor, action: Tensor) -> Tensor:
        """The logarithm of an action's probability or density.  # (...)"""

    def entropy(self, logits: Tensor, mask: Tensor) -> Tensor:
        """The entropy of the distribution.  # (...)"""


class Joint:
    """Several independent heads: an action is the numbers of the heads in their order.

    With heads {"batch": IntegerHead(1, 64), "weights": SimplexHead()} and 3 slots, an action is
    [batch, weight 0, weight 1, weight 2]. The logits are flat too: first those of slot 0 (of all per-slot heads, in
    order), then of slot 1, ..., then those of the shared heads.
    """

    def __init__(self, slots: int, heads: Mapping[str, Head]):
        self.slots, self.heads = slots, dict(heads)
        self.per_slot = [head.outputs if head.per_slot else 0 for head in heads.values()]  # outputs of each head
        self.shared = [0 if head.per_slot else head.outputs for head in heads.values()]
        self.numbers = [slots * head.numbers if head.per_slot else head.numbers for head in heads.values()]
        self.parameters = [parameter for head in heads.values() for parameter in head.parameters]

    def split(self, action: Tensor) -> dict[str, Tensor]:
        """The numbers of every head.  # (..., slots) or (..., numbers)"""
        return dict(zip(self.heads, action.split_with_sizes(self.numbers, -1), strict=True))

    def sample(self, logits: Tensor, mask: Tensor, stream: torch.Generator | None) -> Tensor:
        return torch.cat([head.sample(own, mask, stream) for head, own in self._own(logits)], -1)

    def log_probs(self, logits: Tensor, mask: Tensor, action: Tensor) -> Tensor:
        """The log-probability of every head's numbers; their sum is that of the action.  # (..., heads)"""
        numbers = self.split(action).values()
        pairs = zip(self._own(logits), numbers, strict=True)
        return torch.stack([head.log_prob(own, mask, number) for (head, own), number in pairs], -1)

    def entropy(self, logits: Tensor, mask: Tensor) -> Tensor:
        return torch.stack([head.entropy(own, mask) for head, own in self._own(logits)]).sum(0)

    def _own(self, logits: Tensor) -> list[tuple[Head, Tensor]]:
        """Every head with its logits."""
        slots, shared = logits.split_with_sizes([self.slots * sum(self.per_slot), sum(self.shared)], -1)
        slots = slots.reshape(*slots.shape[:-1], self.slots, sum(self.per_slot))
        rows, commons = slots.split_with_sizes(self.per_slot, -1), shared.split_with_sizes(self.shared, -1)
        both = zip(self.heads.values(), rows, commons, strict=True)
        return [(head, row if head.per_slot else common) for head, row, common in both]


class SimplexHead:
    """Weights of the present slots that sum to one: the softmax of Gaussians with a common deviation.

    w = softmax(z), z ~ N(mu, sigma^2 I) over the n present slots; mu is ``unit`` times the logits, so weights learn
    slowly with a small unit. The weights determine z up to a constant shift, which has no effect: log w minus its mean
    equals z minus its mean, a Gaussian with deviation sigma in the n - 1 directions that sum to zero. The probability
    of an action is the density of that Gaussian, so z need not be stored and the shift does not disturb learning.
    """

    per_slot: ClassVar = True
    outputs: ClassVar = 1
    numbers: ClassVar = 1

    def __init__(self, deviation: float = 0.5, unit: float = 1.0):
        self.parameters = [_logarithm(deviation)]
        self.unit = unit

    def sample(self, logits: Tensor, mask: Tensor, stream: torch.Generator | None) -> Tensor:
        z = self.unit * logits.squeeze(-1)
        if stream is not None:
            z = z + self.parameters[0].exp() * torch.randn(z.shape, generator=stream)
        return z.masked_fill(~mask, -torch.inf).softmax(-1)

    def log_prob(self, logits: Tensor, mask: Tensor, action: Tensor) -> Tensor:
        # a weight of 0, which a script may give, counts as the smallest positive number
        seen = action.clamp(min=torch.finfo(action.dtype).tiny).log()
        away = _centred(seen - self.unit * logits.squeeze(-1), mask) / self.parameters[0].exp()
        free = mask.sum(-1) - 1  # directions
        return -away.square().sum(-1) / 2 - free * (self.parameters[0] + log(2 * pi) / 2)

    def entropy(self, logits: Tensor, mask: Tensor) -> Tensor:
        return (mask.sum(-1) - 1) * (self.parameters[0] + (1 + log(2 * pi)) / 2)


class MultiCategoricalHead:
    """One of ``options`` for every present slot, independently: the numbers 0, ..., options - 1."""

    per_slot: ClassVar = True
    numbers: ClassVar = 1

    def __init__(self, options: int):
        self.outputs = options
        self.parameters: list[Tensor] = []

    def sample(self, logits: Tensor, mask: Tensor, stream: torch.Generator | None) -> Tensor:
        return _sample_option(logits, stream).masked_fill(~mask, 0.0)  # (..., slots)

    def log_prob(self, logits: Tensor, mask: Tensor, action: Tensor) -> Tensor:
        return _option_log_prob(logits, action).masked_fill(~mask, 0.0).sum(-1)

    def entropy(self, logits: Tensor, mask: Tensor) -> Tensor:
        return _entropy(logits).masked_fill(~mask, 0.0).sum(-1)


class CategoricalHead:
    """One of ``options`` for all slots together: a number 0, ..., options - 1."""

    per_slot: ClassVar = False
    numbers: ClassVar = 1

    def __init__(self, options: int):
        self.outputs = options
        self.parameters: list[Tensor] = []

    def sample(self, logits: Tensor, mask: Tensor, stream: torch.Generator | None) -> Tensor:
        return _sample_option(logits, stream)[..., None]

    def log_prob(self, logits: Tensor, mask: Tensor, action: Tensor) -> Tensor:
        return _option_log_prob(logits, action.squeeze(-1))

    def entropy(self, logits: Tensor, mask: Tensor) -> Tensor:
        return _entropy(logits)


class IntegerHead:
    """An integer from low to high, of which neighbours are similar: steps of sigmoid(z), z ~ Logistic(mu, s).

    The k-th of n numbers is chosen if (k - 1) / n < sigmoid(z) < k / n. One logit covers all values, and each value
    learns from its neighbours. At the start, with mu = 0 and s = 1, all values are equally likely. The greedy action is
    the median; the ends of the range would bias the mean. With ``ratios``, the steps are logarithmic, for numbers whose
    ratios matter: at the start 1 is as likely as 2, 3 and 4 together.
    """

    per_slot: ClassVar = False
    outputs: ClassVar = 1
    numbers: ClassVar = 1

    def __init__(self, low: int, high: int, ratios: bool = False):
        self.low, self.high = low, high
        self.parameters = [_logarithm(1.0)]
        steps = torch.arange(low, high + 2) - 0.5
        steps = steps.log() if ratios else steps
        self._borders = (steps - steps[0]) / (steps[-1] - steps[0])  # thresholds of sigmoid(z) between numbers

    def sample(self, logits: Tensor, mask: Tensor, stream: torch.Generator | None) -> Tensor:
        if stream is not None:
            return self.low + _sample_option(self._logits(logits), stream)[..., None]
        above = torch.searchsorted(self._borders, logits.sigmoid(), right=True) - 1
        return (self.low + above).clamp(max=self.high).to(logits.dtype)

    def log_prob(self, logits: Tensor, mask: Tensor, action: Tensor) -> Tensor:
        return _option_log_prob(self._logits(logits), action.squeeze(-1) - self.low)

    def entropy(self, logits: Tensor, mask: Tensor) -> Tensor:
        return _entropy(self._logits(logits))

    def _logits(self, logits: Tensor) -> Tensor:
        """The log-probabilities of all values.  # (..., values)"""
        borders = self._borders.logit().clamp(-99.0, 99.0)  # finite: so are the gradients
        z = (borders - logits) / self.parameters[0].exp()
        left, right = z[..., :-1], z[..., 1:]
        # log(sigmoid(right) - sigmoid(left)); the direct form would lose digits if both are nearly 0 or 1
        return F.logsigmoid(right) + F.logsigmoid(-left) + torch.log(-torch.expm1(left - right))


class GaussianHead:
    """Real numbers: independent Gaussians whose deviations do not depend on the state."""

    per_slot: ClassVar = False

    def __init__(self, numbers: int, deviation: float = 1.0):
        self.outputs = self.numbers = numbers
        self.parameters = [_logarithm(deviation, numbers)]

    def sample(self, logits: Tensor, mask: Tensor, stream: torch.Generator | None) -> Tensor:
        if stream is None:
            return logits
        return logits + self.parameters[0].exp() * torch.randn(logits.shape, generator=stream)

    def log_prob(self, logits: Tensor, mask: Tensor, action: Tensor) -> Tensor:
        away = (action - logits) / self.parameters[0].exp()
        return (-away.square() / 2 - self.parameters[0] - log(2 * pi) / 2).sum(-1)

    def entropy(self, logits: Tensor, mask: Tensor) -> Tensor:
        return (self.parameters[0] + (1 + log(2 * pi)) / 2).sum().expand(logits.shape[:-1])


def _logarithm(value: float, *shape: int) -> Tensor:
    """The logarithm of a positive number, as a learned parameter."""
    return torch.full(shape, value).log().requires_grad_()


def _centred(numbers: Tensor, mask: Tensor) -> Tensor:
    """The numbers of the present slots without their mean; zeros in the others."""
    numbers = numbers.masked_fill(~mask, 0.0)
    mean = numbers.sum(-1, keepdim=True) / mask.sum(-1, keepdim=True)
    return (numbers - mean).masked_fill(~mask, 0.0)


def _sample_option(logits: Tensor, stream: torch.Generator | None) -> Tensor:
    """An option as a float: drawn with a stream, the most likely one without.  # (...)"""
    if stream is not None:
        # of exponential variables with these rates, each is the smallest with the probability of its option
        logits = logits - torch.empty(logits.shape).exponential_(generator=stream).log()
    return logits.argmax(-1).to(logits.dtype)


def _option_log_prob(logits: Tensor, option: Tensor) -> Tensor:
    return logits.log_softmax(-1).gather(-1, option.long()[..., None]).squeeze(-1)


def _entropy(logits: Tensor) -> Tensor:
    logs = logits.log_softmax(-1)
    return -(logs.exp() * logs).sum(-1)
