from collections.abc import Sequence
from typing import ClassVar

import torch
from pydantic import Field

from fedtailor.learning import TrainingSettings, reach
from fedtailor.messages.payload import Payload
from fedtailor.methods.base import Card, Method, Payloads
from fedtailor.models import Network
from fedtailor.parties import Client, Replies, Schema, Server, Tensors
from fedtailor.weights import Weights, delta, learned, mean, select


class Scaffold(Method):
    """FedAvg whose clients correct every gradient by control variates (Karimireddy et al., 2020).

    Exchanged: the model x and the server's control variate c down; the model y_i and the change of c_i up.
    Client: K steps y <- y - eta (g(y) - c_i + c), then c_i+ = c_i - c + (x - y) / (K eta) (Alg. 1, Option II).
    Server: x <- x + eta_g mean_S(y_i - x), c <- c + 1/N sum_S (c_i+ - c_i), with S the clients that answered and
    N the number of all clients.
    """

    name: ClassVar = "scaffold"

    eta_g: float = Field(1.0, gt=0, le=100, description="learning rate of the server; 1 takes the clients' mean")

    def misfit(self, training: TrainingSettings, network: Network) -> str | None:
        if training.optimiser == "adam" or training.clip is not None:
            return "with Adam or clipping, (x - y) / (K eta) is no mean of gradients: the control variates are off"
        return None

    def start_server(self, server: Server) -> None:
        server.state["c"] = _zeros(learned(server.weights, server.network.statistics))

    def prepare(self, server: Server, cohort: Sequence[int]) -> Payloads:
        return dict.fromkeys(cohort, Payload({"model": server.weights, "model/control": server.state["c"]}))

    def fit(self, client: Client) -> None:
        c = client.payload["model/control"]
        client.train(correction=delta(c, client.state.get("c", _zeros(c))))  # y <- y - eta (g(y) - c_i + c)

    def upload(self, client: Client) -> Payload:
        c, y = client.payload["model/control"], client.weights()
        # Deviation: K for plain SGD, the sum of the gradients' factors with momentum.
        k_eta = client.lr * reach(client.training, client.trace.steps)
        change = _zeros(c)  # change of c_i, Option II: (x - y) / (K eta) - c
        if k_eta:
            change = {name: (client.received[name] - y[name]) / k_eta - tensor for name, tensor in c.items()}
        client.state["c"] = {n: tensor + change[n] for n, tensor in client.state.get("c", _zeros(c)).items()}
        reply = super().upload(client)
        return Payload({**reply.groups, "model/control": change}, reply.numbers)

    def reply_schema(self, network: Network, shared: frozenset[str]) -> Schema:
        control = learned(select(network.weights(), shared), network.statistics)
        return (
            super().reply_schema(network, shared).extended({"model/control": Tensors(frozenset(control), change=True)})
        )

    def finish(self, server: Server, replies: Replies) -> None:
        equal = dict.fromkeys(replies, 1.0)
        y = server.average(replies, weights=equal)
        # Deviation: running statistics, which the paper does not treat, are averaged.
        x = learned(server.weights, server.network.statistics)
        server.weights = {**y, **mean([x, y], [1 - self.eta_g, self.eta_g])}  # x + eta_g mean_S(y_i - x)
        change = server.average(replies, "model/control", weights=equal)
        share = len(replies) / server.clients
        # c + 1/N sum_S (c_i+ - c_i)
        server.state["c"] = {name: c + share * change[name] for name, c in server.state["c"].items()}


def _zeros(weights: Weights) -> Weights:
    return {name: torch.zeros_like(tensor) for name, tensor in weights.items()}


Scaffold.card = Card(
    paper="Karimireddy et al., SCAFFOLD: Stochastic Controlled Averaging for Federated Learning, ICML",
    year=2020,
    exchanged="the model and a control variate down, the model and a control variate up: twice FedAvg's bytes",
    client_state="its control variate c_i",
    server_state="the global model and the control variate c",
    limits=(
        "one client and eta_g = 1: FedAvg of that client",
        "Adam or clipping: c_i is no longer a mean of gradients, which the method rests on",
    ),
    deviations=(
        "all clients have equal weight, as in the paper and unlike FedAvg here",
        "with momentum, K is replaced by the sum of the factors of the gradients in x - y, so that c_i stays a "
        "mean of gradients; weight decay counts as part of the loss",
        "running statistics are averaged; the paper does not treat them",
    ),
)
