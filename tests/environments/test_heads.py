"""The head weights of pFedRLLA as a gymnasium environment."""

import threading
from collections.abc import Iterator
from typing import Any

import gymnasium
import numpy as np
import pytest
from gymnasium.utils.env_checker import check_env

import fedtailor
from fedtailor.environments import DecisionEnvironment
from fedtailor.methods.head_mixing import HEAD
from fedtailor.runs import pretrain

SCENARIO: dict[str, Any] = {
    "rounds": 2,
    "data": {"clients": 6, "samples": 300, "partition": {"kind": "pathological", "classes": 2}},
    "model": {"name": "linear"},
    "training": {"epochs": 1},
    "participation": {"ratio": 0.5},
    "method": {
        "name": "pfedrlla",
        "embedding": {"size": 8, "steps": 2},
        "agents": {"head_weights": {"hidden": [32, 32], "warmup": 0}},
    },
}


def head_aggregation(settings: dict[str, Any]) -> DecisionEnvironment:
    return DecisionEnvironment(settings, method="pfedrlla", decision=HEAD)


@pytest.fixture
def environment() -> Iterator[DecisionEnvironment]:
    made = head_aggregation(SCENARIO)
    yield made
    made.close()


@pytest.mark.filterwarnings("ignore:.*A Box observation space.*infinity.*")
def test_it_passes_gymnasium_s_check(environment: DecisionEnvironment) -> None:
    check_env(environment)


def test_it_is_registered() -> None:
    made = gymnasium.make("fedtailor/HeadAggregation-v0", settings=SCENARIO)
    observation, _ = made.reset(seed=0)
    assert observation.shape == (4 * 11,)
    made.close()


def steps(environment: DecisionEnvironment, seed: int, count: int = 8) -> list[tuple[list[float], float]]:
    """Random steps; a new federation begins when one is over."""
    environment.action_space.seed(seed)
    observation, _ = environment.reset(seed=seed)
    found = []
    for _ in range(count):
        _, reward, over, _, _ = environment.step(environment.action_space.sample())
        assert over  # every decision is an episode of its own
        found.append((observation.tolist(), float(reward)))
        observation, _ = environment.reset()
    return found


def test_the_same_seed_gives_the_same_episodes(environment: DecisionEnvironment) -> None:
    first = steps(environment, 5)
    assert steps(environment, 5) == first
    assert steps(environment, 6) != first
    assert len({reward for _, reward in first}) == 8


def test_a_step_does_what_the_method_does(tmp_path: Any, environment: DecisionEnvironment) -> None:
    """Weights given through the environment bring the rewards that they bring in a run."""
    settings = environment.settings.model_copy(update={"seed": 3})
    actions = [np.linspace(-1, 1, 4, dtype=np.float32) * (i % 3 - 1) for i in range(6)]
    environment.reset(seed=3)
    rewards = []
    for action in actions:
        rewards.append(float(environment.step(action)[1]))
        if len(rewards) < len(actions):
            environment.reset()
    queue = iter(actions)
    deciders = {HEAD: lambda _server, question: environment.chosen(question, next(queue))}
    with fedtailor.run(settings, folder=tmp_path / "run", deciders=deciders) as run:
        assert run.rewards()[HEAD] == rewards


def test_nothing_is_left_when_it_is_closed() -> None:
    before = threading.active_count()
    made = head_aggregation(SCENARIO)
    made.reset(seed=0)
    made.step(made.action_space.sample())
    made.close()
    assert threading.active_count() == before
    with pytest.raises(gymnasium.error.ResetNeeded):
        made.step(made.action_space.sample())


def test_an_experiment_with_another_method_is_refused() -> None:
    with pytest.raises(fedtailor.UserError, match="pfedrlla"):
        head_aggregation({"method": {"name": "fedper"}})


def test_models_that_are_mixed_after_the_training_are_refused() -> None:
    with pytest.raises(fedtailor.UserError, match="for pfedrlla, but the experiment's method is pfedrlla-after"):
        head_aggregation({"method": {"name": "pfedrlla-after"}})


@pytest.mark.slow
def test_stable_baselines_learns_and_ours_is_no_worse(tmp_path: Any) -> None:
    """600 decisions each; the mean reward of the last 150 against that of random weights, and against each other."""
    baselines = pytest.importorskip("stable_baselines3")
    from stable_baselines3.common.monitor import Monitor
    from stable_baselines3.common.noise import NormalActionNoise

    scenario = {**SCENARIO, "rounds": 50}
    scenario["data"] = {**SCENARIO["data"], "clients": 12}
    scenario["participation"] = {"ratio": 0.33}
    scenario["method"] = {**SCENARIO["method"], "agents": {"head_weights": {"hidden": [32, 32], "warmup": 25}}}
    count = 600

    environment = Monitor(head_aggregation(scenario))
    environment.action_space.seed(0)
    environment.reset(seed=0)
    for _ in range(150):
        environment.step(environment.action_space.sample())
        environment.reset()
    random = float(np.mean(environment.get_episode_rewards()))
    environment.close()

    environment = Monitor(head_aggregation(scenario))
    noise = NormalActionNoise(np.zeros(5), 0.1 * np.ones(5))
    agent = baselines.DDPG(
        "MlpPolicy", environment, seed=0, action_noise=noise, learning_starts=100, batch_size=32, device="cpu"
    )
    agent.learn(count)
    theirs = float(np.mean(environment.get_episode_rewards()[-150:]))
    environment.close()

    settings = {**scenario, "pretrain": {"episodes": 3}}
    settings["method"] = {
        **scenario["method"],
        "agents": {"head_weights": {"hidden": [32, 32], "warmup": 25, "updates": 4}},
    }
    with pretrain(settings, folder=tmp_path / "policy") as run:
        rewards = run.rewards()[HEAD]
    ours = float(np.mean(rewards[-150:]))
    assert len(rewards) == count
    assert theirs > random + 0.1
    assert ours > theirs - 0.02
