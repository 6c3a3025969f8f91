"""What every agent has in common: its settings, and the calls by which a framework lets it act and learn."""

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from typing import Any, Literal

import torch
from pydantic import BaseModel, ConfigDict, Field
from torch import Tensor

from fedtailor.agents.actions import Kind

Draws = Callable[[], torch.Generator]  # gives the random stream of learning, when it is needed


class AgentSettings(BaseModel):
    """Settings of an agent: a table ``[method.agents.<decision>]``."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    decider: str = Field("agent", description="what decides: the agent, or a rule in its place")
    learn: Literal["auto", "always", "never"] = Field(
        "auto",
        description="`auto`: learn only without a policy. Exploration is off whenever learning is off.",
    )
    warmup: int = Field(0, ge=0, description="rounds before the agent decides, where there is no policy")

    def learns_with(self, policy: bool) -> bool:
        """Whether it is to learn in a run that starts with a policy, or without one."""
        return self.learn == "always" or (self.learn == "auto" and not policy)

    def build(
        self, slots: int, features: int, actions: Mapping[str, Kind], stream: torch.Generator, **options: Any
    ) -> "Agent | None":
        """The agent, untrained; None where a decider always stands in."""
        return None

    @property
    def teaches(self) -> bool:
        """Whether learning would change anything."""
        return True

    def learns(self, policy: bool) -> bool:
        """Whether the agent learns, and so explores, in a run that starts with or without a policy."""
        return self.learns_with(policy) and self.decider == "agent" and self.teaches

    def describe(self) -> dict[str, str | int]:
        """What two runs must agree on to share a policy of this agent."""
        return {}

    @property
    def any_slots(self) -> bool:
        """Whether a policy serves any number of slots."""
        return False


class Agent(ABC):
    """Acts, observes what came of it, and learns when it is told that a round or an episode is over.

    A state is a row of features for every slot, with a mask of the slots that are taken.
    """

    @abstractmethod
    def act(self, state: Tensor, mask: Tensor | None = None, stream: torch.Generator | None = None) -> Tensor:
        """The action in a state (slots, features): with a stream, exploring; without, greedy."""

    @abstractmethod
    def observe(
        self, state: Tensor, action: Tensor, reward: float, mask: Tensor | None = None, *, done: bool = False
    ) -> None:
        """Remember what an action brought, in the order of time; ``done`` ends an episode."""

    def follow(self, state: Tensor, mask: Tensor, draws: Draws) -> None:
        """The state after the action that was observed last is known."""
        return

    def begin_episode(self, draws: Draws) -> None:
        """A new episode begins."""
        return

    def end_round(self, round: int, rounds: int, draws: Draws) -> None:
        """A round is over; learn if it is time."""
        return

    def policy(self) -> dict[str, Any]:
        """The state to share with other runs: ``state_dict`` without what was observed."""
        return self.state_dict()

    @abstractmethod
    def state_dict(self) -> dict[str, Any]:
        """Everything learned and remembered."""

    @abstractmethod
    def load_state_dict(self, state: dict[str, Any]) -> None: ...


def present(mask: Tensor | None, slots: int) -> Tensor:
    """The mask of the slots that are taken: all of them without one. At least one must be."""
    mask = torch.ones(slots, dtype=torch.bool) if mask is None else mask
    if mask.shape != (slots,) or not mask.any():
        raise ValueError(f"the mask {mask.tolist()} must name at least one of {slots} slots")
    return mask
