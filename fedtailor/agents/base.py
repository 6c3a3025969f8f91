"""The interface of all agents: their settings, and the calls with which the framework lets them act and learn."""

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from typing import Any, Literal

import torch
from pydantic import BaseModel, ConfigDict, Field
from torch import Tensor

from fedtailor.agents.actions import Kind

Draws = Callable[[], torch.Generator]  # returns the random stream of learning, created when it is first needed


class AgentSettings(BaseModel):
    """Settings of an agent: a table ``[method.agents.<decision>]``."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    decider: str = Field("agent", description="what makes the decision: the agent, or a rule that replaces it")
    learn: Literal["auto", "always", "never"] = Field(
        "auto",
        description="`auto`: learn only without a policy. Exploration is off whenever learning is off.",
    )
    warmup: int = Field(0, ge=0, description="rounds before the agent decides; ignored with a policy")

    def learns_with(self, policy: bool) -> bool:
        """Whether the settings ask the agent to learn in a run that starts with or without a policy."""
        return self.learn == "always" or (self.learn == "auto" and not policy)

    def build(
        self, slots: int, features: int, actions: Mapping[str, Kind], stream: torch.Generator, **options: Any
    ) -> "Agent | None":
        """Build the untrained agent; None if a decider always replaces it.

        Parameters
        ----------
        slots, features
            The shape of a state: rows, and features of a row.
        actions
            The kinds of action of the decision, by name.
        stream
            The random stream of the initial weights.
        options
            The options of a declared decision that only some agents know.
        """
        return None

    @property
    def can_learn(self) -> bool:
        """Whether the agent has anything to learn with: its settings allow at least one learning step."""
        return True

    def learns(self, policy: bool) -> bool:
        """Whether the agent learns, and so explores, in a run that starts with or without a policy."""
        return self.learns_with(policy) and self.decider == "agent" and self.can_learn

    def describe(self) -> dict[str, str | int]:
        """The properties that must be equal in two runs that share a policy of this agent."""
        return {}

    @property
    def any_slots(self) -> bool:
        """Whether a policy works for any number of slots."""
        return False


class Agent(ABC):
    """Acts, observes rewards, and learns when the framework tells it that a round or an episode is over.

    A state has a row of features for every slot, and a mask of the present slots.

    Examples
    --------
    >>> action = agent.act(state, mask, stream)  # float32 (numbers,)
    >>> agent.observe(state, action, 0.5, mask, done=True)
    >>> agent.end_round(round, rounds, lambda: stream)  # learns if training is due
    """

    @abstractmethod
    def act(self, state: Tensor, mask: Tensor | None = None, stream: torch.Generator | None = None) -> Tensor:
        """Choose an action: explore with a stream, act greedily without one.

        Parameters
        ----------
        state
            The features of every slot: (slots, features).
        mask
            The present slots: bool (slots,). Without one, all slots are present.
        stream
            The random stream of exploration.
        """

    @abstractmethod
    def observe(
        self, state: Tensor, action: Tensor, reward: float, mask: Tensor | None = None, *, done: bool = False
    ) -> None:
        """Store the reward of an action. Call it in the order of time.

        Parameters
        ----------
        state, action, mask
            The state, the action that `act` chose in it, and the present slots.
        reward
            The reward.
        done
            Whether the action was the last of its episode.
        """

    def follow(self, state: Tensor, mask: Tensor, draws: Draws) -> None:
        """Take the state that followed the latest observed action."""
        return

    def begin_episode(self, draws: Draws) -> None:
        """Begin a new episode."""
        return

    def due(self, round: int, rounds: int) -> bool:
        """Whether `end_round` would train in this round. By default it never does."""
        return False

    def end_round(self, round: int, rounds: int, draws: Draws) -> None:
        """End a round, and learn if training is `due`. ``draws`` returns the random stream of learning."""
        return

    def policy(self) -> dict[str, Any]:
        """The state to share with other runs: ``state_dict`` without observations."""
        return self.state_dict()

    @abstractmethod
    def state_dict(self) -> dict[str, Any]:
        """Everything that the agent has learned and stored."""

    @abstractmethod
    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Restore a state that ``state_dict`` returned."""


def present(mask: Tensor | None, slots: int) -> Tensor:
    """Return the mask of the present slots; without one, all slots are present. At least one must be."""
    mask = torch.ones(slots, dtype=torch.bool) if mask is None else mask
    if mask.shape != (slots,) or not mask.any():
        raise ValueError(f"the mask {mask.tolist()} must name at least one of {slots} slots")
    return mask
