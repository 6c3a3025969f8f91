"""Value decomposition (Sunehag et al., 2018): one option per slot; the values of the slots are summed."""

from collections.abc import Mapping
from copy import deepcopy
from typing import Any, cast

import torch
import torch.nn.functional as F
from pydantic import Field, PositiveInt
from torch import Tensor

from fedtailor.agents.actions import Categorical, Kind
from fedtailor.agents.base import Agent, AgentSettings, Draws, present
from fedtailor.agents.networks import MLP
from fedtailor.agents.replay import Replay
from fedtailor.learning.optimisers import Adam


class VDNSettings(AgentSettings):
    """Settings of value decomposition."""

    hidden: tuple[PositiveInt, ...] = Field((64, 64), description="units of the hidden layers")
    lr: float = Field(1e-3, gt=0, le=1, description="learning rate")
    epsilon: float = Field(0.1, ge=0, le=1, description="probability of a random option while the agent learns")
    batch: int = Field(32, ge=1, le=100_000, description="transitions per learning step")
    capacity: int = Field(10_000, ge=1, description="capacity of the replay, in transitions")
    updates: int = Field(10, ge=0, le=10_000, description="learning steps per round; 0 never learns")
    discount: float = Field(0.9, ge=0, lt=1, description="discount factor")
    polyak: float = Field(
        0.96, ge=0, lt=1, description="share of its weights that the target network keeps per learning step"
    )

    def build(
        self, slots: int, features: int, actions: Mapping[str, Kind], stream: torch.Generator, **options: Any
    ) -> "VDN":
        (action,) = actions.values()
        return VDN(slots, features, cast(Categorical, action).options, self, stream, **options)

    @property
    def can_learn(self) -> bool:
        return self.updates > 0

    def describe(self) -> dict[str, str | int]:
        return {"network": "-".join(map(str, self.hidden))}

    @property
    def any_slots(self) -> bool:
        return True


class VDN(Agent):
    """Q(s, a) = sum over the present slots k of q(s_k, a_k), with one network q for all slots.

    So the best action is the best option of every slot, for any number and order of slots. The agent learns by double
    Q-learning (van Hasselt et al., 2016): in the target r + discount * Q'(s', argmax Q(s')), the network chooses the
    options and a slowly updated target network Q' gives their values.
    """

    def __init__(self, slots: int, features: int, options: int, settings: VDNSettings, stream: torch.Generator):
        self.slots, self.options, self.settings = slots, options, settings
        self.network = MLP(features, settings.hidden, options, stream)
        self.target = deepcopy(self.network)
        self.optimiser = Adam(self.network.parameters, settings.lr)
        self.replay = Replay(settings.capacity)
        self._pending: dict[str, Tensor] | None = None  # the transition whose next state is not known yet

    def act(self, state: Tensor, mask: Tensor | None = None, stream: torch.Generator | None = None) -> Tensor:
        """Choose an option for every slot of a state (slots, features), 0 in empty slots; with a stream, explore."""
        mask = present(mask, self.slots)
        with torch.no_grad():
            chosen = self.network(state).argmax(-1)
        if stream is not None:
            explores = torch.rand(self.slots, generator=stream) < self.settings.epsilon
            chosen = torch.where(explores, torch.randint(self.options, (self.slots,), generator=stream), chosen)
        return chosen.float().masked_fill(~mask, 0.0)  # (slots,)

    def observe(
        self, state: Tensor, action: Tensor, reward: float, mask: Tensor | None = None, *, done: bool = False
    ) -> None:
        """Store the reward of an action; the transition is complete when its next state is known."""
        mask = present(mask, self.slots)
        self._pending = {"state": state, "mask": mask, "action": action, "reward": torch.tensor(float(reward))}

    def follow(self, state: Tensor, mask: Tensor, draws: Draws) -> None:
        """Complete the pending transition with its next state, and learn."""
        if self._pending is None:
            return
        self.replay.push(**self._pending, following=state, following_mask=mask)
        self._pending = None
        stream = draws()
        for _ in range(self.settings.updates):
            self.learn(stream)

    def begin_episode(self, draws: Draws) -> None:
        self._pending = None

    def learn(self, stream: torch.Generator) -> None:
        """Do one learning step on transitions drawn uniformly; nothing while the replay is empty."""
        if not len(self.replay):
            return
        batch = self.replay.sample(self.settings.batch, stream)
        with torch.no_grad():
            best = self.network(batch["following"]).argmax(-1)
            after = _added(self.target(batch["following"]), best, batch["following_mask"])
            goal = batch["reward"] + self.settings.discount * after
        value = _added(self.network(batch["state"]), batch["action"].long(), batch["mask"])
        gradients = torch.autograd.grad(F.smooth_l1_loss(value, goal), self.network.parameters)
        self.optimiser.step(list(gradients))
        self.target.approach(self.network, self.settings.polyak)

    def state_dict(self) -> dict[str, Any]:
        return {
            "network": self.network.state_dict(),
            "target": self.target.state_dict(),
            "optimiser": self.optimiser.state_dict(),
            "replay": self.replay.state_dict(),
            "pending": self._pending,
        }

    def policy(self) -> dict[str, Any]:
        return {**self.state_dict(), "replay": Replay(1).state_dict(), "pending": None}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self.network.load_state_dict(state["network"])
        self.target.load_state_dict(state["target"])
        self.optimiser.load_state_dict(state["optimiser"])
        self.replay.load_state_dict(state["replay"])
        self._pending = state["pending"]


def _added(values: Tensor, options: Tensor, mask: Tensor) -> Tensor:
    """The values of these options, summed over the present slots; ``values`` is (batch, slots, options).  # (batch,)"""
    chosen = values.gather(-1, options.unsqueeze(-1)).squeeze(-1)
    return chosen.masked_fill(~mask, 0.0).sum(-1)
