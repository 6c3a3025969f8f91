"""Value decomposition (Sunehag et al., 2018): one choice for every slot, whose values are added."""

from copy import deepcopy
from dataclasses import dataclass
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from fedtailor.agents.networks import MLP
from fedtailor.agents.replay import Replay
from fedtailor.learning.optimisers import Adam


@dataclass(frozen=True)
class VDNSettings:
    """The numbers of the algorithm."""

    hidden: tuple[int, ...] = (64, 64)  # units of the hidden layers
    lr: float = 1e-3
    batch: int = 32  # transitions in one step of learning
    capacity: int = 10_000  # transitions in the replay
    discount: float = 0.9  # of the next value
    polyak: float = 0.96  # what the target network keeps of itself in a step


class VDN:
    """Q(s, a) = sum over the present slots k of q(s_k, a_k), with one network q for all slots.

    So the best action is the best option of every slot, in any number and order of slots. Learning is double Q-learning
    (van Hasselt et al., 2016): the target r + discount * Q'(s', argmax Q(s')) has the options of the network and the
    values of a target network that follows it.
    """

    def __init__(self, slots: int, features: int, options: int, settings: VDNSettings, stream: torch.Generator):
        self.slots, self.options, self.settings = slots, options, settings
        self.network = MLP(features, settings.hidden, options, stream)
        self.target = deepcopy(self.network)
        self.optimiser = Adam(self.network.parameters, settings.lr)
        self.replay = Replay(settings.capacity)

    def act(self, state: Tensor, mask: Tensor, epsilon: float = 0.0, stream: torch.Generator | None = None) -> Tensor:
        """An option for every slot of a state (slots, features), 0 in empty ones; with a stream, each at random with
        probability ``epsilon``.  # (slots,)
        """
        with torch.no_grad():
            chosen = self.network(state).argmax(-1)
        if stream is not None:
            explores = torch.rand(self.slots, generator=stream) < epsilon
            chosen = torch.where(explores, torch.randint(self.options, (self.slots,), generator=stream), chosen)
        return chosen.float().masked_fill(~mask, 0.0)

    def observe(
        self, state: Tensor, mask: Tensor, action: Tensor, reward: float, following: Tensor, following_mask: Tensor
    ) -> None:
        """Remember what an action brought, and the state after it."""
        self.replay.push(
            state=state,
            mask=mask,
            action=action,
            reward=torch.tensor(float(reward)),
            following=following,
            following_mask=following_mask,
        )

    def learn(self, stream: torch.Generator) -> None:
        """One step towards the target, from transitions drawn evenly; nothing before the first."""
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
        }

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self.network.load_state_dict(state["network"])
        self.target.load_state_dict(state["target"])
        self.optimiser.load_state_dict(state["optimiser"])
        self.replay.load_state_dict(state["replay"])


def _added(values: Tensor, options: Tensor, mask: Tensor) -> Tensor:
    """The values (batch, slots, options) of these options, added over the present slots.  # (batch,)"""
    chosen = values.gather(-1, options.unsqueeze(-1)).squeeze(-1)
    return chosen.masked_fill(~mask, 0.0).sum(-1)
