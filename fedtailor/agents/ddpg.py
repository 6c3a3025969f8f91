"""Deep deterministic policy gradient (Lillicrap et al., 2015) over slots, some of which may be empty."""

from collections.abc import Mapping
from copy import deepcopy
from typing import Any, Literal, cast

import torch
import torch.nn.functional as F
from pydantic import Field, PositiveInt
from torch import Tensor

from fedtailor.agents.actions import Action, Kind
from fedtailor.agents.attention import Attention
from fedtailor.agents.base import Agent, AgentSettings, Draws, present
from fedtailor.agents.networks import MLP, Network, seen
from fedtailor.agents.replay import Replay
from fedtailor.learning.optimisers import Adam


class DDPGSettings(AgentSettings):
    """Settings of DDPG."""

    network: Literal["mlp", "attention"] = Field(
        "mlp",
        description="`mlp`: one MLP over all slots; `attention`: one network per slot, for any cohort size and order",
    )
    hidden: tuple[PositiveInt, ...] = Field((256, 256), description="units of the hidden layers of actor and critic")
    actor_lr: float = Field(1e-3, gt=0, le=1, description="learning rate of the actor")
    critic_lr: float = Field(1e-3, gt=0, le=1, description="learning rate of the critic")
    noise: float = Field(0.03, ge=0, le=100, description="standard deviation of the exploration noise on the logits")
    batch: int = Field(32, ge=1, le=100_000, description="transitions per learning step")
    capacity: int = Field(100_000, ge=1, description="capacity of the replay, in transitions")
    every: int = Field(1, ge=1, description="rounds between two trainings")
    updates: int = Field(5, ge=0, le=100_000, description="learning steps per training; 0 never learns")
    discount: float | None = Field(
        None, ge=0, lt=1, description="discount factor; none: each decision is its own episode"
    )
    polyak: float = Field(
        0.96, ge=0, lt=1, description="share of their weights that target networks keep per learning step"
    )
    penalty: float = Field(
        0.0, ge=0, description="weight of the squared logits (minus the prior) in the actor's loss; at 0 they saturate"
    )

    def build(
        self, slots: int, features: int, actions: Mapping[str, Kind], stream: torch.Generator, **options: Any
    ) -> "DDPG":
        (action,) = actions.values()
        return DDPG(slots, features, cast(Action, action), self, stream, **options)

    @property
    def can_learn(self) -> bool:
        return self.updates > 0

    def describe(self) -> dict[str, str | int]:
        return {"network": f"{self.network} {'-'.join(map(str, self.hidden))}"}

    @property
    def any_slots(self) -> bool:
        return self.network == "attention"


class DDPG(Agent):
    """An actor mu(s) that follows the gradient of a critic Q(s, a).

    A state has a row of features for every slot; a mask says which of the ``slots`` are present. With single-step
    episodes (``discount`` None) the critic's target is the reward itself, so there are no target networks. With a
    discount, consecutive observed states form a chain, and the target is r + discount * Q'(s', mu'(s')) with target
    networks mu' and Q'.

    Parameters
    ----------
    prior
        The index of the feature that holds initial logits; the actor learns what to add to them.
    exchangeable
        The number of leading slots whose order has no meaning: the replay shuffles them in every transition.
    action_scale, reward_scale
        Factors that scale actions and rewards for the critic.
    """

    def __init__(
        self,
        slots: int,
        features: int,
        action: Action,
        settings: DDPGSettings,
        stream: torch.Generator,
        *,
        prior: int | None = None,
        exchangeable: int = 0,
        action_scale: float = 1.0,
        reward_scale: float = 1.0,
    ):
        self.slots, self.action, self.settings = slots, action, settings
        self.prior, self.exchangeable = prior, exchangeable
        self.action_scale, self.reward_scale = action_scale, reward_scale
        hidden, outputs = settings.hidden, action.outputs
        if settings.network == "attention":
            self.actor: Network = Attention(features, hidden, outputs, 0, stream)
            self.critic: Network = Attention(features + outputs, hidden, 0, 1, stream)
        else:
            observed, acted = slots * (features + 1), slots * outputs  # a slot's features and its mask
            self.actor = MLP(observed, hidden, acted, stream)
            self.critic = MLP(observed + acted, hidden, 1, stream)
        self.networks = {"actor": self.actor, "critic": self.critic}
        if settings.discount is not None:
            self.networks |= {"target_actor": deepcopy(self.actor), "target_critic": deepcopy(self.critic)}
        self.actor_optimiser = Adam(self.actor.parameters, settings.actor_lr)
        self.critic_optimiser = Adam(self.critic.parameters, settings.critic_lr)
        self.replay = Replay(settings.capacity)
        self.steps = 0  # number of learning steps
        self._pending: dict[str, Tensor] | None = None  # the transition whose next state is not known yet

    # Act

    def act(self, state: Tensor, mask: Tensor | None = None, stream: torch.Generator | None = None) -> Tensor:
        """Choose an action in a state (slots, features): explore with a stream, act greedily without one."""
        mask = present(mask, self.slots)
        with torch.no_grad():
            logits = self._logits(self.actor, state, mask)
            if stream is not None:
                logits = logits + self.settings.noise * torch.randn(logits.shape, generator=stream)
            return self.action(logits, mask)

    # Observe

    def observe(
        self, state: Tensor, action: Tensor, reward: float, mask: Tensor | None = None, *, done: bool = False
    ) -> None:
        """Store the reward of an action. With a discount, call it in the order of time; ``done`` ends an episode."""
        mask = present(mask, self.slots)
        here = {"state": _masked(state, mask), "mask": mask.clone()}
        made = {**here, "action": action.clone(), "reward": torch.tensor(float(reward))}
        if self.settings.discount is None:
            self.replay.push(**made)
            return
        self._complete(here, done=False)
        self._pending = made
        if done:
            self._complete(here, done=True)

    def _complete(self, following: dict[str, Tensor], done: bool) -> None:
        """Complete the pending transition with its next state."""
        if self._pending is not None:
            following = {f"next_{name}": value for name, value in following.items()}
            self.replay.push(**self._pending, **following, done=torch.tensor(float(done)))
        self._pending = None

    # Learn

    def begin_episode(self, draws: Draws) -> None:
        self._pending = None

    def due(self, round: int, rounds: int) -> bool:
        """Whether this is an ``every``-th round."""
        return round % self.settings.every == 0

    def end_round(self, round: int, rounds: int, draws: Draws) -> None:
        if self.due(round, rounds):
            stream = draws()
            for _ in range(self.settings.updates):
                self.learn(stream)

    def learn(self, stream: torch.Generator) -> None:
        """Do one learning step on a batch from the replay; nothing while it is empty."""
        if not len(self.replay):
            return
        batch = self._sample(stream)
        state, mask = batch["state"], batch["mask"]
        target = self.target(batch)
        error = F.mse_loss(self._value(self.critic, state, mask, batch["action"]), target)
        self.critic_optimiser.step(list(torch.autograd.grad(error, self.critic.parameters)))
        logits = self._logits(self.actor, state, mask)
        loss = -self._value(self.critic, state, mask, self.action(logits, mask)).mean()
        if self.settings.penalty:
            loss = loss + self.settings.penalty * (logits - self._prior(state))[mask].square().mean()
        self.actor_optimiser.step(list(torch.autograd.grad(loss, self.actor.parameters)))
        if self.settings.discount is not None:
            self.networks["target_actor"].approach(self.actor, self.settings.polyak)
            self.networks["target_critic"].approach(self.critic, self.settings.polyak)
        self.steps += 1

    def _sample(self, stream: torch.Generator) -> dict[str, Tensor]:
        """Draw a batch from the replay, and shuffle the exchangeable slots of each transition."""
        batch = self.replay.sample(self.settings.batch, stream)
        count = self.exchangeable
        if not count:
            return batch
        rows = torch.arange(self.settings.batch)[:, None]
        order = torch.arange(self.slots).repeat(len(rows), 1)
        order[:, :count] = torch.rand(len(rows), count, generator=stream).argsort(1)
        return {name: column[rows, order] if column.dim() > 1 else column for name, column in batch.items()}

    def target(self, batch: dict[str, Tensor]) -> Tensor:
        """The critic's target for each transition.  # (batch,)"""
        reward = self.reward_scale * batch["reward"]
        if self.settings.discount is None:
            return reward
        with torch.no_grad():
            state, mask = batch["next_state"], batch["next_mask"]
            action = self.action(self._logits(self.networks["target_actor"], state, mask), mask)
            following = self._value(self.networks["target_critic"], state, mask, action)
            return reward + self.settings.discount * (1 - batch["done"]) * following

    def value(self, state: Tensor, action: Tensor, mask: Tensor | None = None) -> float:
        """The critic's value of an action in a state."""
        with torch.no_grad():
            value = self._value(self.critic, state[None], present(mask, self.slots)[None], action[None])
            return float(value) / self.reward_scale

    # Keep

    def state_dict(self) -> dict[str, Any]:
        """Everything that the agent has learned and stored."""
        return {
            "networks": {name: network.state_dict() for name, network in self.networks.items()},
            "actor_optimiser": self.actor_optimiser.state_dict(),
            "critic_optimiser": self.critic_optimiser.state_dict(),
            "replay": self.replay.state_dict(),
            "pending": self._pending,
            "steps": self.steps,
        }

    def policy(self) -> dict[str, Any]:
        return {**self.state_dict(), "replay": Replay(1).state_dict(), "pending": None}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        for name, network in self.networks.items():
            network.load_state_dict(state["networks"][name])
        self.actor_optimiser.load_state_dict(state["actor_optimiser"])
        self.critic_optimiser.load_state_dict(state["critic_optimiser"])
        self.replay.load_state_dict(state["replay"])
        self._pending = state["pending"]
        self.steps = state["steps"]

    # Inside

    def _logits(self, actor: Network, state: Tensor, mask: Tensor) -> Tensor:
        own = actor(seen(state, mask)).reshape(*mask.shape, self.action.outputs)  # (..., slots, outputs)
        return own + self._prior(state)

    def _prior(self, state: Tensor) -> Tensor | float:
        return 0.0 if self.prior is None else state[..., self.prior, None]

    def _value(self, critic: Network, state: Tensor, mask: Tensor, action: Tensor) -> Tensor:
        action = self.action_scale * action
        if self.settings.network == "attention":
            # the action on a slot is an additional feature of the slot
            state = torch.cat([state, action.reshape(*mask.shape, self.action.outputs)], -1)
            return critic(seen(state, mask)).squeeze(-1)
        return critic(torch.cat([seen(state, mask), action.flatten(1)], -1)).squeeze(-1)  # (batch,)


def _masked(state: Tensor, mask: Tensor) -> Tensor:
    """The state with zeros in empty slots."""
    return state.masked_fill(~mask.unsqueeze(-1), 0.0)
