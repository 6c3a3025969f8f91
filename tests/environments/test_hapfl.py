"""The decisions of HAPFL as gymnasium environments."""

from typing import Any

import gymnasium
import numpy as np
import pytest
from gymnasium.utils.env_checker import check_env

import fedtailor
from fedtailor.environments import DecisionEnvironment
from fedtailor.methods.hapfl import INTENSITY, SIZE

SCENARIO: dict[str, Any] = {
    "rounds": 3,
    "data": {"clients": 5, "samples": 200},
    "model": {"name": "linear"},
    "training": {"epochs": 3},
    "participation": {"clients": 4},
    "devices": {"profiles": {"kind": "uniform", "spread": 10}},
    "method": {
        "name": "hapfl",
        "sizes": [{"name": "mlp", "arguments": {"hidden": 8}}, {"name": "mlp", "arguments": {"hidden": 80}}],
    },
}
BOTH = pytest.mark.parametrize("decision", [SIZE, INTENSITY])


@BOTH
@pytest.mark.filterwarnings("ignore:.*A Box observation space.*infinity.*")
def test_it_passes_gymnasium_s_check(decision: str) -> None:
    made = DecisionEnvironment(SCENARIO, decision=decision)
    check_env(made)
    made.close()


@pytest.mark.parametrize("name", ["SizeAllocation", "IntensityAllocation"])
def test_it_is_registered(name: str) -> None:
    made = gymnasium.make(f"fedtailor/{name}-v0", settings=SCENARIO)
    observation, _ = made.reset(seed=0)
    assert observation.shape == (4 * 2,)
    times = observation[::2].tolist()
    assert observation[1::2].tolist() == [1.0] * 4
    if name == "SizeAllocation":
        assert times == sorted(times)  # the fastest first, who is the unit
        assert times[0] == 1.0
    made.close()


@BOTH
def test_a_step_does_what_the_method_does(decision: str, tmp_path: Any) -> None:
    """Actions given through the environment bring the rewards that they bring in a run; every step ends an episode."""
    made = DecisionEnvironment(SCENARIO, decision=decision)
    made.action_space.seed(7)
    actions = [made.action_space.sample() for _ in range(3)]
    made.reset(seed=3)
    rewards = []
    for place, action in enumerate(actions):
        _, reward, over, _, _ = made.step(action)
        assert over
        rewards.append(float(reward))
        if place < 2:
            made.reset()
    queue = iter(actions)
    deciders = {decision: lambda _server, question: made.chosen(question, next(queue))}
    settings = made.settings.model_copy(update={"seed": 3})
    with fedtailor.run(settings, folder=tmp_path / "run", deciders=deciders) as run:
        assert run.rewards()[decision] == rewards
        assert len(set(rewards)) == 3
        assert sum(task["steps"] for task in run.tasks()) == 0  # nothing was trained
    made.close()


def test_the_best_sizes_bring_the_best_reward() -> None:
    made = DecisionEnvironment(SCENARIO, decision=SIZE)
    rewards = []
    for action in ([1, 1, 0, 0], [0, 0, 1, 1], [1, 1, 1, 1]):
        made.reset(seed=1)
        rewards.append(made.step(np.array(action))[1])
    assert max(rewards) == rewards[0]
    made.close()


@pytest.mark.parametrize(
    ("method", "said"),
    [
        ({"name": "fedper"}, "hapfl"),
        ({"name": "hapfl"}, "no decision 'size': it decides: intensity"),
        ({**SCENARIO["method"], "adapts": "neither"}, "no decision 'size': it decides nothing"),
    ],
    ids=["another method", "one size", "not decided"],
)
def test_an_experiment_without_the_decision_is_refused(method: dict[str, Any], said: str) -> None:
    with pytest.raises(fedtailor.UserError, match=said):
        DecisionEnvironment({**SCENARIO, "method": method}, method="hapfl", decision=SIZE)
