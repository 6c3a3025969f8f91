"""Kinds of action against hand-derived values: three slots, of which the last is empty where not said otherwise."""

import math

import pytest
import torch
from torch import Tensor

from fedtailor.agents.actions import BOUND, Categorical, Integer, MeanDeviation, Simplex

MASK = torch.tensor([True, True, False])


def stream(seed: int = 0) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def close(actual: Tensor, *expected: float) -> None:
    torch.testing.assert_close(actual, torch.tensor(expected))


def test_weights_are_the_softmax_of_the_present_slots() -> None:
    close(Simplex()(torch.tensor([[math.log(3.0)], [0.0], [9.0]]), MASK), 0.75, 0.25, 0.0)


def test_equal_weights_are_the_default() -> None:
    close(Simplex().neutral(MASK), 0.5, 0.5, 0.0)
    assert Simplex().outputs == 1
    assert Simplex().per_slot


def test_random_weights_are_uniform_draws_over_their_sum() -> None:
    drawn = 1 - torch.rand(3, 1, generator=stream()).squeeze(-1)[:2]
    close(Simplex().random(MASK, stream()), *(drawn / drawn.sum()).tolist(), 0.0)


def test_numbers_become_weights_within_the_bound() -> None:
    numbers = torch.tensor([0.2, 0.0, 1.0])
    low = 1 / (1 + math.e)  # logits 5 * 0.2 = 1 and 0
    close(Simplex().from_units(numbers, MASK), 1 - low, low, 0.0)
    low = 1 / (1 + math.exp(0.4))
    close(Simplex(bound=2.0).from_units(numbers, MASK), 1 - low, low, 0.0)
    assert Simplex().units(3) == 3


def test_a_policy_of_weights_knows_their_unit() -> None:
    assert Simplex().describe() == "weights"
    assert Simplex(unit=0.1).describe() == "weights in units of 0.1"
    head = Simplex(deviation=0.25, unit=0.1).head()
    torch.testing.assert_close(head.parameters[0].exp(), torch.tensor(0.25))
    close(head.sample(torch.tensor([[10.0], [0.0], [0.0]]), MASK, None), *_two(1.0), 0.0)


def _two(difference: float) -> tuple[float, float]:
    """The weights of two slots whose logits differ."""
    low = 1 / (1 + math.exp(difference))
    return 1 - low, low


def test_an_integer_is_drawn_from_the_whole_range() -> None:
    kind, one = Integer(2, 4), stream()
    drawn = torch.cat([kind.random(MASK, one) for _ in range(60)])
    assert sorted(set(drawn.tolist())) == [2.0, 3.0, 4.0]
    assert drawn.dtype == torch.float32


def test_numbers_become_integers_in_equal_parts() -> None:
    kind = Integer(2, 4)
    numbers = [-1.0, -0.34, -0.33, 0.33, 0.34, 1.0]
    found = [float(kind.from_units(torch.tensor([number]), MASK)) for number in numbers]
    assert found == [2.0, 2.0, 3.0, 3.0, 4.0, 4.0]


def test_one_integer_for_all_slots() -> None:
    kind = Integer(1, 64, usual=10)
    close(kind.neutral(MASK), 10.0)
    close(Integer(3, 64).neutral(MASK), 3.0)
    assert kind.units(3) == 1
    assert not kind.per_slot
    assert kind.describe() == "1 to 64"


def test_the_scale_of_integers_is_logarithmic() -> None:
    """The most likely integer of a policy whose output is 0 is the geometric middle: sqrt(0.5 * 64.5) = 5.7."""
    head = Integer(1, 64).head()
    close(head.sample(torch.zeros(head.outputs), MASK, None), 6.0)


def test_options_are_drawn_for_present_slots_alone() -> None:
    kind, one = Categorical(3), stream()
    drawn = torch.stack([kind.random(MASK, one) for _ in range(60)])
    assert sorted(set(drawn[:, 0].tolist())) == sorted(set(drawn[:, 1].tolist())) == [0.0, 1.0, 2.0]
    assert not drawn[:, 2].any()
    assert (drawn[:, 0] != drawn[:, 1]).any()


def test_numbers_become_options_in_equal_parts() -> None:
    kind = Categorical(3)
    close(kind.from_units(torch.tensor([-1.0, 0.0, 1.0]), MASK), 0.0, 1.0, 0.0)
    close(kind.from_units(torch.tensor([1.0, -0.34, 1.0]), MASK), 2.0, 0.0, 0.0)
    close(Categorical(3, usual=2).neutral(MASK), 2.0, 2.0, 0.0)
    close(kind.neutral(MASK), 0.0, 0.0, 0.0)
    assert kind.units(3) == 3
    assert kind.per_slot
    assert kind.describe() == "one of 3"
    assert kind.head().outputs == 3


def test_a_mean_and_a_deviation_for_every_slot() -> None:
    """sigmoid(0) = 1/2, sigmoid(log 3) = 3/4: means 2 and 3, deviations 1/2 and 3/4 of a fifth of them."""
    kind = MeanDeviation(4.0, 0.2)
    logits = torch.tensor([[0.0, 0.0], [math.log(3.0), math.log(3.0)], [1.0, 1.0]])
    expected = torch.tensor([[2.0, 0.2], [3.0, 0.45], [0.0, 0.0]])
    torch.testing.assert_close(kind(logits, MASK), expected)
    numbers = (logits / BOUND).flatten()
    torch.testing.assert_close(kind.from_units(numbers, MASK), expected)
    torch.testing.assert_close(kind.neutral(MASK), torch.tensor([[2.0, 0.0], [2.0, 0.0], [0.0, 0.0]]))
    assert kind.units(3) == 6
    assert kind.outputs == 2
    assert kind.per_slot


def test_random_means_and_deviations_are_of_normal_logits() -> None:
    kind = MeanDeviation(4.0, 0.2)
    torch.testing.assert_close(kind.random(MASK, stream()), kind(torch.randn(3, 2, generator=stream()), MASK))


def test_means_and_deviations_have_no_stochastic_policy() -> None:
    with pytest.raises(NotImplementedError, match="DDPG"):
        MeanDeviation(4.0, 0.2).head()


def test_a_policy_of_means_knows_their_range() -> None:
    assert MeanDeviation(4.0, 0.2).describe() == "means up to 4 with deviations up to 0.2 of them"
