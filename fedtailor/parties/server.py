"""The server as a method sees it."""

from collections.abc import Callable, Collection, Mapping, Sequence
from copy import copy
from dataclasses import replace
from typing import Any, overload

import torch
from torch import Tensor

from fedtailor.learning import TrainingSettings, seeded_noise, system_noise
from fedtailor.messages.payload import Payload
from fedtailor.messages.trees import pack, restore, unpack
from fedtailor.models import Network
from fedtailor.parties.aggregation import Aggregation
from fedtailor.parties.clock import Clock
from fedtailor.parties.decisions import Decisions
from fedtailor.parties.memory import Memory
from fedtailor.parties.moment import Moment
from fedtailor.parties.privacy import Privacy, private_mean
from fedtailor.robust import robust_mean
from fedtailor.weights import Weights, select


class Numbered(Sequence[str]):
    """The names of clients without names of their own. They take no memory, however many there are.

    >>> Numbered(3)[1], list(Numbered(2))
    ('client-1', ['client-0', 'client-1'])
    """

    def __init__(self, clients: int):
        self._clients = range(clients)

    def __len__(self) -> int:
        return len(self._clients)

    @overload
    def __getitem__(self, which: int) -> str: ...

    @overload
    def __getitem__(self, which: slice) -> list[str]: ...

    def __getitem__(self, which: int | slice) -> str | list[str]:
        if isinstance(which, slice):
            return [f"client-{client}" for client in self._clients[which]]
        return f"client-{self._clients[which]}"


class Server:
    """The server of a federation. Only ``state`` and ``memory`` outlive a call.

    Attributes
    ----------
    state : dict[str, Any]
        What the server keeps: tensors, numbers, strings, lists and dicts of those, `State` objects, and objects with
        ``state_dict()/load_state_dict()`` that ``start_server`` builds. ``state["model"]`` is ``server.weights``.
    memory : Memory
        What the server keeps per client.
    weights : Weights
        The shared part of the global model.
    initial : Weights
        The whole initial model.
    network : Network
        The run's network, to look up names of parts and layers.
    sizes : tuple[int, ...]
        The number of training samples of every client.
    names : sequence of str
        The name of every client.
    shared : frozenset[str]
        The names of the tensors that are exchanged.
    greedy : bool
        Whether decisions are greedy instead of exploratory.
    clock : Clock | None
        The time that tasks take on the clients' devices.

    Examples
    --------
    >>> def finish(self, server: Server, replies: Replies) -> None:
    ...     server.weights = server.average(replies)
    """

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
        names: Sequence[str] = (),
        aggregation: Aggregation | None = None,
        privacy: Privacy | None = None,
        expected_cohort: float | None = None,
    ):
        self.network = network
        self.family = dict(family or {})  # the method's other networks, with their initial weights
        self.initial: Weights = network.weights()
        self.sizes = sizes  # training samples of every client
        self.names: Sequence[str] = names or Numbered(len(sizes))
        self.training = training
        self.moment = moment
        self.shared = shared
        self.memory = memory
        self.greedy = greedy
        self.largest_cohort = len(sizes) if largest_cohort is None else largest_cohort
        self.aggregation = aggregation or Aggregation()
        self.privacy = privacy or Privacy()
        self.expected_cohort = len(sizes) if expected_cohort is None else expected_cohort  # mean number of clients
        self._clock = clock
        self.state: dict[str, Any] = {"model": select(self.initial, shared)}
        self.decisions = Decisions((), self)  # empty until the method has started

    @property
    def clients(self) -> int:
        """The number of clients of the federation."""
        return len(self.sizes)

    @property
    def round(self) -> int:
        """The number of this round, from 1."""
        return self.moment.round

    @property
    def rounds(self) -> int:
        """The number of rounds of the run."""
        return self.moment.rounds

    @property
    def clock(self) -> Clock | None:
        """The time of tasks on the clients' devices in this round; None if the run has no devices."""
        return None if self._clock is None else self._clock.at(self.moment)

    @property
    def weights(self) -> Weights:
        """The shared part of the global model."""
        model: Weights = self.state["model"]
        return model

    @weights.setter
    def weights(self, weights: Mapping[str, Tensor]) -> None:
        self.state["model"] = dict(weights)

    def average(
        self,
        replies: Mapping[int, Payload],
        group: str = "model",
        *,
        weights: Mapping[int, float] | None = None,
        names: Collection[str] | None = None,
        values: Mapping[int, Weights] | None = None,
    ) -> Weights:
        """The weighted mean of replies, by the run's rule of aggregation. Methods average replies only here.

        Parameters
        ----------
        replies
            The replies to average, in the order of client ids: the exact result depends on the order.
        group
            The group of tensors to average.
        weights
            The weight of each client, normalised to sum to one. By default the number ``samples`` in its reply.
        names
            The tensors of the group to average; all by default.
        values
            Tensors of each client to average instead of the group, computed from its reply, such as its change of the
            model.

        Examples
        --------
        >>> server.weights = server.average(replies)
        >>> equal = server.average(replies, weights=dict.fromkeys(replies, 1.0))
        """
        if self.privacy.hides_clients:
            if (group, names, values) != ("model", None, None):
                raise ValueError("a private run averages the group model once")
            return self._private_average(replies)
        rows = [reply[group] if values is None else values[client] for client, reply in replies.items()]
        if weights is None:
            shares = [reply.number("samples") for reply in replies.values()]
        else:
            shares = [weights[client] for client in replies]
        models = rows if names is None else [select(row, names) for row in rows]
        return robust_mean(models, shares, self.aggregation.rule, self.aggregation.malicious)

    def _private_average(self, replies: Mapping[int, Payload]) -> Weights:
        """The noisy mean of models; every client counts the same, whatever it claims."""
        settings = self.privacy
        normal = system_noise if settings.generator == "system" else seeded_noise(self.stream("privacy"))
        models = {client: reply["model"] for client, reply in sorted(replies.items())}
        return private_mean(self.weights, models, settings.clip, settings.noise, self.expected_cohort, normal)

    def stream(self, purpose: str) -> torch.Generator:
        """The server's random stream for a purpose in this round; each call restarts it.

        Parameters
        ----------
        purpose : str
            A name; streams of different purposes are independent.

        Returns
        -------
        torch.Generator
            A new generator at the start of the stream.

        Examples
        --------
        >>> order = torch.randperm(server.clients, generator=server.stream("order"))
        """
        return self.moment.stream("server", purpose)

    def restore(self, stored: dict[str, Any]) -> None:
        """Load a stored state."""
        self.state = restore(self.state, stored)

    def adopt(self, parts: Mapping[str, Any]) -> None:
        """Load some entries of a stored state; the others keep their initial values."""
        self.state |= restore({key: self.state.get(key) for key in parts}, dict(parts))

    def preview(self, start: Callable[["Server"], None]) -> "Server":
        """A copy that decides greedily. Its changes have no consequences."""
        other = copy(self)
        other.memory, other.greedy = self.memory.preview(), True
        other.state = {"model": select(self.initial, self.shared)}
        other.decisions = self.decisions.preview()
        start(other)
        other.restore(unpack(pack(self.state)))
        return other

    def welcoming(
        self, start: Callable[["Server"], None], client: int, samples: int, clock: Clock | None, name: str = ""
    ) -> "Server":
        """A preview that also knows a client from outside the federation, which has a higher id than all others."""
        other = self.preview(start)
        gap = client - len(self.sizes)
        other.sizes = (*self.sizes, *[0] * gap, samples)
        other.names = (*self.names, *[""] * gap, name or f"client-{client}")
        other._clock = clock
        return other

    def at(self, **place: int) -> None:
        """Move to another round or episode."""
        self.moment = replace(self.moment, **place)
