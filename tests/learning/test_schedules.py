"""The learning rate by round."""

import math

import pytest

from fedtailor.learning import TrainingSettings


def rates(schedule: dict, rounds: int = 5, lr: float = 0.1) -> list[float]:
    settings = TrainingSettings(lr=lr, schedule=schedule)
    return [settings.lr_in(round, rounds) for round in range(1, rounds + 1)]


def test_constant_is_the_default_and_always_the_same() -> None:
    assert TrainingSettings(lr=0.1).lr_in(7, 10) == 0.1
    assert rates({"kind": "constant"}) == [0.1] * 5


def test_exponential_multiplies_after_every_round() -> None:
    assert rates({"kind": "exponential", "gamma": 0.5}) == pytest.approx([0.1, 0.05, 0.025, 0.0125, 0.00625])


def test_step_drops_every_so_many_rounds() -> None:
    assert rates({"kind": "step", "every": 2, "gamma": 0.1}) == pytest.approx([0.1, 0.1, 0.01, 0.01, 0.001])


def test_cosine_falls_to_its_floor_in_the_last_round() -> None:
    middle = 0.1 * (0.2 + 0.8 * 0.5)
    quarter = 0.1 * (0.2 + 0.8 * (1 + math.cos(math.pi / 4)) / 2)
    assert rates({"kind": "cosine", "floor": 0.2})[:3] == pytest.approx([0.1, quarter, middle])
    assert rates({"kind": "cosine", "floor": 0.2})[4] == pytest.approx(0.02)
    assert rates({"kind": "cosine"})[4] == pytest.approx(0.0)


def test_cosine_stays_at_its_floor_after_the_last_round_and_at_the_top_in_a_run_of_one() -> None:
    settings = TrainingSettings(lr=0.1, schedule={"kind": "cosine", "floor": 0.2})
    assert settings.lr_in(6, 5) == pytest.approx(0.02)
    assert settings.lr_in(1, 1) == pytest.approx(0.1)


@pytest.mark.parametrize("kind", ["constant", "exponential", "step", "cosine"])
def test_before_the_first_round_the_rate_is_that_of_the_first(kind: str) -> None:
    settings = TrainingSettings(lr=0.1, schedule={"kind": kind})
    assert settings.lr_in(0, 5) == settings.lr_in(1, 5) == 0.1
