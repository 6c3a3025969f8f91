"""Keeps the best policy of a pre-training."""

from copy import deepcopy
from statistics import fmean
from typing import Any

from fedtailor.agents.base import Agent

WINDOW = 3  # consecutive episodes whose mean judges a policy, since a single episode is too noisy


class BestPolicy:
    """Keeps the middle policy of the ``WINDOW`` consecutive episodes with the highest mean objective."""

    def __init__(self) -> None:
        self.value: float | None = None  # the objective of this episode so far
        self.values: list[float] = []  # the objectives of the latest episodes
        self.former: dict[str, Any] | None = None  # the policy of the previous episode
        self.kept: dict[str, Any] | None = None  # the best so far: episode, agent, value

    def add(self, objective: float) -> None:
        """Add a round's contribution to the objective of this episode."""
        self.value = (self.value or 0.0) + objective

    def end_episode(self, agent: Agent, episode: int) -> None:
        """Judge the episode. Call it before the agent learns from the episode.

        Parameters
        ----------
        agent
            The agent that acted in the episode.
        episode
            The number of the episode, which is kept with the policy.
        """
        if self.value is None:
            return
        self.values = [*self.values, self.value][-WINDOW:]
        if len(self.values) == WINDOW and (self.kept is None or fmean(self.values) > self.kept["value"]):
            self.kept = {**(self.former or {}), "value": fmean(self.values)}
        self.former = {"episode": episode, "agent": deepcopy(agent.policy())}
        self.value = None

    def begin_episode(self) -> None:
        """Begin an episode. An episode that did not reach its end does not count."""
        self.value = None

    def state_dict(self) -> dict[str, Any]:
        return {"value": self.value, "values": self.values, "former": self.former, "kept": self.kept}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self.value, self.values = state["value"], state["values"]
        self.former, self.kept = state["former"], state["kept"]
