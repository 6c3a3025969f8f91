"""The contract: a method is frozen settings plus functions over explicit state.

What changes lives in ``server.state``, ``server.memory[client]`` and ``client.state`` and nowhere else;
randomness comes from ``client.stream`` and ``server.stream``. The framework calls the moments below, moves
payloads, stores state and evaluates; a method never touches test data.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

from pydantic import BaseModel, ConfigDict, Field
from torch import Tensor

from fedtailor.learning import TrainingSettings
from fedtailor.messages.payload import Payload
from fedtailor.models import ModelSettings, Network, Part
from fedtailor.parties import Client, Decide, Range, Replies, Schema, Server, Steps, Tensors
from fedtailor.weights import Weights, select


@dataclass(frozen=True)
class Card:
    """What a user must know of a method besides its docstring: the fidelity card."""

    paper: str  # authors, title, venue
    year: int
    exchanged: str  # what travels down and up in a round
    client_state: str = "nothing"  # what a client keeps between rounds
    server_state: str = "the global model"
    cost: str = "that of FedAvg"  # extra computation of a round, in passes over the data
    limits: tuple[str, ...] = ()  # what it degenerates to, and when
    deviations: tuple[str, ...] = ()  # from the paper, and why
    only_sums: bool = True  # fits secure aggregation: the server needs only sums of what clients send
    shows_peers: bool = False  # clients receive models of other clients


Payloads = Mapping[int, Payload]


class Method(BaseModel):
    """Sample-weighted averaging of the shared part; subclasses change the moments they care about."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    name: ClassVar[str] = ""
    card: ClassVar[Card] = Card(paper="", year=0, exchanged="the shared part, down and up")
    shares: ClassVar[Part] = "all"  # what travels; the rest is private and stays on the client
    needs_validation: ClassVar[bool] = False
    carries: ClassVar[tuple[str, ...]] = ()  # what of server.state one episode hands to the next: the policy
    uses_clock: ClassVar[bool] = False  # decides by what tasks take; without devices, all of them are taken to be equal

    # Settings

    def check(self) -> None:
        """Before anything is written: raise a `UserError` if what the method needs is not on this machine."""

    def inert(self) -> str | None:
        """A sentence when the settings switch the method's own idea off."""
        return None

    def rehearsal(self) -> "Method":
        """The method as it runs while its agent is pre-trained."""
        return self

    def misfit(self, training: TrainingSettings, network: Network) -> str | None:
        """A sentence when the run's training settings or network break what the method rests on."""
        return None

    def passes(self, epochs: int) -> float:
        """Forward and backward passes over a client's data in a round; a forward pass alone counts 1/3."""
        return float(epochs)

    def pieces(self) -> int:
        """Into how many a mini-batch is cut, each with passes of its own."""
        return 1

    def arithmetic(self, steps: int, clients: int) -> float:
        """Multiply-adds of whole models in a client's round, on both sides, beside those of FedAvg.

        Of a round of so many mini-batches in a federation of so many clients, all of which take part.
        """
        return 0.0

    def shared(self, network: Network) -> frozenset[str]:
        """The names of the tensors that travel."""
        return network.part(self.shares)

    def family(self, model: ModelSettings) -> dict[str, ModelSettings]:
        """The networks that the method trains besides the run's own ``model``, by name.

        ``client.network_of(name)`` and ``server.family[name]`` are such a network; a payload's group and a server's
        model of that name (see ``models``) hold its tensors.
        """
        return {}

    # On the server

    def start_server(self, server: Server) -> None:
        """Once, before the first round; ``server.weights`` is the initial shared part."""

    def prepare(self, server: Server, cohort: Sequence[int]) -> Payloads | Steps:
        """A payload for each client of the cohort: the shared part of the global model.

        May be a generator that yields `Ask`, `Decide` and `Reward` and returns the payloads.
        """
        return dict.fromkeys(cohort, Payload({"model": server.weights}))

    def finish(self, server: Server, replies: Replies) -> Steps | None:
        """Take in the replies (at least one): the mean weighted by samples.

        May be a generator, like ``prepare``.
        """
        server.weights = server.average(replies)
        return None

    def models(self, server: Server) -> dict[str, Weights]:
        """The named, complete models the server holds: the global one where everything is shared.

        One with a name of the ``family`` is a model of that network, all others are of the run's own.
        """
        complete = {**server.initial, **server.weights}
        needed = frozenset(server.network.names) - server.network.statistics
        return {"global": complete} if needed <= server.shared else {}

    def decide(self, server: Server, question: Decide) -> Tensor:
        """The action of the method's agent."""
        raise NotImplementedError(f"{type(self).__name__} asks for {question.name!r} and has no agent")

    def learned(self, server: Server) -> dict[str, Any]:
        """The policy: what of ``server.state`` another run may start with."""
        return {key: server.state[key] for key in self.carries}

    def shape(self, server: Server) -> dict[str, int | str]:
        """What two runs must agree on to share a policy."""
        return {}

    # On a client

    def start_client(self, client: Client) -> None:
        """Once per client, before its first task."""

    def receive(self, client: Client, payload: Payload) -> None:
        """Load the shared part, keep the private part."""
        client.load(payload["model"])

    def fit(self, client: Client) -> None:
        """Local training."""
        client.train()

    def upload(self, client: Client) -> Payload:
        """The shared part and the number of samples."""
        return Payload({"model": select(client.weights(), client.shared)}, numbers={"samples": client.samples})

    def reply_schema(self, network: Network, shared: frozenset[str]) -> Schema:
        """What ``upload`` sends: names of groups and tensors, names and ranges of numbers.

        A method that changes ``upload`` extends the schema of the default.

        Parameters
        ----------
        network
            The run's network.
        shared
            The names of the tensors that travel in this run.

        Examples
        --------
        >>> super().reply_schema(network, shared).extended(numbers={"loss": Range(0)})
        """
        return Schema({"model": Tensors(shared)}, {"samples": Range(0, whole=True)})

    def adapt(self, client: Client) -> None:
        """Adapt the received model to a client that was not in the federation: fine-tune it.

        It follows ``receive`` and takes the place of ``fit``; ``personal`` comes after it. No run calls it yet.
        """
        client.train()

    def personal(self, client: Client) -> None:
        """Turn the model into the one this client would deploy. Works on a copy: nothing of it is kept."""


class AgentMethod(Method):
    """A method whose agent can be pre-trained."""

    policy: Path | None = Field(
        None, description="folder of a policy from 'fedtailor pretrain'; none: learn from scratch"
    )

    def reply_schema(self, network: Network, shared: frozenset[str]) -> Schema:
        """Anything, until the method declares more."""
        return Schema(open=True)
