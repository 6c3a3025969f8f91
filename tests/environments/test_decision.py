"""An environment of any decision that a method declares."""

from typing import Any

import gymnasium
import numpy as np
import pytest
import torch
from gymnasium import spaces

import fedtailor
from fedtailor.agents import Categorical, Integer, Kind, MeanDeviation, Simplex
from fedtailor.environments import DecisionEnvironment

SCENARIO: dict[str, Any] = {
    "rounds": 3,
    "data": {"clients": 4, "samples": 240},
    "model": {"name": "linear"},
    "training": {"epochs": 1},
}
TAKEN = torch.tensor([True, True, False])


@pytest.mark.parametrize(
    ("kind", "numbers", "action"),
    [
        (Simplex(bound=2.0), [1.0, -1.0, 1.0], [0.98201379, 0.01798621, 0.0]),  # 1 / (1 + e^-4)
        (Integer(1, 64), [-1.0], [1.0]),
        (Integer(1, 64), [0.0], [33.0]),
        (Integer(1, 64), [1.0], [64.0]),
        (Categorical(3), [-1.0, 0.0, 1.0], [0.0, 1.0, 0.0]),
        (Categorical(3), [1.0, 0.4, 0.0], [2.0, 2.0, 0.0]),
        (MeanDeviation(2.0, 0.5), [0.0] * 6, [[1.0, 0.25], [1.0, 0.25], [0.0, 0.0]]),  # sigmoid(0) = 1/2
    ],
    ids=["weights", "smallest", "middle", "largest", "options", "other options", "means and deviations"],
)
def test_actions_from_numbers_by_hand(kind: Kind, numbers: list[float], action: list[Any]) -> None:
    assert kind.units(3) == len(numbers)
    assert torch.allclose(kind.from_units(torch.tensor(numbers), TAKEN), torch.tensor(action), atol=1e-6)


@pytest.mark.parametrize(
    ("method", "decision", "space"),
    [
        ("feddrl", "impact", spaces.Box(-1.0, 1.0, (8,), np.float32)),
        ("fedddrl", "termination", spaces.MultiDiscrete([2] * 4)),
        ("fedddrl", "epochs", spaces.MultiDiscrete([3] * 4)),
    ],
)
def test_an_episode_of_a_whole_federation(method: str, decision: str, space: "spaces.Space[Any]") -> None:
    made = DecisionEnvironment({**SCENARIO, "method": {"name": method}}, decision=decision)
    assert made.action_space == space
    observation, _ = made.reset(seed=1)
    ends = []
    for _ in range(3):
        assert made.observation_space.contains(observation)
        observation, _reward, over, _, _ = made.step(made.action_space.sample())
        ends.append(over)
    assert ends == [False, False, True]
    with pytest.raises(gymnasium.error.ResetNeeded):
        made.step(made.action_space.sample())
    made.close()


def test_a_method_without_agents_is_refused() -> None:
    with pytest.raises(fedtailor.UserError, match="fedper has no agents"):
        DecisionEnvironment({**SCENARIO, "method": {"name": "fedper"}}, decision="size")
