"""The criterion against numbers derived by hand."""

import math

import pytest

from fedtailor.runs.statistics import Wins, comparisons_text, difference, interval, outcome, paired, wins

T_2 = 4.302652729911275  # the 97.5 % quantile of Student's t with two degrees of freedom


def test_the_interval_is_mean_plus_minus_t_times_the_standard_error() -> None:
    found = interval([1.0, 2.0, 3.0])  # mean 2, deviation 1, standard error 1 / sqrt(3)
    assert found is not None
    assert found.mean == 2.0
    assert found.low == pytest.approx(2 - T_2 / 3**0.5)
    assert found.high == pytest.approx(2 + T_2 / 3**0.5)
    assert interval([1.0]) is None


@pytest.mark.parametrize(
    ("differences", "than", "better", "expected"),
    [
        ([2.9, 3.0, 3.1], 0.0, 1, "ahead"),  # half an interval is 0.1 * T_2 / sqrt(3) = 0.248
        ([-2.9, -3.0, -3.1], 0.0, 1, "behind"),
        ([-2.9, -3.0, -3.1], 0.0, -1, "ahead"),  # less is better
        ([-0.1, 0.0, 0.1], 0.0, 1, "level"),  # [-0.248, 0.248]
        ([-0.3, 0.0, 0.3], 0.0, -1, "level"),  # [-0.745, 0.745], 1.49 wide
        ([-0.40, 0.0, 0.40], 0.0, 1, "level"),  # 1.987 wide
        ([-0.41, 0.0, 0.41], 0.0, 1, "not decidable at this size"),  # 2.037 wide
        ([1.0, 2.0, 3.0], 0.0, 1, "not decidable at this size"),  # [-0.484, 4.484]
        ([2.9, 3.0], 0.0, 1, "not decidable at this size"),  # two seeds
        ([3.0], 0.0, 1, "not decidable at this size"),
        ([], 0.0, 1, "not decidable at this size"),
        ([2.9, 3.0, 3.1], 2.5, 1, "ahead"),  # [2.752, 3.248]
        ([2.9, 3.0, 3.1], 3.5, 1, "behind"),
        ([2.9, 3.0, 3.1], 3.0, 1, "level"),
        ([math.nan, 1.0, 1.0], 0.0, 1, "not decidable at this size"),
        ([1.0, 1.0, 1.0], 0.0, 1, "ahead"),  # no deviation
        ([0.0, 0.0, 0.0], 0.0, 1, "level"),
    ],
)
def test_outcomes(differences: list[float], than: float, better: int, expected: str) -> None:
    assert outcome(differences, than, better) == expected


def test_differences_are_those_of_the_seeds_that_both_have() -> None:
    assert paired({0: 90.0, 1: 80.0, 2: None, 4: 1.0}, {0: 89.0, 1: 82.0, 2: 5.0, 3: 7.0}) == [1.0, -2.0]


def test_measures_that_are_not_percentages_differ_in_percent_of_the_other_value() -> None:
    assert paired({0: 90.0, 1: None}, {0: 120.0, 1: 3.0}, relative=True) == [-25.0]
    assert paired({0: -1.0}, {0: -2.0}, relative=True) == [50.0]  # more, although both are negative
    assert paired({0: 1.0}, {0: 0.0}, relative=True) == []
    # losses 0.99, 0.985 and 0.98 against 1: -1, -1.5 and -2 %, deviation 0.5: -1.5 +- 0.5 * T_2 / sqrt(3) = 1.242
    better = difference({0: 0.99, 1: 0.985, 2: 0.98}, {0: 1.0, 1: 1.0, 2: 1.0}, points=False, better=-1)
    assert better.unit == "%"
    assert better.mean == pytest.approx(-1.5)
    assert better.outcome == "ahead"


def test_wins_are_counted_by_client_in_the_seeds_that_both_have() -> None:
    ours = {0: {0: 0.9, 1: 0.5, 2: 0.4}, 1: {0: 0.1}, 7: {0: 1.0}}
    theirs = {0: {0: 0.8, 1: 0.5, 2: 0.6, 3: 0.0}, 1: {0: 0.0}}
    assert wins(ours, theirs) == Wins(won=2, tied=1, lost=1)
    assert wins(ours, theirs, better=-1) == Wins(won=1, tied=1, lost=2)
    assert wins({0: {0: math.nan, 1: 1.0}}, {0: {0: 1.0, 1: 0.0}}) == Wins(1, 0, 0)
    assert wins(ours, {3: {0: 0.1}}) is None


def test_a_page_says_how_many_comparisons_it_makes() -> None:
    assert comparisons_text(1) == "1 comparison was made."
    assert "about 2.0 of them" in comparisons_text(40)
