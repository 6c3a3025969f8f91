from typing import ClassVar

from pydantic import Field

from fedtailor.learning import TrainingSettings, reach
from fedtailor.messages.payload import Payload
from fedtailor.methods.base import Card, Method
from fedtailor.models import Network
from fedtailor.parties import Client, Range, Replies, Schema, Server, Tensors
from fedtailor.weights import delta, learned, select


class FedNova(Method):
    """FedAvg with each client's update normalised by its effective number of steps (Wang et al., 2020).

    Exchanged: the model down; the normalised update and its norm up.
    Client: tau_i steps of SGD; d_i = (w - w_i) / |a_i|, where a_i holds the factors with which the gradients of the
    steps enter w - w_i: |a_i| = tau_i for plain SGD, [tau - rho (1 - rho^tau) / (1 - rho)] / (1 - rho) with
    momentum rho.
    Server: w <- w - tau_eff sum_i p_i d_i with p_i = n_i / n over the clients that answered and
    tau_eff = sum_i p_i |a_i|.
    """

    name: ClassVar = "fednova"

    mu: float = Field(0.0, ge=0, le=1000, description="strength of a pull to the received model; 0: no pull")

    def misfit(self, training: TrainingSettings, network: Network) -> str | None:
        if training.optimiser == "adam":
            return "with Adam updates are divided by the number of steps, which is not how far Adam goes"
        return None

    def fit(self, client: Client) -> None:
        client.train(toward=client.received, pull=self.mu)

    def upload(self, client: Client) -> Payload:
        tau = client.trace.steps
        norm = reach(client.training, tau, client.lr * self.mu)  # |a_i|
        w_i = select(client.weights(), client.shared)
        moved = delta(learned(w_i, client.network.statistics), client.received)
        d = {name: gap / -(norm or 1.0) for name, gap in moved.items()}
        # with a pull, |a_i| no longer measures the work done: tau_eff is then the mean number of steps
        return Payload({"model": {**w_i, **d}}, {"samples": client.samples, "tau": tau if self.mu else norm})

    def reply_schema(self, network: Network, shared: frozenset[str]) -> Schema:
        more = {"model": Tensors(shared, change=True)}, {"tau": Range(0, 1e9)}
        return super().reply_schema(network, shared).extended(*more)

    def finish(self, server: Server, replies: Replies) -> None:
        n = [reply.number("samples") for reply in replies.values()]
        tau = [reply.number("tau") for reply in replies.values()]
        tau_eff = sum(n_i * tau_i for n_i, tau_i in zip(n, tau, strict=True)) / sum(n)
        d = server.average(replies)
        # Deviation: running statistics, which the paper does not treat, are averaged by data size.
        w = learned(server.weights, server.network.statistics)
        server.weights = {**d, **{name: tensor - tau_eff * d[name] for name, tensor in w.items()}}


FedNova.card = Card(
    paper="Wang et al., Tackling the Objective Inconsistency Problem in Heterogeneous Federated Optimization, NeurIPS",
    year=2020,
    exchanged="the model down; the normalised update and its norm up",
    limits=(
        "the same number of steps on every client: FedAvg",
        "Adam: its moves are not sums of gradients, the number of steps replaces |a_i|",
    ),
    deviations=(
        "weight decay and clipping count as part of the local loss, so they do not change a_i",
        "running statistics are averaged by data size; the paper does not treat them",
        "no momentum on the server, which the paper offers as an option",
    ),
)
