import copy
from collections.abc import Sequence
from typing import ClassVar

import torch
from pydantic import Field

from fedtailor.errors import UserError
from fedtailor.messages.payload import Payload
from fedtailor.methods.base import Card, Method, Payloads
from fedtailor.models import Network
from fedtailor.parties import Client, Range, Replies, Schema, Server
from fedtailor.weights import Weights, select


class IFCA(Method):
    """A model for each of k clusters; a client joins the one that fits it best (Ghosh et al., 2020).

    Exchanged: k models down; the model of the chosen cluster and its number up.
    Client: chooses the model of lowest loss on its training data, then E epochs of SGD from it (Alg. 1).
    Server: per cluster the mean of the models of the clients that chose it, weighted by data size; a cluster
    without clients is left unchanged.
    """

    name: ClassVar = "ifca"

    k: int = Field(2, ge=1, le=1000, description="number of clusters; 1 is FedAvg")

    def inert(self) -> str | None:
        return "k = 1 has a single cluster: this is FedAvg" if self.k == 1 else None

    def passes(self, epochs: int) -> float:
        return epochs + self.k / 3

    def start_server(self, server: Server) -> None:
        server.state["clusters"] = [server.weights, *(_reinitialised(server, j) for j in range(1, self.k))]
        server.state["chosen"] = {}

    def prepare(self, server: Server, cohort: Sequence[int]) -> Payloads:
        clusters = {f"cluster/{j}": model for j, model in enumerate(server.state["clusters"])}
        return dict.fromkeys(cohort, Payload(clusters))

    def receive(self, client: Client, payload: Payload) -> None:
        client.state["cluster"] = choose_cluster(client, payload)

    def upload(self, client: Client) -> Payload:
        reply = super().upload(client)
        return Payload(reply.groups, {**reply.numbers, "cluster": client.state["cluster"]})

    def reply_schema(self, network: Network, shared: frozenset[str]) -> Schema:
        return super().reply_schema(network, shared).extended(numbers={"cluster": Range(0, self.k - 1, whole=True)})

    def finish(self, server: Server, replies: Replies) -> None:
        chosen = {client: int(reply.number("cluster")) for client, reply in replies.items()}
        server.state["chosen"].update(chosen)
        for j in sorted(set(chosen.values()) & set(range(self.k))):
            members = {i: reply for i, reply in replies.items() if chosen[i] == j}
            server.state["clusters"][j] = server.average(members)

    def models(self, server: Server) -> dict[str, Weights]:
        return {f"cluster/{j}": {**server.initial, **model} for j, model in enumerate(server.state["clusters"])}


def choose_cluster(client: Client, payload: Payload) -> int:
    """Load the model ``cluster/<j>`` of lowest loss on the client's training data, the first of equals. Returns j."""
    losses = []
    for j in range(len(payload.groups)):
        client.load(payload[f"cluster/{j}"])
        losses.append(client.evaluate("train").loss)
    best = losses.index(min(losses))
    client.load(payload[f"cluster/{best}"])
    return best


def _reinitialised(server: Server, j: int) -> Weights:
    """The initial model with every layer reinitialised by its own ``reset_parameters``."""
    module = copy.deepcopy(server.network.module)
    with torch.random.fork_rng(devices=[]):
        torch.default_generator.manual_seed(int(torch.randint(2**62, (), generator=server.stream(f"cluster/{j}"))))
        for layer in module.modules():
            if callable(reset := getattr(layer, "reset_parameters", None)):
                reset()
    drawn = {name: tensor.detach().clone() for name, tensor in module.state_dict().items() if name in server.initial}
    if all(torch.equal(drawn[name], server.initial[name]) for name in drawn):
        raise UserError("method.k: no layer of this network has reset_parameters(), so clusters would start equal")
    return select(drawn, server.shared)


IFCA.card = Card(
    paper="Ghosh et al., An Efficient Framework for Clustered Federated Learning, NeurIPS",
    year=2020,
    exchanged="k models down, one model and a cluster number up",
    client_state="the number of its cluster",
    server_state="k models, and which cluster each client chose last",
    cost="as FedAvg, plus k forward passes over the training data",
    limits=(
        "k = 1: FedAvg",
        "a cluster that is no client's best at the start may never be chosen: the paper restarts with other seeds",
    ),
    deviations=(
        "the model averaging form of Alg. 1, weighted by data size; the paper takes the plain mean",
        "cluster 0 starts from the run's initial model, so that runs are comparable; the others are reinitialised",
    ),
)
