"""Proximal policy optimisation (Schulman et al., 2017) over slots, some of which may be empty."""

from collections.abc import Mapping
from copy import deepcopy
from typing import Any, Literal

import torch
import torch.nn.functional as F
from pydantic import Field, PositiveInt
from torch import Tensor

from fedtailor.agents.actions import Kind
from fedtailor.agents.base import Agent, AgentSettings, Draws, present
from fedtailor.agents.heads import Head, Joint
from fedtailor.agents.networks import MLP, Network, PerSlot, seen
from fedtailor.agents.normaliser import Normaliser
from fedtailor.learning.optimisers import Adam


class PPOSettings(AgentSettings):
    """Settings of PPO."""

    network: Literal["flat", "per-slot"] = Field(
        "flat", description="`flat`: one MLP over all slots; `per-slot`: one MLP for each slot, for any cohort size"
    )
    hidden: tuple[PositiveInt, ...] = Field((64, 64), description="units of the hidden layers of actor and critic")
    actor_lr: float = Field(3e-4, gt=0, le=1, description="learning rate of the actor")
    critic_lr: float | None = Field(None, gt=0, le=1, description="learning rate of the critic; none: `actor_lr`")
    buffer: int | None = Field(
        None, ge=1, le=1_000_000, description="size of the buffer, in decisions; none: the decisions of one episode"
    )
    epochs: int = Field(10, ge=0, le=10_000, description="passes over the buffer per training; 0 never learns")
    critic_epochs: int | None = Field(
        None, ge=0, le=10_000, description="passes of the critic over the buffer; none: `epochs`"
    )
    critic_first: int = Field(
        0, ge=0, description="first trainings in which only the critic learns: untrained, it overrates early rounds"
    )
    batch: int = Field(64, ge=1, le=100_000, description="decisions per mini-batch")
    clip: float = Field(0.2, gt=0, lt=1, description="clipping range of the probability ratio")
    discount: float = Field(0.99, ge=0, lt=1, description="discount factor; 0: each decision is its own episode")
    gae_lambda: float = Field(
        0.95, ge=0, le=1, description="lambda of GAE; 1: use all later rewards, 0: use the critic's next value"
    )
    center_advantages: bool = Field(
        True, description="shift advantages to mean 0; false: a better episode than expected reinforces all its actions"
    )
    entropy: float = Field(0.0, ge=0, description="weight of the entropy bonus")
    max_grad_norm: float = Field(0.5, gt=0, description="largest gradient norm of actor and critic")
    standardise: bool = Field(False, description="standardise states by the mean and deviation of past episodes")

    def build(
        self, slots: int, features: int, actions: Mapping[str, Kind], stream: torch.Generator, **options: Any
    ) -> "PPO":
        return PPO(slots, features, {name: kind.head() for name, kind in actions.items()}, self, stream, **options)

    @property
    def can_learn(self) -> bool:
        return self.epochs > 0

    def describe(self) -> dict[str, str | int]:
        return {"network": f"{self.network} {'-'.join(map(str, self.hidden))}"}

    @property
    def any_slots(self) -> bool:
        return self.network == "per-slot"


class PPO(Agent):
    """A stochastic policy pi(a | s) that learns in small steps from the advantages that a critic V(s) estimates.

    A state has a row of features for every slot; a mask says which of the ``slots`` are present. Features that concern
    all slots (a server's own row) are repeated in every row. An action is one flat tensor, the numbers of the heads in
    their order; ``split`` returns them by name.

    Decisions are observed in the order of time. When the buffer is ``ready``, ``learn`` makes several passes over it
    and empties it. The networks do not change between two calls of ``learn``, so ``learn`` computes the probabilities
    of the actions and the values of the states when it begins. Every action must therefore be observed before the
    next ``learn``; otherwise it counts as an action of the new policy.
    """

    def __init__(
        self, slots: int, features: int, heads: Mapping[str, Head], settings: PPOSettings, stream: torch.Generator
    ):
        self.slots, self.features, self.settings = slots, features, settings
        self.heads = Joint(slots, deepcopy(dict(heads)))  # heads have learned parameters, so each agent has its own
        self.actor = self._network(sum(self.heads.per_slot), sum(self.heads.shared), stream)
        self.critic = self._network(0, 1, stream)
        self.actor_optimiser = Adam(self._policy, settings.actor_lr)
        self.critic_optimiser = Adam(self.critic.parameters, settings.critic_lr or settings.actor_lr)
        self.normaliser = Normaliser(features) if settings.standardise else None
        self.steps = 0  # number of trainings
        self._buffer: list[dict[str, Tensor]] = []

    # Act

    def act(self, state: Tensor, mask: Tensor | None = None, stream: torch.Generator | None = None) -> Tensor:
        """Choose an action in a state (slots, features): draw it with a stream, act greedily without one."""
        mask = present(mask, self.slots)
        with torch.no_grad():
            return self.heads.sample(self.actor(seen(self._standard(state), mask)), mask, stream)

    def split(self, action: Tensor) -> dict[str, Tensor]:
        """The numbers of an action, by the name of the head."""
        return self.heads.split(action)

    # Observe

    def observe(
        self, state: Tensor, action: Tensor, reward: float, mask: Tensor | None = None, *, done: bool = False
    ) -> None:
        """Store the reward of an action, in the order of time; ``done`` ends an episode."""
        mask = present(mask, self.slots)
        if self.normaliser is not None:
            self.normaliser.count(state, mask)
            state = self.normaliser(state)
        decision = {"state": state.masked_fill(~mask[:, None], 0.0), "mask": mask.clone(), "action": action.clone()}
        self._buffer.append({**decision, "reward": torch.tensor(float(reward)), "done": torch.tensor(float(done))})

    @property
    def ready(self) -> bool:
        """Whether the buffer is full or, without a size, holds a complete episode."""
        if self.settings.buffer is not None:
            return len(self._buffer) >= self.settings.buffer
        return bool(self._buffer) and bool(self._buffer[-1]["done"])

    # Learn

    def begin_episode(self, draws: Draws) -> None:
        """Learn from the previous episode if it ended without an observation of its last round."""
        if self.settings.buffer is None:
            self.learn(draws())

    def due(self, round: int, rounds: int) -> bool:
        """Whether the buffer is full or, without a size, the episode is over."""
        return round == rounds if self.settings.buffer is None else self.ready

    def end_round(self, round: int, rounds: int, draws: Draws) -> None:
        if self.due(round, rounds):
            self.learn(draws())

    def learn(
        self, stream: torch.Generator, following: Tensor | None = None, following_mask: Tensor | None = None
    ) -> None:
        """Learn from the buffer and empty it; does nothing if the buffer is empty.

        ``following`` is the state after the latest decision; without it, that decision ends its episode.
        """
        if not self._buffer:
            return
        buffer = _stacked(self._buffer)
        state, mask = buffer["state"], buffer["mask"]
        with torch.no_grad():
            buffer["log_probs"] = self._log_probs(state, mask, buffer["action"])
            values = self._value(state, mask)
            last = 0.0 if following is None else self.value(following, following_mask)
            buffer["advantage"] = advantages(
                buffer["reward"], values, buffer["done"], last, self.settings.discount, self.settings.gae_lambda
            )
            buffer["return"] = buffer["advantage"] + values
        acting = self.settings.epochs if self.steps >= self.settings.critic_first else 0
        judging = self.settings.epochs if self.settings.critic_epochs is None else self.settings.critic_epochs
        for epoch in range(max(acting, judging)):
            order = torch.randperm(len(values), generator=stream)
            for first in range(0, len(order), self.settings.batch):
                rows = order[first : first + self.settings.batch]
                batch = {name: column[rows] for name, column in buffer.items()}
                if epoch < acting:
                    self._step_actor(batch)
                if epoch < judging:
                    self._step_critic(batch)
        self._buffer = []
        self.steps += 1
        if self.normaliser is not None:
            self.normaliser.refresh()

    def _step_actor(self, batch: dict[str, Tensor]) -> None:
        state, mask, advantage = batch["state"], batch["mask"], batch["advantage"]
        if len(advantage) > 1:
            advantage = standardised(advantage, self.settings.center_advantages)
        logits = self.actor(seen(state, mask))
        ratios = (self.heads.log_probs(logits, mask, batch["action"]) - batch["log_probs"]).exp()  # (batch, heads)
        # Each head is clipped separately: a joint ratio would stop all heads as soon as one has moved far enough.
        gain = clipped(ratios, advantage[:, None], self.settings.clip).sum(1).mean()
        loss = -gain - self.settings.entropy * self.heads.entropy(logits, mask).mean()
        self.actor_optimiser.step(self._gradients(loss, self._policy))

    def _step_critic(self, batch: dict[str, Tensor]) -> None:
        error = F.mse_loss(self._value(batch["state"], batch["mask"]), batch["return"])
        self.critic_optimiser.step(self._gradients(error, self.critic.parameters))

    def imitate(self, state: Tensor, mask: Tensor, action: Tensor, lr: float) -> None:
        """Do one step that makes these actions (batch, numbers) more likely in these states."""
        loss = -self._log_probs(state, mask, action).sum(1).mean()
        gradients = self._gradients(loss, self._policy)
        usual, self.actor_optimiser.lr = self.actor_optimiser.lr, lr
        self.actor_optimiser.step(gradients)
        self.actor_optimiser.lr = usual

    def value(self, state: Tensor, mask: Tensor | None = None) -> float:
        """The critic's value of a state."""
        with torch.no_grad():
            return float(self._value(self._standard(state), present(mask, self.slots)))

    # Keep

    def state_dict(self) -> dict[str, Any]:
        """Everything that the agent has learned and stored."""
        return {
            "actor": self.actor.state_dict(),
            "critic": self.critic.state_dict(),
            "heads": self.heads.parameters,
            "actor_optimiser": self.actor_optimiser.state_dict(),
            "critic_optimiser": self.critic_optimiser.state_dict(),
            "normaliser": None if self.normaliser is None else self.normaliser.state_dict(),
            "buffer": _stacked(self._buffer),
            "steps": self.steps,
        }

    def policy(self) -> dict[str, Any]:
        return {**self.state_dict(), "buffer": {}}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self.actor.load_state_dict(state["actor"])
        self.critic.load_state_dict(state["critic"])
        with torch.no_grad():
            for own, stored in zip(self.heads.parameters, state["heads"], strict=True):
                own.copy_(stored)
        self.actor_optimiser.load_state_dict(state["actor_optimiser"])
        self.critic_optimiser.load_state_dict(state["critic_optimiser"])
        if self.normaliser is not None and state["normaliser"] is not None:
            self.normaliser.load_state_dict(state["normaliser"])
        columns = {name: rows.clone().unbind() for name, rows in state["buffer"].items()}
        self._buffer = [dict(zip(columns, row, strict=True)) for row in zip(*columns.values(), strict=True)]
        self.steps = state["steps"]

    # Inside

    @property
    def _policy(self) -> list[Tensor]:
        return [*self.actor.parameters, *self.heads.parameters]

    def _network(self, per_slot: int, shared: int, stream: torch.Generator) -> Network:
        """A network from `seen` states (..., slots * (features + 1)) to outputs (..., slots * per_slot + shared)."""
        if self.settings.network == "per-slot":
            return PerSlot(self.features, self.settings.hidden, per_slot, shared, stream)
        return MLP(self.slots * (self.features + 1), self.settings.hidden, self.slots * per_slot + shared, stream)

    def _standard(self, state: Tensor) -> Tensor:
        return state if self.normaliser is None else self.normaliser(state)

    def _log_probs(self, state: Tensor, mask: Tensor, action: Tensor) -> Tensor:
        return self.heads.log_probs(self.actor(seen(state, mask)), mask, action)  # (batch, heads)

    def _value(self, state: Tensor, mask: Tensor) -> Tensor:
        return self.critic(seen(state, mask)).squeeze(-1)  # (...)

    def _gradients(self, loss: Tensor, parameters: list[Tensor]) -> list[Tensor]:
        gradients = torch.autograd.grad(loss, parameters)
        norm = torch.stack([gradient.norm() for gradient in gradients]).norm()
        scale = (self.settings.max_grad_norm / (norm + 1e-6)).clamp(max=1.0)
        return [gradient * scale for gradient in gradients]


def clipped(ratio: Tensor, advantage: Tensor, clip: float) -> Tensor:
    """The clipped objective min(rho A, clip(rho, 1 - eps, 1 + eps) A)."""
    return torch.minimum(ratio * advantage, ratio.clamp(1 - clip, 1 + clip) * advantage)


def standardised(advantage: Tensor, center: bool) -> Tensor:
    """Divide advantages by their deviation: from their mean if centred, otherwise from 0, which keeps their signs."""
    if center:
        return (advantage - advantage.mean()) / (advantage.std() + 1e-8)
    return advantage / (advantage.square().mean().sqrt() + 1e-8)


def advantages(reward: Tensor, value: Tensor, done: Tensor, last: float, discount: float, gae_lambda: float) -> Tensor:
    """Generalised advantage estimation (Schulman et al., 2016) of decisions (steps,) in the order of time.

    A_t = delta_t + discount * gae_lambda * A_{t+1}, delta_t = r_t + discount * V(s_{t+1}) - V(s_t). The end of an
    episode stops the recursion.

    Parameters
    ----------
    reward, value, done
        For each decision: its reward, the value of its state, and 1 if it ended an episode, otherwise 0. (steps,)
    last
        The value of the state after the latest decision.
    discount, gae_lambda
        The discount factor and the lambda of the estimation.
    """
    following = torch.cat([value[1:], value.new_tensor([last])])
    delta = reward + discount * (1 - done) * following - value
    result: list[float] = []  # the latest first
    for surprise, ends in zip(delta.flip(0).tolist(), done.flip(0).tolist(), strict=True):
        result.append(surprise + discount * gae_lambda * (1 - ends) * (result[-1] if result else 0.0))
    return value.new_tensor(result[::-1])


def _stacked(decisions: list[dict[str, Tensor]]) -> dict[str, Tensor]:
    """The decisions as columns; empty without decisions."""
    return {name: torch.stack([decision[name] for decision in decisions]) for name in (decisions or [{}])[0]}
