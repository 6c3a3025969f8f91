"""The batch size and the aggregation weights of BWA as a gymnasium environment."""

import threading
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
import pytest
import torch
from gymnasium.utils.env_checker import check_env

import fedtailor
from fedtailor.environments import DecisionEnvironment
from fedtailor.methods.adjustment import ADJUSTMENT

SCENARIO: dict[str, Any] = {
    "rounds": 3,
    "data": {"clients": 4, "samples": 240, "partition": {"kind": "mixed", "sigma": 0.5}},
    "model": {"name": "linear"},
    "training": {"epochs": 1},
    "method": {"name": "bwa", "agents": {"adjustment": {"hidden": [8, 8]}}},
}


def batch_and_weights(settings: dict[str, Any]) -> DecisionEnvironment:
    return DecisionEnvironment(settings, method="bwa", decision=ADJUSTMENT)


@pytest.fixture
def environment() -> Iterator[DecisionEnvironment]:
    made = batch_and_weights(SCENARIO)
    yield made
    made.close()


@pytest.mark.filterwarnings("ignore:.*A Box observation space.*infinity.*")
def test_it_passes_gymnasium_s_check(environment: DecisionEnvironment) -> None:
    check_env(environment)


@pytest.mark.parametrize(("controls", "numbers"), [("both", 5), ("batch", 1), ("weights", 4)])
def test_it_is_registered_and_has_a_number_for_what_is_controlled(controls: str, numbers: int) -> None:
    settings = {**SCENARIO, "method": {**SCENARIO["method"], "controls": controls}}
    made = gymnasium.make("fedtailor/BatchAndWeights-v0", settings=settings)
    observation, _ = made.reset(seed=0)
    assert observation.shape == (4 * 7,)
    assert made.action_space.shape == (numbers,)
    made.step(made.action_space.sample())
    made.close()


def test_actions_by_hand(environment: DecisionEnvironment) -> None:
    """-1, 0, 1 are batch sizes 1, 33, 64; weights are the softmax of (2, -2, 0), the empty slot has none."""
    environment.reset(seed=0)
    question = replace(environment.question, mask=torch.tensor([True, True, True, False]))
    exponentials = np.exp([2.0, -2.0, 0.0])
    for number, size in ((-1.0, 1.0), (0.0, 33.0), (1.0, 64.0)):
        action = environment.chosen(question, [number, 1.0, -1.0, 0.0, 1.0])
        assert action.tolist() == pytest.approx([size, *(exponentials / exponentials.sum()), 0.0], abs=1e-6)


def episode(environment: DecisionEnvironment, seed: int) -> list[tuple[list[float], float, bool]]:
    environment.action_space.seed(seed)
    observation, _ = environment.reset(seed=seed)
    found, over = [], False
    while not over:
        seen = observation.tolist()
        observation, reward, over, truncated, _ = environment.step(environment.action_space.sample())
        assert not truncated
        found.append((seen, float(reward), over))
    return found


def test_an_episode_is_a_whole_federation_and_the_same_for_the_same_seed(environment: DecisionEnvironment) -> None:
    first = episode(environment, 5)
    assert [over for _, _, over in first] == [False, False, True]
    assert episode(environment, 5) == first
    assert episode(environment, 6) != first
    with pytest.raises(gymnasium.error.ResetNeeded):
        environment.step(environment.action_space.sample())


def test_a_step_does_what_the_method_does(tmp_path: Path, environment: DecisionEnvironment) -> None:
    actions = [np.array([size, 1.0, 0.0, -1.0, 0.5], np.float32) for size in (-0.9, 0.0, 0.9)]
    environment.reset(seed=3)
    rewards = [float(environment.step(action)[1]) for action in actions]
    queue = iter(actions)
    deciders = {ADJUSTMENT: lambda _server, question: environment.chosen(question, next(queue))}
    settings = environment.settings.model_copy(update={"seed": 3})
    with fedtailor.run(settings, folder=tmp_path / "run", deciders=deciders) as done:
        assert done.rewards()[ADJUSTMENT] == rewards
        assert done.agents()[ADJUSTMENT]["steps"] == 0  # who decides here learns elsewhere


def test_nothing_is_left_when_it_is_closed() -> None:
    before = threading.active_count()
    made = batch_and_weights(SCENARIO)
    made.reset(seed=0)
    made.step(made.action_space.sample())
    made.close()
    assert threading.active_count() == before


def test_an_experiment_with_another_method_is_refused() -> None:
    with pytest.raises(fedtailor.UserError, match="bwa"):
        batch_and_weights({"method": {"name": "fedper"}})


@pytest.mark.slow
def test_another_library_s_ppo_trains_on_it() -> None:
    """More steps and more of the right clients: what SB3 does in the end brings more than what it did at first."""
    baselines = pytest.importorskip("stable_baselines3")
    from stable_baselines3.common.monitor import Monitor

    settings = {**SCENARIO, "method": {"name": "bwa", "controls": "batch", "reward": "objective"}}
    environment = Monitor(batch_and_weights(settings))
    agent = baselines.PPO("MlpPolicy", environment, n_steps=30, batch_size=30, seed=0, device="cpu")
    agent.learn(1500)
    returns = environment.get_episode_rewards()
    environment.close()
    assert np.mean(returns[-50:]) > np.mean(returns[:50])
