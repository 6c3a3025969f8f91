"""The learning rate by round."""

import math

import pytest
import torch

from fedtailor.learning import TrainingSettings


def rates(schedule: dict, rounds: int = 5, lr: float = 0.1) -> list[float]:
    settings = TrainingSettings(lr=lr, schedule=schedule)
    return [settings.lr_in(round, rounds) for round in range(1, rounds + 1)]


def test_constant_is_the_default_and_always_the_same() -> None:
    assert TrainingSettings(lr=0.1).lr_in(7, 10) == 0.1
    assert rates({"kind": "constant"}) == [0.1] * 5


def test_exponential_multiplies_after_every_round() -> None:
    assert rates({"kind": "exponential", "gamma": 0.5}) == pytest.approx([0.1, 0.05, 0.025, 0.0125, 0.00625])


def test_step_drops_in_every_nth_round() -> None:
    assert rates({"kind": "step", "every": 2, "gamma": 0.1}) == pytest.approx([0.1, 0.1, 0.01, 0.01, 0.001])


def test_cosine_falls_towards_its_floor() -> None:
    by_hand = [0.1 * (0.2 + 0.8 * (1 + math.cos(math.pi * share)) / 2) for share in (0, 0.25, 0.5, 0.75)]
    assert rates({"kind": "cosine", "floor": 0.2}, rounds=4) == pytest.approx(by_hand)
    assert by_hand[2] == pytest.approx(0.06)


def test_the_final_pass_of_a_single_round_has_the_whole_rate() -> None:
    assert TrainingSettings(lr=0.1, schedule={"kind": "cosine"}).lr_in(2, 1) == 0.1


def test_cosine_equals_torchs() -> None:
    made = torch.optim.SGD([torch.zeros(1)], lr=0.1)
    theirs = torch.optim.lr_scheduler.CosineAnnealingLR(made, T_max=7, eta_min=0.1 * 0.3)
    expected = []
    for _ in range(7):
        expected.append(made.param_groups[0]["lr"])
        made.step()
        theirs.step()
    assert rates({"kind": "cosine", "floor": 0.3}, rounds=7) == pytest.approx(expected)


def test_cosine_never_trains_with_a_rate_of_zero_not_even_in_the_final_pass() -> None:
    settings = TrainingSettings(lr=0.1, schedule={"kind": "cosine"})
    assert settings.lr_in(5, 5) > 0.001
    assert settings.lr_in(6, 5) == settings.lr_in(5, 5)
    assert settings.lr_in(1, 1) == pytest.approx(0.1)


@pytest.mark.parametrize("kind", ["constant", "exponential", "step", "cosine"])
def test_before_the_first_round_the_rate_is_that_of_the_first(kind: str) -> None:
    settings = TrainingSettings(lr=0.1, schedule={"kind": kind})
    assert settings.lr_in(0, 5) == settings.lr_in(1, 5) == 0.1
