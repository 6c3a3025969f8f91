"""The exact minimum of a convex quadratic form over the simplex."""

import torch
from torch import Tensor


def smallest(form: Tensor) -> Tensor:
    """The a >= 0 with sum(a) = 1 that minimises a' Q a, for a symmetric positive semidefinite Q.

    An active set method (Wolfe, 1976): on a support, the minimum is the solution of a linear system; a step that
    leaves the simplex drops the element that reaches zero first, and while an element outside the support has a
    smaller slope, the one with the smallest joins. Every step makes the form smaller, so no support repeats.
    """
    form = form.double()
    tolerance = 1e-12 * max(float(form.diagonal().max()), 1e-300)
    weights = torch.zeros(len(form), dtype=torch.float64)
    weights[form.diagonal().argmin()] = 1.0
    value = float("inf")
    while True:
        slopes = form @ weights  # half the gradient; equal to the value on the support, not smaller elsewhere
        now = float(weights @ slopes)
        joining = int(slopes.argmin())
        # the second test ends a search that only moves within rounding error
        if float(slopes[joining]) >= now - tolerance or now >= value:
            return weights
        value = now
        weights = _minimise(form, weights, joining)


def _minimise(form: Tensor, weights: Tensor, joining: int) -> Tensor:
    """The minimum over the support and one more element; elements that would leave the simplex are dropped."""
    support = weights > 0
    support[joining] = True
    while True:
        target = torch.zeros_like(weights)
        target[support] = _on_plane(form[support][:, support])
        leaving = support & (target <= 0)
        if not leaving.any():
            return target
        steps = torch.where(leaving, weights / (weights - target).clamp(min=1e-300), torch.inf)
        step = float(steps.min())
        weights = (weights + step * (target - weights)).clamp(min=0)
        weights[steps <= step] = 0.0
        support = support & (steps > step)
        weights = weights / weights.sum()


def _on_plane(form: Tensor) -> Tensor:
    """The minimum with sum 1 and any signs: Q a = v 1, sum(a) = 1."""
    size = len(form)
    scale = max(float(form.diagonal().max()), 1e-300)
    system = torch.ones((size + 1, size + 1), dtype=torch.float64)
    system[:size, :size] = form / scale
    system[size, size] = 0.0
    right = torch.zeros(size + 1, dtype=torch.float64)
    right[size] = 1.0
    solution: Tensor = torch.linalg.lstsq(system, right, driver="gelsd").solution  # none too large if singular
    return solution[:size]
