"""What pFedRLLA and pFedRLLA-after share: the models to mix, the agent's view of them, and its reward."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Annotated, Any, ClassVar, Literal

import torch
from pydantic import Field
from torch import Tensor

from fedtailor.agents import DDPGSettings, Simplex
from fedtailor.messages.payload import Payload, Rejected
from fedtailor.methods.base import AgentMethod
from fedtailor.methods.head_embedding import EmbeddingSettings, Learned, head_of, similarity
from fedtailor.models import Network
from fedtailor.parties import (
    Ask,
    Client,
    Decide,
    Decided,
    Decision,
    Feature,
    Key,
    Range,
    Replies,
    Reward,
    Schema,
    Server,
    Steps,
    Tensors,
)
from fedtailor.parties.state import State
from fedtailor.weights import Weights, combinations, select

HEAD = "head-weights"  # the name of the decision
OWN, FRESH = "own", "fresh"  # slots of the client's own model, before and after its training
PACE = 0.1  # step size of the running target accuracy
REWARDS = 5.0  # factor of the critic's rewards, which are of the order 1/5
SMALLEST = 1e-3  # smallest similarity, so that its logarithm exists
COUNTS = {"samples": Range("train", "train", whole=True), "validation": Range("val", "val", whole=True)}
FACTS = {**COUNTS, "accuracy": Range(0, 1)}

Shares = Mapping[Key, float]  # share of every model in a mix; they need not sum to one


@dataclass
class Peer(State):
    """A client's model on the server."""

    model: Weights
    samples: float
    trained: float  # the round in which the client last trained
    known: bool = True  # whether the client has ever trained

    @classmethod
    def of(cls, reply: Payload) -> "Peer":
        trained = reply.number("trained")
        return cls(reply["model"], reply.number("samples"), trained, bool(reply.numbers.get("known", 1)))


@dataclass
class Previous(State):
    """The previous cohort."""

    peers: dict[int, Peer] = field(default_factory=dict)
    version: int = 0  # version of the agent: a change tells clients to refresh the body that rewards are measured with


@dataclass
class Latest(State):
    """A client's latest training: ``client.state["latest"]``."""

    model: Weights = field(default_factory=dict)
    round: int | None = None  # None before the first training
    facts: dict[str, Any] = field(default_factory=dict)  # for the reply; only between `fit` and `upload`


class View:
    """The models that are mixed for a client: those of the previous cohort in the order of ids, then its own."""

    def __init__(self, target: int, own: Peer, peers: Mapping[int, Peer], round: int, fresh: bool = False):
        others = {j: peer for j, peer in peers.items() if j != target}
        models = [*others.values(), own]
        self.target, self.fresh, self.others = target, fresh, len(others)
        self.keys: list[Key] = [*others, OWN, *([FRESH] if fresh else [])]
        self.sizes = [peer.samples for peer in models] + ([own.samples] if fresh else [])
        self.ages = [round - peer.trained for peer in models] + ([0.0] if fresh else [])
        self.known = [peer.known for peer in models] + ([True] if fresh else [])
        # The target counts only if it was in the previous cohort; its own model is the same one or newer.
        self.cohort: Shares = {OWN if j == target else j: peer.samples for j, peer in peers.items()}

    def shares(self, rule: str, decided: Decided | None, gamma: float) -> Shares:
        """The share of every model by ``rule``: ``none`` (no mix), ``size`` or ``agent``."""
        if rule == "none":
            return {FRESH: 1.0} if self.fresh else self.cohort
        weights = self.sizes if decided is None or rule == "size" else decided.numbers("weights").tolist()
        # Shares are normalised later, so only differences of ages count; the newest models keep their weight.
        discounts = [gamma ** (age - min(self.ages)) for age in self.ages]
        rows = zip(self.keys, weights, discounts, self.known, strict=True)
        return {j: weight * discount for j, weight, discount, known in rows if known}


class HeadMixing(AgentMethod):
    """A method in which an agent mixes every client's head from those of the previous cohort and its own."""

    averages: ClassVar = False
    needs_validation: ClassVar = True
    uses_accuracy: ClassVar = True
    received_from_payload: ClassVar[bool] = True
    layout: ClassVar = 2
    carries: ClassVar = ("learned",)
    rewards_use: ClassVar = frozenset({"b1", "b2", "b3", "target"})
    own_slots: ClassVar[tuple[str, ...]] = (OWN,)

    body: Literal["none", "size", "agent"] = Field(
        "size", description="how bodies are averaged: `none` is the mean of the previous cohort alone"
    )
    head: Literal["none", "size", "agent"] = Field(
        "agent",
        description="how heads are mixed: `none` not at all, `size` by data size, `agent` by the agent's decision",
    )
    initial: bool = Field(True, description="whether all clients train alone before round 1")
    gamma: float = Field(
        1.0,
        ge=0,
        le=1,
        description="factor of a model's weight for each round since its client trained; 1: no discount",
    )
    b1: float = Field(1.0, ge=0, description="weight of the reward for accuracy above the target")
    b2: float = Field(1.0, ge=0, description="weight of the reward for accuracy gained by the mix")
    b3: float = Field(2.0, ge=0, description="weight of the penalty for weights that differ from the similarities")
    target: Annotated[float, Field(ge=0, le=1)] | Literal["running"] = Field(
        "running", description="target accuracy of the reward: a number, or the running mean"
    )
    embedding: EmbeddingSettings = EmbeddingSettings()

    @property
    def rules(self) -> dict[str, str]:
        """The rule that mixes each part that travels."""
        return {"body": self.body, "head": self.head}

    @property
    def agent(self) -> DDPGSettings:
        """The settings of the agent of the decision."""
        settings = self.agents.of(HEAD)
        assert isinstance(settings, DDPGSettings)
        return settings

    @property
    def acts(self) -> bool:
        """Whether the agent, or its replacement, mixes any part."""
        return "agent" in self.rules.values()

    def inert(self) -> str | None:
        if self.acts and self.agent.decider == "agent" and not self.agent.can_learn and not self.has_policy:
            return "updates = 0 without a policy: the agent never learns, weights stay random or near its prior"
        return None

    def idle_settings(self) -> frozenset[str]:
        if self.acts:
            return super().idle_settings()
        return self.agents_use | self.rewards_use | {"embedding"}

    def passes(self, epochs: int) -> float:
        """Training plus two forward passes over validation data, about a fifth of the training data."""
        return epochs + 2 / 3 / 5

    def models(self, server: Server) -> dict[str, Weights]:
        return {}

    # Decision and reward

    def decisions(self, server: Server) -> Sequence[Decision]:
        if not self.acts:
            return ()
        names = ("log age", "own", "log similarity") if self.sees_similarities else ("log age", "own")
        features = [Feature("embedding", self.embedding.size), *map(Feature, names)]
        slots = server.largest_cohort
        weights = slots + len(self.own_slots)  # scales actions to order one for any cohort size
        options = {"exchangeable": slots, "action_scale": weights, "reward_scale": REWARDS, **self.agent_options}
        return [
            Decision(
                HEAD,
                features,
                {"weights": Simplex()},
                self.agent,
                slots,
                own=self.own_slots,
                deciders={"similarity": None, "prior": None},
                options=options,
            )
        ]

    @property
    def sees_similarities(self) -> bool:
        """Whether the logarithms of the similarities, or what ``prior`` makes of them, are part of the state."""
        return True

    @property
    def agent_options(self) -> dict[str, Any]:
        return {}

    def start_server(self, server: Server) -> None:
        server.state["learned"] = Learned(self.embedding.build(server.stream("mhae")))
        server.state["previous"] = Previous()

    def learned(self, server: Server) -> dict[str, Any]:
        return {"learned": Learned(server.state["learned"].embedding)}

    def shape(self, server: Server) -> dict[str, int | str]:
        return {"embedding": self.embedding.describe(), "head layers": len(head_of(server, server.initial))}

    def embedded(self, server: Server, own: Mapping[int, Peer], peers: Mapping[int, Peer]) -> dict[Any, Tensor]:
        """The embeddings of all heads, by (whether in the previous cohort, client)."""
        models = {(False, k): peer.model for k, peer in own.items()} | {(True, k): p.model for k, p in peers.items()}
        known: Learned = server.state["learned"]
        return known.embed({key: head_of(server, model) for key, model in models.items()} if self.acts else {})

    def decide(self, view: View, embeddings: Mapping[Any, Tensor], peers: Mapping[int, Peer], sent: Payload) -> Steps:
        """Decide A_k of Alg. 2: the weights of the models in a view; None if the agent decides nothing."""
        if not embeddings:
            return None
        k = view.target
        rows = torch.stack([embeddings[key in peers, k if key == OWN else key] for key in view.keys if key != FRESH])
        similar, known = similarity(rows), torch.tensor(view.known)
        if view.fresh:  # its embedding is not known yet: it gets the similarity of the client's older model
            similar = torch.cat([similar, similar[-1:]]) * known
            similar = similar / similar.sum()
            rows = torch.cat([rows, torch.zeros(1, self.embedding.size)])
        near = self.prior(similar.clamp(min=SMALLEST).log()[:, None], known, view.others)
        ages = torch.tensor([view.ages]).T.float().log1p()
        flags = torch.tensor([[{OWN: 1.0, FRESH: -1.0}.get(str(key), 0.0)] for key in view.keys])
        columns = [rows, ages, flags, *([near] if self.sees_similarities else [])]
        seen = torch.cat(columns, 1) * known[:, None]  # (models, features)
        decided: Decided = yield Decide(
            HEAD,
            dict(zip(view.keys, seen, strict=True)),
            about=k,
            absent=[key for key, there in zip(view.keys, view.known, strict=True) if not there],
            context={
                "similarity": similar,
                "prior": near[:, 0].masked_fill(~known, -torch.inf).softmax(0),
                "judged": bool(sent.number("validation")),
                "before": sent.numbers.get("accuracy"),
            },
        )
        return decided

    def prior(self, near: Tensor, known: Tensor, others: int) -> Tensor:
        """The initial logits (models, 1), a feature of the agent: by default the logarithms of the similarities."""
        return near

    def rewards(self, server: Server, replies: Replies) -> Steps:
        """Reward every decision whose mix was judged, by eq. 1."""
        waiting = {k: server.decisions[HEAD, k] for k in replies if (HEAD, k) in server.decisions}
        judged = {k: replies[k].number("accuracy") for k, decided in waiting.items() if decided.context["judged"]}
        known: Learned = server.state["learned"]
        if judged and self.target == "running":
            mean = sum(judged.values()) / len(judged)
            known.running = mean if known.running is None else known.running + PACE * (mean - known.running)
        target = known.running if self.target == "running" else self.target
        for k, accuracy in judged.items():
            decided, before = waiting[k], waiting[k].context["before"]
            r1 = math.exp(accuracy - target) - 1  # type: ignore[operator]
            r2 = accuracy - replies[k].numbers.get("alone", before)
            gap = float((decided.numbers("weights") - decided.context["similarity"]).square().sum())
            yield Reward(decided, self.b1 * r1 + self.b2 * r2 - self.b3 * gap)

    def train_embedding(self, server: Server) -> bool:
        """Train in every warm-up round and whenever the agent learns (appendices E, G). Returns whether it learns."""
        if not self.acts or self.agent.decider != "agent":
            return False
        learns = server.decisions.due(server, HEAD)
        if learns or server.decisions.warming(server, HEAD):
            heads = [head_of(server, peer.model) for peer in server.state["previous"].peers.values()]
            server.state["learned"].train(heads, self.embedding.steps, server.stream("mhae"))
        return learns

    # Models on the server

    def collect(self, server: Server, cohort: Sequence[int]) -> Steps:
        """Collect the replies and models of the cohort and of the previous one; before round 1 all train alone."""
        if server.round == 1 and self.initial:
            everyone = cohort if server.greedy else range(server.clients)
            yield Ask("begin", dict.fromkeys(everyone, Payload({"model": server.weights})))
        sent: Replies = yield Ask("send", dict.fromkeys(cohort, Payload()))
        own = {k: Peer.of(reply) for k, reply in sent.items()}
        previous: Previous = server.state["previous"]
        if not previous.peers:  # round 1, or all clients failed in the round before
            previous.peers = dict(list(own.items())[: server.largest_cohort])
        return sent, own, dict(previous.peers)

    def welcome(self, server: Server, client: int) -> Steps:
        """A new client trains alone first, as all do before round 1: its head's embedding decides about its mix."""
        yield Ask("begin", {client: Payload({"model": server.weights})})
        return (yield from self.prepare(server, [client]))  # type: ignore[misc]

    # On a client

    def start_client(self, client: Client) -> None:
        client.state["latest"] = Latest()

    def begin(self, client: Client, payload: Payload) -> Payload:
        """Train alone, from the initial model."""
        client.load(payload["model"])
        client.train()
        self.keep(client, client.round - 1)
        return Payload()

    def keep(self, client: Client, round: int, facts: Mapping[str, Any] | None = None) -> None:
        """Keep the model, the round in which it was trained, and the facts for the reply."""
        client.state["latest"] = Latest(select(client.weights(), client.shared), round, dict(facts or {}))

    def facts(self, client: Client) -> dict[str, Any]:
        """The numbers of samples, and the validation accuracy of the network's model."""
        return {**self.counts(client), "accuracy": client.evaluate("val").accuracy}

    def counts(self, client: Client) -> dict[str, Any]:
        """The numbers of training and validation samples."""
        return {"samples": client.samples, "validation": len(client.data("val")[1])}

    def reply_schema(self, network: Network, shared: frozenset[str]) -> Schema:
        return Schema({"model": Tensors(shared)}, FACTS)

    def ask_schema(self, name: str, network: Network, shared: frozenset[str]) -> Schema:
        """``begin`` sends nothing; ``send`` also sends the round in which the model was trained."""
        sent = Schema({"model": Tensors(shared)}, {**FACTS, "trained": Range(0, whole=True)})
        return Schema() if name == "begin" else sent

    def check_reply(self, server: Server, client: int, reply: Payload, question: str = "") -> None:
        if "trained" in reply.numbers and reply.number("trained") > server.round:
            raise Rejected(f"trained is {reply.number('trained')}, a round to come")


def mixes(
    server: Server, shares: Mapping[int, Mapping[str, Shares]], own: Mapping[int, Peer], peers: Mapping[int, Peer]
) -> dict[int, Weights]:
    """The mixes of all clients, part by part: a matrix of shares times the models as rows."""
    mixed: dict[int, Weights] = {k: {} for k in shares}
    models = [peer.model for peer in (*peers.values(), *(own[k] for k in shares))]
    places = {j: i for i, j in enumerate(peers)}
    for part in ("body", "head"):
        names = server.network.part(part) & server.shared
        if not names or not shares or part not in next(iter(shares.values())):
            continue
        matrix = torch.zeros(len(shares), len(models), dtype=torch.double)  # (clients, models)
        for row, of in enumerate(shares.values()):
            for j, share in of[part].items():
                matrix[row, len(peers) + row if j == OWN else places[int(j)]] = share
        found = combinations([select(model, names) for model in models], matrix)
        for k, weights in zip(shares, found, strict=True):
            mixed[k] |= weights
    return mixed
