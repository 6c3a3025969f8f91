"""The best policy of a pre-training: that in the middle of the three best episodes in a row."""

from typing import Any

import pytest
import torch

from fedtailor.agents import Agent, BestPolicy
from fedtailor.agents.base import Draws
from fedtailor.messages.trees import pack, unpack


class Numbered(Agent):
    """An agent that knows how often it learned."""

    def __init__(self) -> None:
        self.times = 0

    def act(self, state: torch.Tensor, mask: Any = None, stream: Any = None) -> torch.Tensor:
        return state

    def observe(self, state: torch.Tensor, action: torch.Tensor, reward: float, mask: Any = None, **_: Any) -> None:
        return

    def end_round(self, round: int, rounds: int, draws: Draws) -> None:
        self.times += 1

    def state_dict(self) -> dict[str, Any]:
        return {"times": self.times}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self.times = state["times"]


def episodes(best: BestPolicy, agent: Numbered, first: int, *objectives: float | None) -> None:
    """An episode for each objective, in two halves; the agent learns at its end."""
    for episode, objective in enumerate(objectives, first):
        best.begin_episode()
        if objective is not None:
            best.add(objective / 2)
            best.add(objective / 2)
        best.end_episode(agent, episode)
        agent.end_round(1, 1, torch.Generator)


@pytest.mark.parametrize(
    ("objectives", "kept"),
    [
        ([4, 1], None),  # too few to judge by
        ([4, 1, 5], (1, 10 / 3)),
        ([4, 1, 5, 6], (2, 4)),
        ([4, 1, 5, 6, 4, 2, 3], (3, 5)),  # means 10/3, 4, 5, 4, 3
        ([4, 4, 4, 4], (1, 4)),  # the first of equals
        ([-5, -6, -4, -2], (2, -4)),
    ],
)
def test_three_in_a_row_judge_the_policy_in_their_middle(objectives: list[float], kept: Any) -> None:
    best = BestPolicy()
    episodes(best, Numbered(), 0, *objectives)
    if kept is None:
        assert best.kept is None
    else:
        episode, value = kept
        assert best.kept == {"episode": episode, "agent": {"times": episode}, "value": pytest.approx(value)}


def test_an_episode_without_an_objective_does_not_count() -> None:
    best, agent = BestPolicy(), Numbered()
    episodes(best, agent, 0, 4, None, 1, 7)
    assert best.values == [4, 1, 7]
    assert best.kept == {"episode": 2, "agent": {"times": 2}, "value": pytest.approx(4)}


def test_an_episode_that_did_not_end_does_not_count() -> None:
    best, agent = BestPolicy(), Numbered()
    best.add(100.0)
    episodes(best, agent, 1, 1, 2, 3)
    assert best.values == [1, 2, 3]


def test_a_restored_one_goes_on_like_the_one_that_was_saved() -> None:
    one, other, agent = BestPolicy(), BestPolicy(), Numbered()
    episodes(one, agent, 0, 4, 1, 5)
    one.add(2.5)
    other.load_state_dict(unpack(pack(one)).state)
    for best in (one, other):
        best.add(3.5)
        best.end_episode(agent, 3)
    assert pack(one) == pack(other)
    assert other.kept is not None
    assert other.kept["episode"] == 2
