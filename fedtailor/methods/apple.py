import math
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import ClassVar, Literal

import torch
from pydantic import Field
from torch import Tensor

from fedtailor.learning import Batch
from fedtailor.messages.payload import Payload
from fedtailor.methods.base import Card, Method, Payloads
from fedtailor.models import Network
from fedtailor.parties import Client, Range, Replies, Schema, Server, State, check_peers
from fedtailor.weights import Weights, select


class APPLE(Method):
    """Every client learns how much it benefits from the core models of the others (Luo and Wu, 2022).

    Exchanged: the core models w_j of other clients down, the client's core model w_i up.
    Client: its personal model is sum_j p_ij w_j. With g the gradient of the loss at that model, every step moves its
    core model along p_ii g and its relation vector along <g, w_j> + lambda(t) mu (p_ij - p0_j), where p0_j = n_j / n;
    lambda falls from 1 to 0 during the share L of the rounds. The relation vector never leaves the client.
    Server: keeps the core models.
    """

    name: ClassVar = "apple"
    averages: ClassVar = False

    mu: float = Field(0.1, ge=0, le=1000, description="strength of the pull of p_i to the data shares p0")
    L: float = Field(0.2, gt=0, le=1, description="share of the rounds after which the pull is 0")
    schedule: Literal["cosine", "linear"] = Field("cosine", description="how lambda(t) falls from 1 to 0")
    relation_lr: float = Field(1e-3, ge=0, le=100, description="learning rate of the relation vector")
    M: int | None = Field(
        None, ge=0, description="number of core models that a client downloads per round; default: all"
    )

    def inert(self) -> str | None:
        return "relation_lr = 0: the relation vectors stay at the data shares" if self.relation_lr == 0 else None

    def idle_settings(self) -> frozenset[str]:
        if self.relation_lr == 0:
            return frozenset({"mu", "L", "schedule"})
        return frozenset() if self.mu else frozenset({"L", "schedule"})

    def total(self) -> str | None:
        return "the pull to the data shares ends after a share of the rounds" if self.mu else None

    def arithmetic(self, steps: int, clients: int) -> float:
        return (2.0 * clients + 1) * steps  # per step: inner products, the mixture, and p_ii g

    def prepare(self, server: Server, cohort: Sequence[int]) -> Payloads:
        chosen = {i: self._peers(server, i) for i in cohort}
        models = {j: server.memory.peek(j)["model"] for j in sorted({j for peers in chosen.values() for j in peers})}
        return {
            i: Payload({f"peer/{j}": models[j] for j in peers}, {"sizes": [*server.sizes]})
            for i, peers in chosen.items()
        }

    def start_client(self, client: Client) -> None:
        client.state["relations"] = Relations()

    def receive(self, client: Client, payload: Payload) -> None:
        known: Relations = client.state["relations"]
        sizes = torch.tensor(payload.several("sizes"), dtype=torch.float32)
        initial = select(client.weights(), client.shared)
        if known.relation is None:
            known.core, known.relation = initial, self._first_relation(client, sizes / sizes.sum())
        downloaded = {int(group.removeprefix("peer/")): model for group, model in payload.groups.items()}
        known.peers |= downloaded
        known.downloaded = list(downloaded)
        client.load(known.core)
        known.mixture = _Mixture(client, known, initial, sizes / sizes.sum())
        client.load(known.mixture.personal)

    def fit(self, client: Client) -> None:
        known: Relations = client.state["relations"]
        mixture = known.mixture
        assert mixture is not None
        pull = self.mu * self._lambda(client)
        client.load(known.core)
        with mixture.training():
            client.train(step=lambda batch: mixture.step(batch, self.relation_lr, pull))
            known.core = select(client.weights(), client.shared)
        known.relation = mixture.relation.cpu()
        client.load(mixture.personal)
        if self.M is None:
            known.peers = {}

    def adapt(self, client: Client) -> None:
        """A new client learns its relation to all core models, its own among them."""
        self.fit(client)

    def upload(self, client: Client) -> Payload:
        known: Relations = client.state["relations"]
        downloaded, known.downloaded, known.mixture = known.downloaded, [], None
        return Payload({"model": known.core}, {"samples": client.samples, "peers": [*downloaded]})

    def reply_schema(self, network: Network, shared: frozenset[str]) -> Schema:
        return super().reply_schema(network, shared).extended(numbers={"peers": Range(0, whole=True, several=True)})

    def check_reply(self, server: Server, client: int, reply: Payload, question: str = "") -> None:
        check_peers(reply, server.clients)

    def finish(self, server: Server, replies: Replies) -> None:
        for i, reply in replies.items():
            row = server.memory[i]
            row["model"] = reply["model"]
            if self.M is not None:
                row.setdefault("sent", {}).update({int(j): server.round for j in reply.several("peers")})

    def models(self, server: Server) -> dict[str, Weights]:
        return {}

    def _peers(self, server: Server, i: int) -> list[int]:
        """The peers whose core models the client downloads."""
        others = [j for j in server.memory if j != i]
        if self.M is None:
            return others
        sent = server.memory.peek(i).get("sent", {})
        order = torch.randperm(len(others), generator=server.stream(f"peers/{i}")).tolist()
        return sorted(sorted((others[k] for k in order), key=lambda j: sent.get(j, 0))[: self.M])

    def _first_relation(self, client: Client, shares: Tensor) -> Tensor:
        """p_i at the start: the data shares p0."""
        return shares

    def _lambda(self, client: Client) -> float:
        """lambda(t): it falls from 1 in the first round to 0 after the share L of the rounds."""
        done = min(1.0, (client.round - 1) / (self.L * client.rounds))
        return 1 - done if self.schedule == "linear" else (1 + math.cos(math.pi * done)) / 2


@dataclass
class Relations(State):
    """What a client knows about its peers; empty before its first round."""

    core: Weights = field(default_factory=dict)  # w_i
    relation: Tensor | None = None  # p_i  (clients,)
    peers: dict[int, Weights] = field(default_factory=dict)  # the core models it has downloaded
    # Only during a task: `upload` removes both.
    downloaded: list[int] = field(default_factory=list)
    mixture: "_Mixture | None" = None


class _Mixture:
    """The personal model sum_j p_j w_j, and the training steps of p and of the own core model.

    All models are rows of one matrix, so the mixture and the inner products are one matrix-vector product each.
    """

    def __init__(self, client: Client, known: Relations, initial: Weights, shares: Tensor):
        assert known.relation is not None
        self._parameters = {n: p for n, p in client.network.parameters().items() if p.requires_grad}
        trained = {name: parameter.detach() for name, parameter in self._parameters.items()}
        device = next(iter(trained.values())).device
        self.relation = known.relation.to(device)  # p  (clients,)
        self.shares = shares.to(device)  # p0  (clients,)
        self.own = client.id
        peers = sorted(known.peers)
        models = [known.core, *(known.peers[j] for j in peers)]
        if len(models) < len(self.relation):
            # Deviation: a client whose core model is unknown has the initial one, the last row.
            models.append(initial)
        size = sum(p.numel() for p in trained.values())
        self.models = torch.empty(len(models), size, device=device)  # (models, parameters)
        self.rows = torch.full((len(self.relation),), len(models) - 1, device=device)  # row of each client  (clients,)
        self.rows[[self.own, *peers]] = torch.arange(1 + len(peers), device=device)
        for row, model in zip(self.models, models, strict=True):
            for name, piece in _pieces(row, trained).items():
                piece.copy_(model[name])
        self._core = _pieces(self.models[0], trained)
        self._slope, self._mixed = torch.empty(2, size, device=device)
        self._slopes = list(_pieces(self._slope, trained).values())
        self.personal = _pieces(self._mixed, trained)
        self._mix()

    @contextmanager
    def training(self) -> Iterator[None]:
        """Use the first row of the matrix as the network's parameters meanwhile, so that steps need not copy them."""
        before = {name: parameter.data for name, parameter in self._parameters.items()}
        for name, parameter in self._parameters.items():
            parameter.data = self._core[name].copy_(parameter.data)
        try:
            yield
        finally:
            for name, parameter in self._parameters.items():
                parameter.data = before[name]

    def step(self, batch: Batch, lr: float, pull: float) -> Tensor:
        """Move the core model, which is in the network, with the run's optimiser, and p with its own learning rate."""
        loss, gradients = batch.gradient(at=self.personal)
        torch._foreach_copy_(self._slopes, gradients)
        by_relation = (self.models @ self._slope)[self.rows]  # <g, w_j>  (clients,)
        self._slope.mul_(float(self.relation[self.own]))
        batch.apply(self._slopes)
        self.relation = self.relation - lr * (by_relation + pull * (self.relation - self.shares))
        self._mix()
        return loss

    def _mix(self) -> None:
        shares = torch.zeros(len(self.models), device=self.models.device).index_add_(0, self.rows, self.relation)
        torch.mv(self.models.T, shares, out=self._mixed)


def _pieces(flat: Tensor, like: Weights) -> Weights:
    """Cut a vector into tensors with the names, shapes and memory layout of ``like``."""
    parts = torch.split(flat, [tensor.numel() for tensor in like.values()])
    return {
        name: part.as_strided(tensor.shape, tensor.stride(), part.storage_offset())
        for (name, tensor), part in zip(like.items(), parts, strict=True)
    }


APPLE.card = Card(
    paper="Luo and Wu, Adapt to Adaptation: Learning Personalization for Cross-Silo Federated Learning, IJCAI",
    year=2022,
    exchanged="the core models of all other clients, or of M of them, down; one core model up",
    client_state="its core model and relation vector; with M also the core models it has downloaded, eventually "
    "those of all clients",
    server_state="every client's core model, stored by row; in memory those that are sent, eventually all",
    cost="as FedAvg, plus in every step |clients| additions and inner products of whole models",
    limits=("p_i on itself and relation_lr = 0: Local-only", "relation_lr = 0: models are always mixed by data size"),
    deviations=(
        "a client that has never trained has the initial model as its core model",
        "running statistics are the client's own: a mixture with negative p would not be a variance",
        "with M a client downloads the core models that it downloaded longest ago, at the start in random order",
        "the optimiser's momentum and weight decay act on the core model, p_i follows plain SGD",
    ),
    only_sums=False,
    shows_peers=True,
    keeps_models=True,
)
