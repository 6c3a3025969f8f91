"""The contract of methods: frozen settings plus functions over explicit state.

Mutable state lives only in ``server.state``, ``server.memory[client]`` and ``client.state``. Randomness comes from
``client.stream`` and ``server.stream``. The framework calls the functions below, moves payloads, stores state and
evaluates. A method never touches test data.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar, Literal, Self

from pydantic import BaseModel, ConfigDict, Field

from fedtailor.learning import TrainingSettings
from fedtailor.messages.payload import Payload
from fedtailor.models import Inputs, ModelSettings, Network, Part
from fedtailor.parties import (
    BUILT_IN,
    NO_POLICY,
    AgentTables,
    Client,
    Decision,
    Decisions,
    Range,
    Replies,
    Schema,
    Server,
    Steps,
    Tensors,
    read_policy,
    shipped_policies,
)
from fedtailor.weights import Weights, select


@dataclass(frozen=True)
class Formerly:
    """The default of a setting in results from before its present default: a record's key leaves out this one."""

    value: Any


@dataclass(frozen=True)
class Card:
    """The fidelity card: what a user must know about a method besides its docstring."""

    paper: str  # authors, title, venue
    year: int
    exchanged: str  # what is sent down and up in a round
    client_state: str = "nothing"  # what a client keeps between rounds
    server_state: str = "the global model"
    cost: str = "as FedAvg"  # extra computation of a round, in passes over the data
    limits: tuple[str, ...] = ()  # what it degenerates to, and with which settings
    deviations: tuple[str, ...] = ()  # deviations from the paper, and why
    only_sums: bool = True  # whether secure aggregation is possible: the server needs only sums of replies
    shows_peers: bool = False  # whether clients receive models of other clients
    keeps_models: bool = False  # whether the server keeps a model of every client


Payloads = Mapping[int, Payload]


def _promises(kind: type, promise: str, moments: set[str]) -> bool:
    """Whether a class keeps a promise: the nearest class that declares it or overrides one of its functions decides."""
    nearest = next(base for base in kind.__mro__ if {promise, *moments} & vars(base).keys())
    return bool(vars(nearest).get(promise, False))


class Method(BaseModel):
    """Sample-weighted averaging of the shared part. A subclass overrides the functions that its method changes.

    The fields of a method are its hyper-parameters, frozen and checked by pydantic. A method holds nothing that
    changes: state lives in ``server.state``, ``server.memory[client]`` and ``client.state``. A card is optional; it
    stands below the class.

    Attributes
    ----------
    name : str
        The name in settings, for methods of the catalogue.
    card : Card
        What a user must know about the method besides its docstring.
    shares : Part
        The part of the model that is exchanged; the rest is private.
    needs_validation : bool
        Whether clients need validation data.
    counts_epochs : bool
        Whether the method chooses numbers of epochs; it then ignores ``training.steps``.
    layout : int
        The version of what its state holds. Raise it with every change: runs of another version are not resumed.
    uses_clock : bool
        Whether the method's decisions depend on the time of tasks. Without devices, all devices are equal.

    Examples
    --------
    >>> class FedProx(Method):
    ...     mu: float = Field(0.1, ge=0)
    ...
    ...     def fit(self, client: Client) -> None:
    ...         client.train(toward=client.received, pull=self.mu)
    >>> FedProx.card = Card(paper="Li et al., MLSys", year=2020, exchanged="the model down, the model up")
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    name: ClassVar[str] = ""
    card: ClassVar[Card] = Card(paper="", year=0, exchanged="the shared part, down and up")
    shares: ClassVar[Part] = "all"  # the part that is exchanged; the rest is private and stays on the client
    needs_validation: ClassVar[bool] = False
    uses_clock: ClassVar[bool] = False  # whether decisions depend on the time of tasks
    uses_accuracy: ClassVar[bool] = False  # whether rewards or weights depend on accuracy, which a regression lacks
    averages: ClassVar[bool] = True  # whether finish calls server.average, which aggregation.rule is about
    counts_epochs: ClassVar[bool] = False  # whether it chooses numbers of epochs and ignores training.steps
    layout: ClassVar[int] = 1  # raised by every change of what server.state, server.memory or client.state hold
    # Promises: two save work in evaluation, two make privacy possible. A class that overrides one of the named
    # functions breaks the promise unless it repeats it: `received_from_payload: ClassVar[bool] = True`.
    received_from_payload: ClassVar[bool] = True  # start_client, receive: load the payload's model and nothing else
    pure_prepare: ClassVar[bool] = True  # prepare: it changes nothing, and payloads depend only on server.state
    averages_once: ClassVar[bool] = True  # upload, finish: replies serve one server.average of models alone
    trains_only: ClassVar[bool] = True  # receive, fit, upload, personal: only client.train uses a client's data
    changes: ClassVar[frozenset[str]] = frozenset()  # the names that a class and its bases below this one define

    def __init_subclass__(cls, **settings: Any) -> None:
        super().__init_subclass__(**settings)
        cls.changes = frozenset(name for base in cls.__mro__[: cls.__mro__.index(Method)] for name in vars(base))
        cls.received_from_payload = _promises(cls, "received_from_payload", {"start_client", "receive"})
        cls.pure_prepare = _promises(cls, "pure_prepare", {"prepare"})
        cls.averages_once = _promises(cls, "averages_once", {"upload", "finish"})
        cls.trains_only = _promises(cls, "trains_only", {"receive", "fit", "upload", "personal"})

    @classmethod
    def may_show_peers(cls) -> bool:
        """Whether clients may receive models of other clients; a new ``prepare`` without a card may send them."""
        return cls.card.shows_peers or ("card" not in vars(cls) and "prepare" in cls.changes)

    # Settings

    def check(self) -> None:
        """Raise a `UserError` if this machine lacks something that the method needs. Called before any write."""

    def inert(self) -> str | None:
        """A sentence if the settings disable the method's own idea; otherwise None."""
        return None

    def idle_settings(self) -> frozenset[str]:
        """The names of settings that change nothing in a run while the others stay as they are; by default none."""
        return frozenset()

    def misfit(self, training: TrainingSettings, network: Network) -> str | None:
        """A sentence if the run's training settings or network break an assumption of the method; otherwise None."""
        if self.counts_epochs and training.steps is not None:
            return "training.steps does not count: the method counts in epochs, training.epochs on average"
        return None

    def total(self) -> str | None:
        """A clause if results depend on the number of rounds, so that a run cannot get more of them; otherwise None.

        What the schedule of the learning rate and the method's decisions imply is known without it.
        """
        return None

    def coincides(self, other: "Method", training: TrainingSettings) -> str | None:
        """A sentence if clients deploy the same models as with another method, by construction; otherwise None."""
        return None

    def passes(self, epochs: int) -> float:
        """The number of forward and backward passes over a client's data per round; a forward pass alone counts 1/3."""
        return float(epochs)

    def pieces(self) -> int:
        """The number of parts into which a mini-batch is split, each with its own passes."""
        return 1

    def arithmetic(self, steps: int, clients: int) -> float:
        """Additional multiply-adds of whole models per client and round, on client and server, compared with FedAvg.

        Parameters
        ----------
        steps
            Mini-batches per round.
        clients
            The number of clients, all of which take part.
        """
        return 0.0

    def shared(self, network: Network) -> frozenset[str]:
        """The names of the tensors that are exchanged."""
        return network.part(self.shares)

    def family(self, model: ModelSettings) -> dict[str, ModelSettings]:
        """The networks that the method trains besides the run's own ``model``, by name.

        ``client.network_of(name)`` and ``server.family[name]`` return such a network. A payload's group and a server's
        model of that name (see ``models``) hold its tensors.
        """
        return {}

    @property
    def assumes_devices(self) -> bool:
        """Whether a run without a table ``[devices]`` has mildly different ones; by default it has none."""
        return False

    def completed(self, model: ModelSettings, inputs: Inputs) -> Self:
        """The method with the settings that it derives from the run's own ``model``; by default there are none."""
        return self

    # On the server

    def start_server(self, server: Server) -> None:
        """Set up ``server.state`` and build the objects in it. By default nothing.

        Called once before the first round, and before a stored state is restored. ``server.weights`` is the initial
        shared part.
        """

    def prepare(self, server: Server, cohort: Sequence[int]) -> Payloads | Steps:
        """Make a payload for each client of the cohort. By default the shared part of the global model.

        It may be a generator that yields `Ask`, `Decide` and `Reward` and returns the payloads.

        Parameters
        ----------
        server
            The server.
        cohort
            The ids of the clients of this round.

        Examples
        --------
        >>> return {client: Payload({"model": server.weights}) for client in cohort}
        """
        return dict.fromkeys(cohort, Payload({"model": server.weights}))

    def welcome(self, server: Server, client: int) -> Payloads | Steps:
        """Make the payload of a client that was not in the federation. By default as ``prepare``.

        The server is a copy that decides greedily and whose changes are not kept. ``server.sizes`` has the client's
        number of samples at its id, which is above those of the federation. It may be a generator, like ``prepare``; a
        `UserError` refuses the client.
        """
        return self.prepare(server, [client])

    def finish(self, server: Server, replies: Replies) -> Steps | None:
        """Take in the replies. By default ``server.weights`` becomes their mean, weighted by samples.

        It may be a generator, like ``prepare``.

        Parameters
        ----------
        server
            The server.
        replies
            The replies of the clients that answered, at least one. ``replies.failed`` lists the other clients.

        Examples
        --------
        >>> server.weights = server.average(replies)
        """
        server.weights = server.average(replies)
        return None

    def models(self, server: Server) -> dict[str, Weights]:
        """The complete models that the server holds, by name. By default the global model, if everything is shared.

        A model with a name of the ``family`` belongs to that network, all others to the run's own.
        """
        complete = {**server.initial, **server.weights}
        needed = frozenset(server.network.names) - server.network.statistics
        return {"global": complete} if needed <= server.shared else {}

    def decisions(self, server: Server) -> Sequence[Decision]:
        """The decisions of the method's agents."""
        return ()

    # On a client

    def start_client(self, client: Client) -> None:
        """Set up ``client.state`` and build the objects in it, before the client's first task. By default nothing."""

    def receive(self, client: Client, payload: Payload) -> None:
        """Take in what the server sent. By default load the shared part and keep the private part."""
        client.load(payload["model"])

    def fit(self, client: Client) -> None:
        """Train on the client's data. By default the whole model, by the run's settings."""
        client.train()

    def upload(self, client: Client) -> Payload:
        """Make the reply to the server. By default the shared part and the number of samples."""
        return Payload({"model": select(client.weights(), client.shared)}, numbers={"samples": client.samples})

    def reply_schema(self, network: Network, shared: frozenset[str]) -> Schema:
        """What ``upload`` sends: names of groups and tensors, names and ranges of numbers.

        A method that changes ``upload`` extends the schema of the default.

        Parameters
        ----------
        network
            The run's network.
        shared
            The names of the tensors that are exchanged in this run.

        Examples
        --------
        >>> super().reply_schema(network, shared).extended(numbers={"loss": Range(0)})
        """
        return Schema({"model": Tensors(shared)}, {"samples": Range("train", "train", whole=True)})

    def ask_schema(self, name: str, network: Network, shared: frozenset[str]) -> Schema:
        """What the method's function ``name`` sends in answer to an `Ask`. By default what ``upload`` sends."""
        return self.reply_schema(network, shared)

    def check_reply(self, server: Server, client: int, reply: Payload, question: str = "") -> None:
        """Raise `Rejected` if a reply does not fit what the server knows. By default nothing is checked.

        Called for each reply alone, before ``finish`` sees it and after the schema has been checked. It checks what a
        schema cannot say, such as the ids of peers; it changes nothing.

        Parameters
        ----------
        server
            The server.
        client
            The client that sent the reply.
        reply
            The reply.
        question
            The name of the `Ask` that the reply answers; empty for the reply of ``upload``.
        """

    def adapt(self, client: Client) -> None:
        """Turn the received model into that of a client that was not in the federation. By default fine-tune it.

        It replaces ``fit`` and ``personal``: it is called after ``receive`` and leaves the model that the client would
        deploy. ``client.train()`` makes as many passes over the data as the user asks for.
        """
        client.train()

    def personal(self, client: Client) -> None:
        """Turn the model into the one that this client would deploy. It works on a copy that is not kept."""


class AgentMethod(Method):
    """A method whose agents can be pre-trained."""

    carries: ClassVar[tuple[str, ...]] = ()  # entries of server.state that the next episode keeps, besides the agents
    rehearses: ClassVar["type[AgentMethod] | None"] = None  # the method whose agents this one pre-trains

    # The deciders that decide where no built-in policy does, by decision; empty: the agents learn from scratch.
    best_rules: ClassVar[Mapping[str, str]] = {}

    agents_use: ClassVar[frozenset[str]] = frozenset()  # settings that only agents use: idle while rules decide
    rewards_use: ClassVar[frozenset[str]] = frozenset()  # settings of rewards: idle while no agent learns

    policy: Literal["built-in", "none"] | Path = Field(
        BUILT_IN,
        description="`built-in`: the policy of the package, or the rule that no agent of ours beats, unless a table of "
        "an agent is changed; `none`: learn from scratch; or the folder of a policy from 'fedtailor pretrain'",
    )

    agents: AgentTables = AgentTables()

    @property
    def has_policy(self) -> bool:
        """Whether the agents of a run begin with a policy."""
        return self.own_policy is not None or (self.policy == BUILT_IN and bool(self.best_rules))

    @property
    def own_policy(self) -> Path | None:
        """The folder of a policy that the user names."""
        return self.policy if isinstance(self.policy, Path) else None

    @property
    def uses_built_in(self) -> bool:
        """Whether a built-in policy, or a rule in its place, decides: not if the user has changed an agent's table."""
        if self.policy != BUILT_IN or self.rehearses is not None:
            return False
        usual = type(self).model_fields["agents"].get_default(call_default_factory=True)
        tables = [type(self).model_validate(card.get("settings", {})).agents for card in self.shipped().values()]
        return bool(self.best_rules) and self.agents in [usual, *tables]

    @classmethod
    def shipped(cls) -> Mapping[str, Mapping[str, Any]]:
        """The cards of the policies that the package has for this very class, not for its bases."""
        return shipped_policies(vars(cls).get("name", ""))

    def check(self) -> None:
        if self.own_policy is not None:
            read_policy(self.own_policy)

    def rule(self) -> str | None:
        """The rules that decide with these settings; None if an agent decides, or may decide."""
        deciders = {name: table.decider for name, table in self.agents}
        if self.uses_built_in and not any(self.may_fit(card["shape"]) for card in self.shipped().values()):
            deciders |= {name.replace("-", "_"): rule for name, rule in self.best_rules.items()}
        rules = dict.fromkeys(deciders.values())
        return None if not rules or "agent" in rules else " and ".join(rules)

    def idle_settings(self) -> frozenset[str]:
        if self.rule() not in (None, "random"):
            return self.agents_use | self.rewards_use
        learns = any(table.learns(self.has_policy) for _, table in self.agents)
        return frozenset() if learns else self.rewards_use

    def inert(self) -> str | None:
        idle = [name for name, agent in self.agents if agent.decider == "agent" and not agent.learns(False)]
        if idle and not self.has_policy:
            return f"without a policy, these agents do not learn: {', '.join(idle)}"
        return None

    def rehearsal(self) -> "AgentMethod":
        """The method during pre-training: its agents learn, from scratch or from the user's own policy."""
        return self.model_copy(
            update={"agents": self.agents.changed(learn="always"), "policy": self.own_policy or NO_POLICY}
        )

    def environment(self) -> "AgentMethod":
        """The method in a gymnasium environment: as in pre-training, but actions come from outside."""
        rehearsal = self.rehearsal()
        return rehearsal.model_copy(update={"agents": rehearsal.agents.changed(learn="never")})

    def learned(self, server: Server) -> dict[str, Any]:
        """The entries of ``server.state`` that belong to the policy, besides the agents."""
        return {key: server.state[key] for key in self.carries}

    def shape(self, server: Server) -> dict[str, int | str]:
        """The properties that must be equal in two runs that share a policy, besides the shapes of the decisions."""
        return {}

    def may_fit(self, shape: Mapping[str, int | str]) -> bool:
        """Whether a built-in policy of this shape may fit, as far as the settings alone tell."""
        return True


def start(method: Method, server: Server, keeps_best: bool = False) -> None:
    """Start a method on a server: its agents, and its own state."""
    policy = isinstance(method, AgentMethod) and method.has_policy
    server.decisions = Decisions(method.decisions(server), server, policy, keeps_best)
    method.start_server(server)


def shape(method: Method, server: Server) -> dict[str, int | str]:
    """The properties that must be equal in two runs of a method that share a policy."""
    return {**server.decisions.shape(), **(method.shape(server) if isinstance(method, AgentMethod) else {})}
