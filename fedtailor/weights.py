"""Arithmetic on named tensors. Every function returns new tensors and changes none."""

import math
from collections.abc import Collection, Mapping, Sequence

import torch
from torch import Tensor

Weights = dict[str, Tensor]


def mean(models: Sequence[Mapping[str, Tensor]], shares: Sequence[float]) -> Weights:
    """The weighted mean of models.

    Parameters
    ----------
    models
        Models with the same names. The sum follows their order, which is part of the exact result.
    shares
        A weight for each model; they are normalised to sum to one.

    Returns
    -------
    Weights
        The mean. Counters (whole-number tensors, such as BatchNorm's number of batches) are rounded.

    Examples
    --------
    >>> mean([{"w": torch.tensor(0.0)}, {"w": torch.tensor(4.0)}], [1, 3])
    {'w': tensor(3.)}
    """
    if len(models) != len(shares) or not models:
        raise ValueError(f"{len(models)} models and {len(shares)} shares")
    total = float(sum(shares))
    if not total > 0:
        raise ValueError(f"shares sum to {total}; they must be positive")
    return {
        name: _weighted_sum([model[name] for model in models], [share / total for share in shares])
        for name in models[0]
    }


def combinations(models: Sequence[Mapping[str, Tensor]], shares: Tensor) -> list[Weights]:
    """Several weighted means of the same models: a row of shares (means, models) each, normalised to sum to one."""
    shares = shares.double() / shares.double().sum(1, keepdim=True)
    found: list[Weights] = [{} for _ in shares]
    for name, tensor in models[0].items():
        rows = torch.stack([model[name] for model in models]).reshape(len(models), -1)
        if tensor.is_floating_point():
            mixed = shares.to(tensor.dtype) @ rows
        else:
            mixed = (shares @ rows.double()).round().to(tensor.dtype)
        for weights, row in zip(found, mixed, strict=True):
            weights[name] = row.reshape(tensor.shape)
    return found


def select(weights: Mapping[str, Tensor], names: Collection[str]) -> Weights:
    """The tensors with these names, in the order of ``weights``."""
    return {name: tensor for name, tensor in weights.items() if name in names}


def learned(weights: Mapping[str, Tensor], statistics: Collection[str]) -> Weights:
    """The tensors that gradients move: no counters, and none of these running statistics."""
    return {name: tensor for name, tensor in weights.items() if tensor.is_floating_point() and name not in statistics}


def delta(after: Mapping[str, Tensor], before: Mapping[str, Tensor]) -> Weights:
    """``after - before``, for the names of ``after``."""
    return {name: tensor - before[name] for name, tensor in after.items()}


def clone(weights: Mapping[str, Tensor]) -> Weights:
    """A snapshot that later changes of the original do not touch."""
    return {name: tensor.detach().clone() for name, tensor in weights.items()}


def dot(one: Mapping[str, Tensor], other: Mapping[str, Tensor]) -> float:
    """The inner product over the names of ``one``, without counters."""
    pairs = [(tensor, other[name]) for name, tensor in one.items() if tensor.is_floating_point()]
    return sum(float(torch.dot(a.flatten(), b.flatten())) for a, b in pairs)


def norm(weights: Mapping[str, Tensor]) -> float:
    """The length of all tensors as one vector, without counters."""
    floats = [tensor for tensor in weights.values() if tensor.is_floating_point()]
    return math.hypot(*(float(length) for length in torch._foreach_norm(floats))) if floats else 0.0


def cosine(one: Mapping[str, Tensor], other: Mapping[str, Tensor]) -> float:
    """The cosine of the angle between two models; 0 if one of them is nothing but zeros."""
    lengths = norm(one) * norm(other)
    return max(-1.0, min(1.0, dot(one, other) / lengths)) if lengths > 0 else 0.0


class Sum:
    """A weighted sum that takes its models one at a time, so that only one must be in memory."""

    def __init__(self) -> None:
        self._totals: Weights = {}
        self._counters: dict[str, torch.dtype] = {}

    def add(self, model: Mapping[str, Tensor], share: float | Mapping[str, float]) -> None:
        """Add a model times its share, or times a share for each tensor; the order is part of the exact result."""
        for name, tensor in model.items():
            amount = share[name] if isinstance(share, Mapping) else share
            if not tensor.is_floating_point():
                self._counters[name] = tensor.dtype
                tensor = tensor.double()
            if name not in self._totals:
                self._totals[name] = tensor * amount
            elif amount:
                self._totals[name].add_(tensor, alpha=amount)

    def total(self) -> Weights:
        """The sum so far; counters are rounded."""
        exact = {
            name: total.round().to(self._counters[name])
            for name, total in self._totals.items()
            if name in self._counters
        }
        return {**clone(self._totals), **exact}


def finite(tensor: Tensor) -> bool:
    """Whether no value is infinite or not a number."""
    if not (tensor.is_floating_point() or tensor.is_complex()):
        return True
    # A sum takes a tenth of the time of a look at every value. It is not finite if one of them is not, but large
    # ones may also add up to infinity.
    return bool(tensor.sum().isfinite()) or bool(tensor.isfinite().all())


def sound(tensor: Tensor) -> bool:
    """Whether all values are finite, and so is their norm: larger ones leave the range of float32 in the next step."""
    if not tensor.is_floating_point():
        return finite(tensor)
    wide = torch.float32 if tensor.element_size() < 4 else tensor.dtype
    return bool(torch.linalg.vector_norm(tensor, dtype=wide).isfinite())


def nbytes(weights: Mapping[str, Tensor]) -> int:
    """The number of bytes of the tensors."""
    return sum(tensor.numel() * tensor.element_size() for tensor in weights.values())


def _weighted_sum(tensors: Sequence[Tensor], shares: Sequence[float]) -> Tensor:
    if not tensors[0].is_floating_point():
        exact = sum(tensor.double() * share for tensor, share in zip(tensors, shares, strict=True))
        return torch.as_tensor(exact).round().to(tensors[0].dtype)
    total = tensors[0] * shares[0]
    for tensor, share in zip(tensors[1:], shares[1:], strict=True):
        total.add_(tensor, alpha=share)
    return total
