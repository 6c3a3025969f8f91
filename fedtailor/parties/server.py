"""The server as a method sees it."""

from collections.abc import Callable, Mapping
from copy import copy
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor

from fedtailor.learning import TrainingSettings
from fedtailor.messages.trees import pack, restore, unpack
from fedtailor.models import Network
from fedtailor.parties.clock import Clock
from fedtailor.parties.decisions import Decisions
from fedtailor.parties.memory import Memory
from fedtailor.parties.moment import Moment
from fedtailor.weights import Weights, select


class Server:
    """The server of a federation. Only ``state`` and ``memory`` outlive a call."""

    def __init__(
        self,
        network: Network,
        sizes: tuple[int, ...],
        training: TrainingSettings,
        moment: Moment,
        shared: frozenset[str],
        memory: Memory,
        greedy: bool = False,
        largest_cohort: int | None = None,
        clock: Clock | None = None,
        family: Mapping[str, Network] | None = None,
    ):
        self.network = network
        self.family = dict(family or {})  # the method's other networks, with their initial weights
        self.initial: Weights = network.weights()
        self.sizes = sizes  # training samples of every client
        self.training = training
        self.moment = moment
        self.shared = shared
        self.memory = memory
        self.greedy = greedy
        self.largest_cohort = len(sizes) if largest_cohort is None else largest_cohort  # clients in a round, at most
        self._clock = clock
        self.state: dict[str, Any] = {"model": select(self.initial, shared)}
        self.decisions = Decisions((), self)  # of the method's agents, once it has started

    @property
    def clients(self) -> int:
        return len(self.sizes)

    @property
    def round(self) -> int:
        return self.moment.round

    @property
    def rounds(self) -> int:
        return self.moment.rounds

    @property
    def clock(self) -> Clock | None:
        """What tasks take on the clients' devices in this round; None where nothing is known of devices."""
        return None if self._clock is None else self._clock.at(self.moment)

    @property
    def weights(self) -> Weights:
        """The shared part of the global model."""
        model: Weights = self.state["model"]
        return model

    @weights.setter
    def weights(self, weights: Mapping[str, Tensor]) -> None:
        self.state["model"] = dict(weights)

    def stream(self, purpose: str) -> torch.Generator:
        """The server's random stream for a purpose in this round; each call starts it afresh."""
        return self.moment.stream("server", purpose)

    def restore(self, stored: dict[str, Any]) -> None:
        """Go on from a stored state."""
        self.state = restore(self.state, stored)

    def adopt(self, parts: Mapping[str, Any]) -> None:
        """Take over some of a stored state; the rest stays as it is at the start."""
        self.state |= restore({key: self.state.get(key) for key in parts}, dict(parts))

    def preview(self, start: Callable[["Server"], None]) -> "Server":
        """A copy that decides greedily and whose changes have no consequences."""
        other = copy(self)
        other.memory, other.greedy = self.memory.preview(), True
        other.state = {"model": select(self.initial, self.shared)}
        other.decisions = self.decisions.preview()
        start(other)
        other.restore(unpack(pack(self.state)))
        return other

    def at(self, **place: int) -> None:
        """Move to another round or episode."""
        self.moment = replace(self.moment, **place)
