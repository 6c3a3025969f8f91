import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import ClassVar

import torch
from pydantic import Field

from fedtailor.messages.payload import Payload, Rejected
from fedtailor.methods.base import Card, Method, Payloads
from fedtailor.models import Network
from fedtailor.parties import Client, Range, Replies, Schema, Server, State, check_peers
from fedtailor.weights import Weights, delta, learned, mean, norm, select


@dataclass
class Trained(State):
    """A client's own models: ``client.state["trained"]``; empty before its first training."""

    model: Weights = field(default_factory=dict)
    before: Weights = field(default_factory=dict)  # v, the model before its last training
    weights: dict[int, float] = field(default_factory=dict)  # w_n of this round; only until `upload`


class FedFomo(Method):
    """Every client weights the models of other clients by how much they reduce its loss (Zhang et al., 2021).

    Exchanged: the models of up to M peers down; the client's model and its raw weights up.
    Client: with v the model before its last training and its own trained model among the candidates,
    w_n = (L(v) - L(theta_n)) / |theta_n - v| on its validation data; negative ones are set to 0, the rest sum to 1;
    theta = v + sum_n w_n (theta_n - v), its own model if all are 0; then E epochs of SGD.
    Server: keeps every client's last model and affinities P_in, to which the raw w_n are added; sends the M
    models of largest affinity, or with probability epsilon M random ones.
    """

    name: ClassVar = "fedfomo"
    averages: ClassVar = False
    needs_validation: ClassVar = True
    layout: ClassVar = 2

    M: int = Field(5, ge=0, le=10_000, description="number of peers' models that a client downloads per round")
    epsilon: float = Field(0.3, ge=0, le=1, description="probability that a client's peers are drawn at random")
    decay: float = Field(0.05, ge=0, le=1, description="decrease of epsilon per round, down to 0")

    def inert(self) -> str | None:
        return "M = 0 downloads no model: this is Local-only" if self.M == 0 else None

    def idle_settings(self) -> frozenset[str]:
        if self.M == 0:
            return frozenset({"epsilon", "decay"})
        return frozenset() if self.epsilon else frozenset({"decay"})

    def passes(self, epochs: int) -> float:
        """Training plus forward passes over validation data, about a fifth of the training data."""
        return epochs + (self.M + 2) / 3 / 5

    def prepare(self, server: Server, cohort: Sequence[int]) -> Payloads:
        chosen = {i: self._peers(server, i) for i in cohort}
        needed = sorted({n for peers in chosen.values() for n in peers})
        models = {n: server.memory.peek(n)["model"] for n in needed}
        return {i: Payload({f"peer/{n}": models[n] for n in peers}) for i, peers in chosen.items()}

    def start_client(self, client: Client) -> None:
        client.state["trained"] = Trained()

    def receive(self, client: Client, payload: Payload) -> None:
        trained: Trained = client.state["trained"]
        client.load(trained.model)
        own = select(client.weights(), client.shared)
        models = {client.id: own, **{int(g[5:]): w for g, w in payload.groups.items() if g.startswith("peer/")}}
        trained.weights = raw = self._weigh(client, models)
        useful = {n: weight for n, weight in sorted(raw.items()) if weight > 0}
        client.load(mean([models[n] for n in useful], list(useful.values())) if useful else own)

    def fit(self, client: Client) -> None:
        trained: Trained = client.state["trained"]
        trained.before = select(client.received, client.shared)
        client.train()
        trained.model = select(client.weights(), client.shared)

    def upload(self, client: Client) -> Payload:
        reply = super().upload(client)
        trained: Trained = client.state["trained"]
        raw, trained.weights = trained.weights, {}
        return Payload(reply.groups, {**reply.numbers, "peers": [*raw], "weights": [*raw.values()]})

    def reply_schema(self, network: Network, shared: frozenset[str]) -> Schema:
        raw = {"peers": Range(0, whole=True, several=True), "weights": Range(several=True)}
        return super().reply_schema(network, shared).extended(numbers=raw)

    def check_reply(self, server: Server, client: int, reply: Payload, question: str = "") -> None:
        check_peers(reply, server.clients)
        if len(reply.several("weights")) != len(reply.several("peers")):
            raise Rejected("there is not one weight for each peer")

    def finish(self, server: Server, replies: Replies) -> None:
        for i, reply in replies.items():
            row = server.memory[i]
            row["model"] = reply["model"]
            affinity = row.setdefault("affinity", {})
            for n, weight in zip(reply.several("peers"), reply.several("weights"), strict=True):
                affinity[int(n)] = affinity.get(int(n), 0.0) + weight

    def models(self, server: Server) -> dict[str, Weights]:
        return {}

    def _peers(self, server: Server, i: int) -> list[int]:
        """The peers whose models client i downloads."""
        stream = server.stream(f"peers/{i}")
        explores = float(torch.rand((), generator=stream)) < self.epsilon - self.decay * (server.round - 1)
        others = [n for n in server.memory if n != i]
        drawn = [others[k] for k in torch.randperm(len(others), generator=stream).tolist()]
        if server.greedy or not explores:
            affinity = server.memory.peek(i).get("affinity", {})
            drawn.sort(key=lambda n: -affinity.get(n, 0.0))
        return drawn[: self.M]

    def _weigh(self, client: Client, models: Mapping[int, Weights]) -> dict[int, float]:
        """The raw w_n of every candidate.

        It uses the client's network and overwrites its weights.
        """
        if len(client.data("val")[1]) == 0:
            return {}
        before = client.state["trained"].before or models[client.id]
        reference = self._loss(client, before)
        raw = {}
        # One batched pass per model: all models at once (vmap, grouped convolutions) take three times as long.
        for n, model in models.items():
            distance = norm(delta(learned(model, client.network.statistics), before))
            gain = reference - self._loss(client, model)
            raw[n] = gain / distance if distance > 0 and math.isfinite(gain) else 0.0
        return raw

    def _loss(self, client: Client, model: Weights) -> float:
        client.load(model)
        score = client.evaluate("val")
        return score.loss / score.samples


FedFomo.card = Card(
    paper="Zhang et al., Personalized Federated Learning with First Order Model Optimization, ICLR",
    year=2021,
    exchanged="M models of peers down, the model and a number for each candidate up",
    client_state="its model, and the one before its last training",
    server_state="the last model and the affinities of every client, stored by row; "
    "in memory only the models that are sent and up to 64 MB of rows",
    cost="as FedAvg, plus M + 2 evaluations on the validation data",
    limits=("M = 0: Local-only", "a client without validation data, or without a useful peer: Local-only"),
    deviations=(
        "peers' models are those of their last training, which under partial participation may be rounds ago",
        "epsilon falls linearly by a setting; a deployed model is mixed without exploration",
        "peers of equal affinity, such as all in the beginning, are taken in random order",
    ),
    only_sums=False,
    shows_peers=True,
    keeps_models=True,
)
