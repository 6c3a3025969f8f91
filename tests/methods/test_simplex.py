"""The quadratic programme on the simplex."""

import itertools

import pytest
import torch
from torch import Tensor

from fedtailor.methods.simplex import smallest
from fedtailor.seeding import torch_stream


def forms() -> list[Tensor]:
    """Forms of many sizes and ranks: Gram matrices with and without a diagonal, with duplicates, and tiny ones."""
    stream = torch_stream("forms")
    found = [torch.zeros(3, 3), torch.ones(1, 1), torch.ones(4, 4)]
    for size, rank in ((2, 1), (3, 2), (4, 4), (5, 1), (6, 3), (7, 9), (8, 2)):
        factor = torch.randn(size, rank, generator=stream, dtype=torch.float64)
        gram = factor @ factor.T
        doubled = torch.cat([factor, factor[:1]])
        found += [gram, gram + torch.diag(torch.rand(size, generator=stream)), gram * 1e-12, doubled @ doubled.T]
        shifted = factor + 2.0  # the hull is away from zero, so the minimum is a face
        found += [shifted @ shifted.T, gram + 1e3]
    return found


def brute_force(form: Tensor) -> float:
    """The least value over every support whose minimum lies in the simplex."""
    best = float(form.diagonal().min())
    for count in range(2, len(form) + 1):
        for support in itertools.combinations(range(len(form)), count):
            part = form[list(support)][:, list(support)].double()
            system = torch.ones(count + 1, count + 1, dtype=torch.float64)
            scale = float(part.diagonal().max()) or 1.0
            system[:count, :count], system[count, count] = part / scale, 0.0
            right = torch.zeros(count + 1, dtype=torch.float64)
            right[count] = 1.0
            weights = (torch.linalg.pinv(system) @ right)[:count]
            if (weights >= 0).all() and abs(float(weights.sum()) - 1) < 1e-9:
                best = min(best, float(weights @ part @ weights))
    return best


@pytest.mark.parametrize("form", forms(), ids=lambda form: f"{len(form)}")
def test_the_programme_finds_the_minimum_of_all_supports(form: Tensor) -> None:
    weights = smallest(form)
    scale = max(float(form.diagonal().max()), 1e-300)
    assert (weights >= 0).all()
    assert float(weights.sum()) == pytest.approx(1.0, abs=1e-12)
    assert float(weights @ form.double() @ weights) / scale == pytest.approx(brute_force(form) / scale, abs=1e-9)


@pytest.mark.parametrize(("size", "rank"), [(30, 5), (60, 60), (100, 300), (100, 3)])
@pytest.mark.parametrize("shift", [0.0, 1.0])
def test_large_programmes_meet_the_conditions_of_the_minimum(size: int, rank: int, shift: float) -> None:
    """On the support the slope equals the value, elsewhere it is not smaller (Karush, Kuhn, Tucker)."""
    factor = torch.randn(size, rank, generator=torch_stream(size, rank), dtype=torch.float64) + shift
    form = factor @ factor.T
    weights = smallest(form)
    slopes, value = form @ weights, float(weights @ form @ weights)
    scale = float(form.diagonal().max())
    assert (weights >= 0).all()
    assert float(weights.sum()) == pytest.approx(1.0, abs=1e-12)
    assert ((slopes - value) / scale >= -1e-9).all()
    assert ((slopes - value)[weights > 0].abs() / scale <= 1e-9).all()
    assert torch.equal(smallest(form), weights)


@pytest.mark.parametrize(
    ("form", "expected"),
    [
        ([[4.0]], [1.0]),
        ([[1.0, 0.0], [0.0, 1.0]], [0.5, 0.5]),
        ([[1.0, 0.0], [0.0, 3.0]], [0.75, 0.25]),  # in proportion to 1 and 1/3
        ([[1.0, 2.0], [2.0, 5.0]], [1.0, 0.0]),  # the plane's minimum has a negative weight
        ([[2.0, -1.0, 0.0], [-1.0, 2.0, 0.0], [0.0, 0.0, 1.0]], [1 / 3, 1 / 3, 1 / 3]),  # all slopes are 1/3
    ],
)
def test_a_programme_by_hand(form: list[list[float]], expected: list[float]) -> None:
    assert smallest(torch.tensor(form)).tolist() == pytest.approx(expected, abs=1e-9)


def test_a_form_that_is_zero_everywhere_takes_the_first() -> None:
    assert smallest(torch.zeros(3, 3)).tolist() == [1.0, 0.0, 0.0]
