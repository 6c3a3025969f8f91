"""Means of models that a minority of malicious clients cannot move far.

Every rule is a function of the models and their shares, in the order of clients, and changes none of them.
"""

import math
from collections.abc import Mapping, Sequence
from typing import Literal, get_args

import torch
from torch import Tensor

from fedtailor.weights import Weights, mean

Rule = Literal["mean", "median", "trimmed-mean", "krum", "multi-krum", "geometric-median"]
RULES: tuple[Rule, ...] = get_args(Rule)

WEISZFELD_STEPS = 100
WEISZFELD_PRECISION = 1e-6  # smallest move, in lengths of the median model, that is worth another step


def robust_mean(
    models: Sequence[Mapping[str, Tensor]], shares: Sequence[float], rule: Rule, malicious: float = 0.2
) -> Weights:
    """Average models by a rule.

    Parameters
    ----------
    models
        Models with the same names, in the order of clients.
    shares
        A weight for each model. ``median``, ``krum`` and ``geometric-median`` count every model once, because a
        malicious client chooses the number of samples that it claims; ``trimmed-mean`` and ``multi-krum`` use the
        shares of the values and models that they keep.
    rule
        ``mean``: the weighted mean. ``median``: of each coordinate. ``trimmed-mean``: of each coordinate without its
        f smallest and f largest values (Yin et al., 2018). ``krum``: the model with the nearest neighbours;
        ``multi-krum``: the mean of the n - f such models (Blanchard et al., 2017). ``geometric-median``: the point
        with the smallest sum of distances (Pillutla et al., 2022).
    malicious
        The share of malicious clients among n models; f is the next whole number of clients.

    Examples
    --------
    >>> rows = [{"w": torch.tensor(value)} for value in (1.0, 2.0, 90.0)]
    >>> robust_mean(rows, [1, 1, 1], "median")
    {'w': tensor(2.)}
    """
    if rule == "mean" or len(models) == 1:
        return mean(models, shares)
    if rule == "median":
        return {name: _median(torch.stack([model[name] for model in models])) for name in models[0]}
    f = math.ceil(round(malicious * len(models), 9))
    if rule == "trimmed-mean":
        cut = min(f, (len(models) - 1) // 2)
        return {name: _trimmed(torch.stack([model[name] for model in models]), shares, cut) for name in models[0]}
    products = _products(models)
    if rule == "geometric-median":
        return mean(models, _weiszfeld(products))
    best = _by_krum(products, f)
    if rule == "krum":
        return mean([models[best[0]]], [1.0])
    kept = sorted(best[: max(1, len(models) - f)])
    return mean([models[place] for place in kept], [shares[place] for place in kept])


def _median(rows: Tensor) -> Tensor:
    """The median of each coordinate; of an even number, the mean of the two in the middle."""
    ordered = rows.sort(0).values
    low, high = ordered[(len(rows) - 1) // 2], ordered[len(rows) // 2]
    if rows.is_floating_point():
        return low / 2 + high / 2  # low + high may overflow
    return ((low.double() + high.double()) / 2).round().to(rows.dtype)


def _trimmed(rows: Tensor, shares: Sequence[float], cut: int) -> Tensor:
    """The weighted mean of each coordinate without its ``cut`` smallest and largest values."""
    ordered, order = rows.sort(dim=0, stable=True)
    kept = slice(cut, len(rows) - cut)
    factors = torch.tensor(list(shares), dtype=torch.double)[order[kept]]
    if not float(factors.sum(0).min()) > 0:  # all shares that are left are 0
        factors = torch.ones_like(factors)
    found = (ordered[kept].double() * factors).sum(0) / factors.sum(0)
    return found.to(rows.dtype) if rows.is_floating_point() else found.round().to(rows.dtype)


def _products(models: Sequence[Mapping[str, Tensor]]) -> Tensor:
    """Inner products of the models, seen from their coordinate median.  # float64 (models, models)"""
    total = torch.zeros(len(models), len(models), dtype=torch.double)
    for name, tensor in models[0].items():
        if tensor.is_floating_point():
            rows = torch.stack([model[name] for model in models]).double()  # differences of float32 may overflow
            away = (rows - _median(rows)).flatten(1)
            total += away @ away.T
    return total


def _by_krum(products: Tensor, f: int) -> list[int]:
    """The places of the models, those with the nearest n - f - 2 neighbours first."""
    lengths = products.diagonal()
    distances = (lengths[:, None] + lengths[None, :] - 2 * products).clamp(min=0)
    distances.fill_diagonal_(math.inf)
    neighbours = min(max(1, len(products) - f - 2), len(products) - 1)
    return distances.sort(1).values[:, :neighbours].sum(1).argsort(stable=True).tolist()


def _weiszfeld(products: Tensor) -> list[float]:
    """The coefficients of the models in their geometric median, by Weiszfeld's iteration from the coordinate median."""
    lengths = products.diagonal()
    scale = max(float(lengths.median()), 1e-200)

    def nearer(squares: Tensor) -> Tensor:
        found = 1 / squares.clamp(min=scale * 1e-18).sqrt()  # a model may be at distance 0
        return found / found.sum()

    share = nearer(lengths)
    for _ in range(WEISZFELD_STEPS):
        closer = nearer(lengths - 2 * products @ share + share @ products @ share)
        moved, share = closer - share, closer
        if float(moved @ products @ moved) < scale * WEISZFELD_PRECISION**2:
            break
    return share.tolist()
