"""Who gets how much of a round's work: values by hand and the ends of the range."""

import math

import pytest

from fedtailor.methods.allocation import best_epochs, best_sizes, divide, even_shares


def test_a_division_by_hand() -> None:
    """Of 10, 3 are given at first; 7 by shares 1/2, 3/8, 1/8 are 3.5, 2.625, 0.875: 3, 2, 0 and two remainders."""
    assert divide([4, 3, 1], 10) == [1 + 3, 1 + 3, 1 + 1]


def test_a_division_of_exactly_one_each_ignores_the_shares() -> None:
    assert divide([0.9, 0.1], 2) == [1, 1]


def test_one_client_gets_everything() -> None:
    assert divide([0.0], 7) == [7]
    assert best_epochs([3.0], 7) == [7]
    assert best_sizes([3.0], [1.0, 5.0]) == [1]  # alone it waits for nobody: the largest model
    assert even_shares([3.0], 7) == [1.0]


def test_a_share_of_zero_beside_others_gets_the_minimum() -> None:
    assert divide([1.0, 0.0], 9) == [8, 1]


def test_a_total_below_one_each_is_refused() -> None:
    with pytest.raises(ValueError, match="3 cannot be divided among 4"):
        divide([1.0] * 4, 3)


def test_sizes_by_hand() -> None:
    """Times 1, 2 and 4 with ratios 1, 2, 4: sizes 2, 1, 0 let all take 4."""
    assert best_sizes([1.0, 2.0, 4.0], [1.0, 2.0, 4.0]) == [2, 1, 0]


def test_of_equally_good_sizes_the_largest_are_taken() -> None:
    """Equal clients end together with any size, in whatever order the sizes are given."""
    assert best_sizes([1.0, 1.0], [1.0, 2.0, 4.0]) == [2, 2]
    assert best_sizes([1.0, 1.0], [4.0, 1.0]) == [0, 0]


def test_a_client_that_no_size_makes_as_slow_as_the_others_takes_the_largest() -> None:
    """1 * 3 against 10 * 1: nothing is nearer."""
    assert best_sizes([1.0, 10.0], [1.0, 3.0]) == [1, 0]


def test_times_that_differ_by_rounding_are_equal() -> None:
    """0.1 + 0.2 is not 0.3 to the bit; both clients must get the same size."""
    assert best_sizes([0.1 + 0.2, 0.3], [1.0, 2.0]) == [1, 1]
    assert best_epochs([0.1 + 0.2, 0.3], 6) == [3, 3]


def test_epochs_by_hand() -> None:
    """Times 1, 2 and 7 epochs: 5 and 2 end at 5 and 4; 4 and 3 would end at 4 and 6, 6 and 1 at 6 and 2."""
    assert best_epochs([1.0, 2.0], 7) == [5, 2]
    assert best_epochs([1.0, 2.0, 4.0], 14) == [8, 4, 2]


def test_epochs_for_clients_of_which_one_is_slower_than_all_the_work_of_the_other() -> None:
    assert best_epochs([1.0, 100.0], 4) == [3, 1]


def test_even_shares_by_hand() -> None:
    """Times 1, 2, 4 and 14 epochs: all end at 14 / (1 + 1/2 + 1/4) = 8, after 7, 3, 1 epochs more than one: of 11."""
    assert even_shares([1.0, 2.0, 4.0], 14) == pytest.approx([7 / 11, 3 / 11, 1 / 11])


def test_the_share_of_a_client_that_is_too_slow_is_small_and_has_a_logarithm() -> None:
    """Time 100: it keeps its one epoch, 12 are left for the two others, who end at 6 after 5 more than one."""
    shares = even_shares([1.0, 1.0, 100.0], 13)
    assert shares == pytest.approx([5 / 10.05, 5 / 10.05, 0.05 / 10.05])
    assert math.log(shares[2]) < 0
    assert sum(shares) == pytest.approx(1)


def test_even_shares_of_exactly_one_epoch_each_are_equal() -> None:
    assert even_shares([2.0, 2.0], 2) == pytest.approx([0.5, 0.5])
