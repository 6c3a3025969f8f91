"""Arithmetic on named tensors. Every function returns new tensors and changes none."""

from collections.abc import Collection, Mapping, Sequence

import torch
from torch import Tensor

Weights = dict[str, Tensor]


def mean(models: Sequence[Mapping[str, Tensor]], shares: Sequence[float]) -> Weights:
    """The weighted mean; the shares are normalised to sum to one.

    Sums in the order given, so the caller fixes the order (by client id) for exactness.
    Counters (whole-number tensors, such as BatchNorm's number of batches) are rounded.
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


def select(weights: Mapping[str, Tensor], names: Collection[str]) -> Weights:
    """The tensors with these names, in the order of ``weights``."""
    return {name: tensor for name, tensor in weights.items() if name in names}


def delta(after: Mapping[str, Tensor], before: Mapping[str, Tensor]) -> Weights:
    """``after - before``, for the names of ``after``."""
    return {name: tensor - before[name] for name, tensor in after.items()}


def clone(weights: Mapping[str, Tensor]) -> Weights:
    """A snapshot that later changes of the original do not touch."""
    return {name: tensor.detach().clone() for name, tensor in weights.items()}


def nbytes(weights: Mapping[str, Tensor]) -> int:
    """Bytes of the tensors on the wire."""
    return sum(tensor.numel() * tensor.element_size() for tensor in weights.values())


def _weighted_sum(tensors: Sequence[Tensor], shares: Sequence[float]) -> Tensor:
    if not tensors[0].is_floating_point():
        exact = sum(tensor.double() * share for tensor, share in zip(tensors, shares, strict=True))
        return torch.as_tensor(exact).round().to(tensors[0].dtype)
    total = tensors[0] * shares[0]
    for tensor, share in zip(tensors[1:], shares[1:], strict=True):
        total.add_(tensor, alpha=share)
    return total
