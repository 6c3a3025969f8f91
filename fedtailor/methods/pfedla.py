import math
from collections.abc import Sequence
from typing import ClassVar

import torch
from pydantic import Field
from torch import Tensor

from fedtailor.messages.payload import Payload
from fedtailor.methods.base import Card, Method, Payloads
from fedtailor.parties import Client, Replies, Server
from fedtailor.weights import Sum, Weights, delta, dot, learned, select


class PFedLA(Method):
    """A hypernetwork per client weights all clients' models, layer by layer (Ma et al., 2022).

    Exchanged: the client's own mixture down, its model up.
    Client: E epochs of SGD from the mixture.
    Server: keeps every client's model theta_j and hypernetwork HN_i(v_i; psi_i), which gives the weights
    alpha_i (layers x clients); layer l of client i's mixture is sum_j alpha_i[l, j] theta_j[l]. The client's change
    D_i of it moves (v_i, psi_i) by lr (d mixture_i / d (v_i, psi_i))^T D_i: a vector-Jacobian product through
    <theta_j[l], D_i[l]>, the derivative by alpha_i[l, j].
    With k > 0 (HeurpFedLA) the k layers in which a client's own weight is largest stay on the client.
    """

    name: ClassVar = "pfedla"
    averages: ClassVar = False

    lr: float = Field(5e-3, ge=0, le=1000, description="learning rate of the hypernetworks; 0 keeps the plain mean")
    embedding: int = Field(100, ge=1, le=10_000, description="size of a client's embedding v_i")
    hidden: int = Field(100, ge=1, le=10_000, description="width of the hypernetwork's hidden layers")
    depth: int = Field(3, ge=0, le=20, description="hidden layers of the hypernetwork")
    k: int = Field(0, ge=0, le=10_000, description="layers that stay on the client (HeurpFedLA); 0 is pFedLA")

    def inert(self) -> str | None:
        return "lr = 0: every client starts from the plain mean of all models" if self.lr == 0 else None

    def idle_settings(self) -> frozenset[str]:
        return frozenset({"embedding", "hidden", "depth"}) if self.lr == 0 else frozenset()

    def prepare(self, server: Server, cohort: Sequence[int]) -> Payloads:
        alphas = {i: self._alpha(server, self._hypernetwork(server, i), i) for i in cohort}
        mixtures, layers = {i: Sum() for i in cohort}, _layers(server)
        for j in server.memory:
            model = server.memory.peek(j)["model"]
            for i, alpha in alphas.items():
                shares = dict(zip(layers, alpha[:, j].tolist(), strict=True))
                mixtures[i].add(model, {name: shares[_layer(name)] for name in model})
        server.state["sent"] = {i: mixture.total() or server.weights for i, mixture in mixtures.items()}
        return {i: Payload({"model": self._to_send(server, i, alphas[i])}) for i in cohort}

    def receive(self, client: Client, payload: Payload) -> None:
        client.load(client.state.get("model", {}))
        client.load(payload["model"])

    def fit(self, client: Client) -> None:
        client.train()
        if self.k:
            client.state["model"] = select(client.weights(), client.shared)

    def finish(self, server: Server, replies: Replies) -> None:
        sent = server.state.pop("sent")
        statistics = server.network.statistics
        changes = {i: delta(learned(reply["model"], statistics), sent[i]) for i, reply in replies.items()}
        layers = _layers(server)
        pulls = {i: torch.zeros(len(layers), server.clients) for i in replies}
        for j in server.memory:
            model = server.memory.peek(j)["model"]
            for i, change in changes.items():
                by_layer = [{n: t for n, t in change.items() if _layer(n) == layer} for layer in layers]
                pulls[i][:, j] = torch.tensor([dot(part, model) for part in by_layer])
        hypernetworks = {i: self._learn(server, i, pull) for i, pull in pulls.items()}
        for i, reply in replies.items():
            server.memory[i].update(model=reply["model"], hypernetwork=hypernetworks[i])

    def models(self, server: Server) -> dict[str, Weights]:
        return {}

    def _to_send(self, server: Server, i: int, alpha: Tensor) -> Weights:
        kept = set(self._local(server, i, alpha))
        layers = _layers(server)
        return {name: t for name, t in server.state["sent"][i].items() if layers.index(_layer(name)) not in kept}

    def _learn(self, server: Server, i: int, pull: Tensor) -> Weights:
        """One step of the hypernetwork along the client's change.  # pull: (layers, clients)"""
        hypernetwork = self._hypernetwork(server, i)
        if not len(server.memory):
            return hypernetwork
        leaves = {name: tensor.clone().requires_grad_() for name, tensor in hypernetwork.items()}
        along = (self._alpha(server, leaves, i) * pull).sum()
        gradients = torch.autograd.grad(along, list(leaves.values()), materialize_grads=True)
        return {
            name: (tensor + self.lr * gradient).detach()
            for (name, tensor), gradient in zip(leaves.items(), gradients, strict=True)
        }

    def _alpha(self, server: Server, hypernetwork: Weights, i: int) -> Tensor:
        """The weights over clients, 0 for those that have never trained.  # (layers, clients)"""
        hidden = hypernetwork["v"]
        for depth in range(self.depth):
            hidden = torch.relu(hypernetwork[f"weight/{depth}"] @ hidden + hypernetwork[f"bias/{depth}"])
        outputs = hypernetwork["weight"] @ hidden + hypernetwork["bias"]
        absent = torch.ones(server.clients, dtype=torch.bool)
        absent[list(server.memory)] = False
        if absent.all():
            return torch.zeros_like(outputs)
        alpha = torch.softmax(outputs.masked_fill(absent, -math.inf), 1)
        local = torch.zeros(len(alpha), 1, dtype=torch.bool)
        local[self._local(server, i, alpha.detach())] = True
        return torch.where(local, torch.eye(server.clients)[i], alpha)

    def _local(self, server: Server, i: int, alpha: Tensor) -> list[int]:
        """The k layers in which the client's own weight is largest, the last of equals first."""
        if i not in server.memory:
            return []
        return sorted(range(len(alpha)), key=lambda layer: (-float(alpha[layer, i]), -layer))[: self.k]

    def _hypernetwork(self, server: Server, i: int) -> Weights:
        """The client's hypernetwork; a new one gives equal weights.

        The last layers for all layers of the model are one tensor: (layers, clients, hidden).
        """
        stored: Weights | None = server.memory.peek(i).get("hypernetwork")
        if stored is not None:
            return stored
        stream = server.stream(f"hypernetwork/{i}")
        width, drawn = self.embedding, {"v": torch.randn(self.embedding, generator=stream)}
        for depth in range(self.depth):
            drawn[f"weight/{depth}"] = torch.randn(self.hidden, width, generator=stream) * math.sqrt(2 / width)
            drawn[f"bias/{depth}"] = torch.zeros(self.hidden)
            width = self.hidden
        drawn["weight"] = torch.zeros(len(_layers(server)), server.clients, width)
        drawn["bias"] = torch.zeros(len(_layers(server)), server.clients)
        return drawn


def _layer(name: str) -> str:
    return name.rpartition(".")[0]


def _layers(server: Server) -> list[str]:
    """The layers that are exchanged."""
    return list(dict.fromkeys(_layer(name) for name in server.weights))


PFedLA.card = Card(
    paper="Ma et al., Layer-wised Model Aggregation for Personalized Federated Learning, CVPR",
    year=2022,
    exchanged="the client's mixture down (without its local layers), its model up",
    client_state="nothing; with k > 0 its model",
    server_state="the last model and a hypernetwork of every client, stored by row; a hypernetwork has about "
    "hidden x layers x clients numbers; in memory those of the cohort and up to 64 MB of rows",
    cost="as FedAvg; on the server two readings of all stored models",
    limits=(
        "equal weights, as at the start: the plain mean of all clients' models",
        "all weight on itself, or k = all layers: Local-only",
    ),
    deviations=(
        "a softmax makes the weights sum to 1, and they start equal; ReLU outputs may all be 0",
        "only clients that have trained have weight; in the paper every client takes part in every round",
        "with k > 0 local layers are not sent down but still uploaded, since others may use them",
    ),
    only_sums=False,
    keeps_models=True,
)
