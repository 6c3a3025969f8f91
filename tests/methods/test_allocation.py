"""Who gets how much of a round's work: values by hand and the ends of the range."""

import math
from collections.abc import Sequence
from itertools import product

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from fedtailor.methods.allocation import beside, best_epochs, best_sizes, cohorts, divide, even_shares, relative


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


def test_of_clients_that_would_end_together_the_first_gets_the_epoch_that_is_left() -> None:
    """A fifth epoch for the second client or a tenth for the last: both would end at 10."""
    assert best_epochs([1.5, 2.0, 4.0, 5.0, 1.0], 24) == [6, 5, 2, 2, 9]


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


@given(logits=st.lists(st.floats(-80, 80), min_size=1, max_size=20), more=st.integers(0, 300))
def test_intensities_sum_exactly_and_respect_the_minimum(logits: list[float], more: int) -> None:
    shares: list[float] = torch.tensor(logits).softmax(0).tolist()
    total = len(shares) + more
    found = divide(shares, total)
    assert sum(found) == total
    assert min(found) >= 1
    parts = [1 + more * share / sum(shares) for share in shares]
    assert all(abs(number - part) < 1 + 1e-6 for number, part in zip(found, parts, strict=True))


def test_the_largest_remainders_are_rounded_up_the_first_of_equal_ones() -> None:
    assert divide([0.5, 0.3, 0.2], 3 + 4) == [1 + 2, 1 + 1, 1 + 1]  # 2, 1.2, 0.8
    assert divide([0.25] * 4, 4 + 6) == [3, 3, 2, 2]
    assert divide([0.0, 0.0], 6) == [3, 3]
    with pytest.raises(ValueError, match="at least 1"):
        divide([0.5, 0.5], 1)


def divisions(total: int, clients: int) -> list[list[int]]:
    if clients == 1:
        return [[total]]
    return [[n, *rest] for n in range(1, total - clients + 2) for rest in divisions(total - n, clients - 1)]


@given(times=st.lists(st.floats(1, 20), min_size=2, max_size=4), each=st.integers(1, 3))
def test_the_search_finds_the_best_allocation(times: list[float], each: int) -> None:
    """Against every allocation there is."""
    ratios = [1.5, 4.0, 9.0]

    def spread(sizes: Sequence[int]) -> float:
        loads = [time * ratios[a] for time, a in zip(times, sizes, strict=True)]
        return max(loads) / min(loads)

    every = product(range(3), repeat=len(times))
    assert spread(best_sizes(times, ratios)) == pytest.approx(min(map(spread, every)))
    total = each * len(times)
    ends = [[n * t for n, t in zip(epochs, times, strict=True)] for epochs in divisions(total, len(times))]
    found = best_epochs(times, total)
    assert sum(found) == total
    own = [n * t for n, t in zip(found, times, strict=True)]
    assert max(own) - min(own) == pytest.approx(min(max(e) - min(e) for e in ends))


def test_even_shares_let_all_end_together_but_who_is_too_slow_for_one_epoch() -> None:
    """Times 1, 2, 4 and 14 epochs: all end at 8, after 8, 4, 2. With a time of 100, it has one, and 13 are left."""
    assert divide(even_shares([1.0, 2.0, 4.0], 14), 14) == [8, 4, 2]
    assert divide(even_shares([1.0, 1.0, 100.0], 13), 13) == [6, 6, 1]


def test_cohorts_by_hand() -> None:
    """Five clients, at most two in a group: three groups, each of every third in the order of times, then of ids."""
    times = {0: 5.0, 1: 1.0, 2: 3.0, 3: 1.0, 4: 4.0}  # in order: 1, 3, 2, 4, 0
    found = cohorts(times, 2)
    assert [list(group.items()) for group in found] == [[(1, 1.0), (4, 4.0)], [(3, 1.0), (0, 5.0)], [(2, 3.0)]]
    assert [list(group) for group in cohorts(times, 5)] == [[1, 3, 2, 4, 0]]
    assert cohorts({}, 2) == []


def test_a_new_client_replaces_the_nearest_of_a_full_cohort_by_hand() -> None:
    """4 is 2 from both 2 and 6: client 5, the smaller id, gives its place up."""
    cohort = {5: 2.0, 7: 6.0, 6: 9.0}
    assert list(beside(cohort, 20, 4.0, 3).items()) == [(20, 4.0), (7, 6.0), (6, 9.0)]
    assert list(beside(cohort, 20, 4.0, 4).items()) == [(5, 2.0), (20, 4.0), (7, 6.0), (6, 9.0)]
    assert beside({}, 20, 4.0, 3) == {20: 4.0}
    assert len(cohort) == 3


def test_relative_times_by_hand() -> None:
    """A client without data takes no time; it counts as 10^-12 seconds, since ratios need positive times."""
    assert relative({3: 2.0, 1: 6.0}) == {3: 1.0, 1: 3.0}
    assert relative({0: 0.0, 1: 1.0}) == {0: 1.0, 1: 1 / 1e-12}
