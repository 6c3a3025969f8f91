"""Standardised states, by hand."""

import pytest
import torch

from fedtailor.agents import Normaliser
from fedtailor.messages.trees import pack, unpack


def test_states_stay_as_they_are_before_the_first_refresh() -> None:
    made = Normaliser(2)
    state = torch.tensor([[1.0, -2.0], [3.0, 0.5]])
    assert torch.equal(made(state), state)
    made.refresh()  # nothing was counted
    assert torch.equal(made(state), state)


def test_the_mean_and_the_deviation_of_present_slots_by_hand() -> None:
    """1, 3 and then 5, 7 in the first feature: mean 2, deviation 1; then mean 4, deviation sqrt(5)."""
    made, mask = Normaliser(2), torch.tensor([True, False, True])
    made.count(torch.tensor([[1.0, 4.0], [99.0, 99.0], [3.0, 4.0]]), mask)
    state = torch.tensor([[4.0, 4.0]])
    assert torch.equal(made(state), state)  # equal states look equal until the next refresh
    made.refresh()
    assert made(state).tolist() == [[2.0, 0.0]]
    made.count(torch.tensor([[5.0, 4.0], [0.0, 0.0], [7.0, 4.0]]), mask)
    assert made(state).tolist() == [[2.0, 0.0]]
    made.refresh()
    assert made.scale[:, 0].tolist() == pytest.approx([4.0, 5**0.5])
    assert made.tally[0].tolist() == [4.0, 4.0]


def test_a_feature_that_never_changed_is_not_divided_by_zero_and_far_is_far() -> None:
    made, mask = Normaliser(1), torch.ones(2, dtype=torch.bool)
    made.count(torch.full((2, 1), 4.0), mask)
    made.refresh()
    assert made(torch.tensor([[4.0], [4.001], [5.0], [-5.0]])).flatten().tolist() == pytest.approx(
        [0.0, 1.0, 10.0, -10.0], abs=1e-3
    )


def test_a_restored_normaliser_goes_on_like_the_one_that_was_saved() -> None:
    one, other, mask = Normaliser(1), Normaliser(1), torch.ones(2, dtype=torch.bool)
    one.count(torch.tensor([[1.0], [2.0]]), mask)
    one.refresh()
    one.count(torch.tensor([[5.0], [7.0]]), mask)
    other.load_state_dict(unpack(pack(one)).state)
    for made in (one, other):
        made.refresh()
    assert pack(one) == pack(other)
