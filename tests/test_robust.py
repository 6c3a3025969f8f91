"""Robust means, with values derived by hand."""

import math

import pytest
import torch

from fedtailor.robust import RULES, robust_mean
from fedtailor.weights import Weights, mean

ROBUST = [rule for rule in RULES if rule != "mean"]


def rows(*values: float) -> list[Weights]:
    return [{"w": torch.tensor([value])} for value in values]


def points(*values: tuple[float, float]) -> list[Weights]:
    return [{"x": torch.tensor([x]), "y": torch.tensor([y])} for x, y in values]


def test_the_median_of_an_odd_number_is_the_one_in_the_middle_and_ignores_shares():
    assert robust_mean(rows(5.0, 1.0, 90.0), [1, 1, 1000], "median")["w"].tolist() == [5.0]


def test_the_median_of_an_even_number_lies_between_the_two_in_the_middle():
    assert robust_mean(rows(5.0, 1.0, 90.0, 2.0), [1] * 4, "median")["w"].tolist() == [3.5]


def test_the_trimmed_mean_leaves_out_the_smallest_and_the_largest():
    """n = 5 and a fifth malicious: f = 1. Of 1 2 3 10 -99 remain 1 2 3: shares 1 1 2 give (1 + 2 + 6) / 4."""
    found = robust_mean(rows(1.0, 2.0, 3.0, 10.0, -99.0), [1, 1, 2, 50, 50], "trimmed-mean", 0.2)
    assert found["w"].tolist() == [2.25]


def test_the_trimmed_mean_leaves_at_least_one_value():
    """n = 3 and 0.49 malicious: f would be 2, which leaves nothing; 1 is cut at either side."""
    assert robust_mean(rows(1.0, 2.0, 99.0), [1, 1, 1], "trimmed-mean", 0.49)["w"].tolist() == [2.0]


def test_f_is_the_next_whole_number_of_the_decimal_product():
    """0.2 x 15 is 3.0000000000000004 in floats and must be 3: of 0 ... 14 remain 3 ... 11, whose shares are 1 and 9."""
    shares = [1.0] * 15
    shares[3], shares[11] = 9.0, 1.0
    found = robust_mean(rows(*map(float, range(15))), shares, "trimmed-mean", 0.2)
    assert found["w"].item() == pytest.approx((9 * 3 + sum(range(4, 12))) / 17)


def test_krum_takes_the_model_with_the_nearest_neighbours():
    """n = 5, f = 1: the sum of squared distances to the 2 nearest.

    Points 0, 1, 3, 4.5, 50: 0: 1 + 9 = 10; 1: 1 + 4 = 5; 3: 2.25 + 4 = 6.25; 4.5: 2.25 + 12.25; 50: 2000 and more.
    """
    assert robust_mean(rows(0.0, 1.0, 3.0, 4.5, 50.0), [1] * 5, "krum", 0.2)["w"].tolist() == [1.0]


def test_multi_krum_averages_all_but_f_with_their_shares():
    found = robust_mean(rows(0.0, 1.0, 3.0, 4.5, 50.0), [1, 1, 1, 1, 99], "multi-krum", 0.2)
    assert found["w"].item() == pytest.approx(8.5 / 4)


def test_krum_sees_all_tensors_of_a_model():
    """In x alone the odd one is in the middle; in y it is far away."""
    models = points((0.0, 0.0), (1.0, 0.0), (2.0, 0.0), (3.0, 0.0), (1.5, 70.0))
    assert robust_mean(models, [1] * 5, "krum", 0.2)["y"].item() == 0.0
    assert robust_mean(models, [1] * 5, "multi-krum", 0.2)["y"].item() == 0.0


def test_the_geometric_median_of_a_triangle_is_its_fermat_point():
    """An equilateral triangle's is the centre; a point in the middle of a cross is its own."""
    high = math.sqrt(3)
    found = robust_mean(points((-1.0, 0.0), (1.0, 0.0), (0.0, high)), [1] * 3, "geometric-median")
    assert found["x"].item() == pytest.approx(0.0, abs=1e-6)
    assert found["y"].item() == pytest.approx(high / 3, abs=1e-6)


def test_the_geometric_median_stays_with_the_majority():
    """Four of five at 0: the sum of distances is smallest there, wherever the fifth is."""
    found = robust_mean(rows(0.0, 0.0, 0.0, 0.0, 1000.0), [1] * 5, "geometric-median")
    assert abs(found["w"].item()) < 1e-3


@pytest.mark.parametrize("rule", ROBUST)
def test_one_reply_of_1e38_moves_nothing_far(rule):
    models = rows(1.0, 1.1, 0.9, 1.05, 1e38, -3e38)[:5]
    found = robust_mean(models, [1, 1, 1, 1, 1e12], rule, 0.2)["w"].item()
    assert 0.9 <= found <= 1.1
    assert mean(models, [1] * 5)["w"].item() > 1e37


@pytest.mark.parametrize("rule", ROBUST)
@pytest.mark.parametrize("count", [1, 2])
def test_one_and_two_replies_have_a_mean(rule, count):
    found = robust_mean(rows(2.0, 4.0)[:count], [1] * count, rule, 0.4)["w"].item()
    assert 2.0 <= found <= 4.0


@pytest.mark.parametrize("rule", ROBUST)
def test_equal_models_stay_as_they_are(rule):
    model = {"w": torch.randn(3, 4), "count": torch.tensor(7)}
    found = robust_mean([model] * 6, [1, 2, 3, 4, 5, 6], rule)
    assert torch.allclose(found["w"], model["w"], atol=1e-6)
    assert found["count"] == 7
    assert found["count"].dtype == torch.int64


@pytest.mark.parametrize("rule", RULES)
def test_no_model_is_changed(rule):
    models = rows(1.0, 2.0, 3.0, 4.0, 5.0)
    robust_mean(models, [1] * 5, rule)["w"] += 100
    assert [model["w"].item() for model in models] == [1.0, 2.0, 3.0, 4.0, 5.0]


def test_shares_of_zero_do_not_divide_by_zero():
    assert robust_mean(rows(1.0, 2.0, 3.0), [1, 0, 1], "trimmed-mean", 0.3)["w"].tolist() == [2.0]
