from collections.abc import Mapping, Sequence
from typing import ClassVar, Literal

import torch
import torch.nn.functional as F
from pydantic import Field
from torch import Tensor

from fedtailor.learning import Objective
from fedtailor.learning.objectives import mean_loss
from fedtailor.messages.payload import Payload, Rejected
from fedtailor.methods.base import Card, Method, Payloads
from fedtailor.methods.simplex import smallest
from fedtailor.models import Network
from fedtailor.models.evaluating import evaluating
from fedtailor.parties import Client, Range, Replies, Schema, Server, Tensors
from fedtailor.weights import Weights, select


class FedPAC(Method):
    """Aligns features to common class centroids, and combines heads by an optimal mix (Xu et al., 2023).

    Exchanged: body, the client's own head and the class centroids c_k down; body, head, class means and counts,
    H_i = p(y) E[feature | y] and its variance V_i up.
    Client: ``head_epochs`` on the head, then E epochs on the body under
    loss + lam mean (feature - c_y)^2; H_i and V_i come from the received body, the class means from the trained one.
    Server: bodies by data size; c_k = sum_i n_ik mean_ik / sum_i n_ik; the head of client i is sum_j a_j h_j with
    the a of the simplex that minimises sum_j a_j^2 V_j + |H_i - sum_j a_j H_j|^2.
    """

    name: ClassVar = "fedpac"

    lam: float = Field(1.0, ge=0, le=1000, description="strength of the alignment; 0: no alignment")
    head_epochs: int = Field(1, ge=0, le=10_000, description="epochs on the head, before the run's epochs on the body")
    heads: Literal["optimal", "mean", "own"] = Field(
        "optimal", description="the head that a client gets: the optimal mix, the mean by data size, or its own"
    )

    def inert(self) -> str | None:
        if self.lam == 0 and self.heads == "own":
            return "lam = 0 without a mix of heads: this is FedRep"
        return None

    def passes(self, epochs: int) -> float:
        return epochs + (1 if self.head_epochs else 2 / 3)

    # On the server

    def prepare(self, server: Server, cohort: Sequence[int]) -> Payloads:
        centroids = {"prototypes": server.state["prototypes"]} if "prototypes" in server.state else {}
        return {client: Payload({"model": self._model(server, client), **centroids}) for client in cohort}

    def finish(self, server: Server, replies: Replies) -> None:
        super().finish(server, replies)
        server.state["prototypes"] = _centroids(
            [reply["prototypes"] for reply in replies.values()], server.state.get("prototypes")
        )
        if self.heads == "mean":
            return
        head = server.network.part("head")
        for client, row in zip(replies, self._shares(replies).tolist(), strict=True):
            weights = dict(zip(replies, row, strict=True))
            server.memory[client]["head"] = server.average(replies, weights=weights, names=head)

    def _shares(self, replies: Replies) -> Tensor:
        """The share of each head in the head of each client.  # (clients, clients)"""
        if self.heads == "own":
            return torch.eye(len(replies))
        joint = torch.stack([reply["statistics"]["H"] for reply in replies.values()])
        variances = [reply.number("variance") for reply in replies.values()]
        return combinations(joint, torch.tensor(variances, dtype=torch.float64))

    def _model(self, server: Server, client: int) -> Weights:
        # Deviation: a new client gets the mean of the last heads; in the paper it keeps the initial head.
        own: Weights = server.memory.peek(client).get("head", {})
        return {**server.weights, **own}

    # On a client

    def fit(self, client: Client) -> None:
        prototypes = client.payload.groups.get("prototypes")
        client.train("head", epochs=self.head_epochs)
        if prototypes is None or self.lam == 0:
            client.train("body")
        else:
            client.train("body", objective=self._aligned(client, prototypes))

    def adapt(self, client: Client) -> None:
        """A new client received the mean of the last heads; it trains it on the frozen body."""
        client.train("head")

    def upload(self, client: Client) -> Payload:
        received = client.features(client.second_network(client.received))
        trained = client.features(batch_statistics=True)  # normalised as in training, as the alignment sees features
        with evaluating(client.network.module):
            outputs = client.network(client.data("train")[0][:1]).shape[1]
        members = F.one_hot(_classes(client, client.data("train")[1]), outputs)  # (samples, classes)
        counts, samples = members.sum(0), max(1, len(members))
        joint = members.T.double() @ received.double() / samples  # H: (classes, features)
        variance = (received.double().square().sum() / samples - joint.square().sum()) / samples
        means = members.T.to(trained.dtype) @ trained / counts.clamp(min=1)[:, None]
        return Payload(
            {
                "model": select(client.weights(), client.shared),
                "prototypes": {"means": means, "counts": counts},
                "statistics": {"H": joint.to(received.dtype)},
            },
            numbers={"samples": client.samples, "variance": float(variance.clamp(min=0))},
        )

    def reply_schema(self, network: Network, shared: frozenset[str]) -> Schema:
        example = network.inputs.example()
        with evaluating(network.module), torch.no_grad():
            classes, width = network(example).shape[1], network.features(example).flatten(1).shape[1]
        means = torch.empty(classes, width)
        prototypes = {"means": means, "counts": torch.empty(classes, dtype=torch.int64)}
        groups = {
            "prototypes": Tensors(frozenset(prototypes), like=prototypes),
            "statistics": Tensors(frozenset({"H"}), like={"H": means}),
        }
        return super().reply_schema(network, shared).extended(groups, {"variance": Range(0)})

    def check_reply(self, server: Server, client: int, reply: Payload, question: str = "") -> None:
        counts = reply["prototypes"]["counts"]
        if bool((counts < 0).any()) or bool((counts > server.sizes[client]).any()):
            raise Rejected("prototypes/counts are not numbers of its samples")

    def _aligned(self, client: Client, prototypes: Mapping[str, Tensor]) -> Objective:
        device = client.data("train")[0].device
        means, known = prototypes["means"].to(device), (prototypes["counts"] > 0).to(device)

        def objective(network: Network, inputs: Tensor, targets: Tensor) -> Tensor:
            features = network.features(inputs)
            loss = mean_loss(client.criterion, network.classify(features), targets)
            classes = _classes(client, targets)
            gaps = (features.flatten(1) - means[classes]) * known[classes][:, None]
            return loss + self.lam * gaps.square().mean()

        return objective


def combinations(joint: Tensor, variances: Tensor) -> Tensor:
    """For every client the weights of all heads: the minimum of a' (diag V + D_i) a on the simplex.

    D_i[j, k] = <H_i - H_j, H_i - H_k>, of which only inner products of the H are needed.  # (clients, clients)
    """
    rows = joint.double().flatten(1)
    rows = rows - rows.mean(0)  # a common shift changes no difference and saves digits
    inner = rows @ rows.T
    spread = torch.diag(variances.double())
    return torch.stack(
        [smallest(spread + inner[i, i] - inner[i] - inner[i][:, None] + inner) for i in range(len(rows))]
    )


def _centroids(replies: Sequence[Weights], before: Weights | None) -> Weights:
    """Class means weighted by class counts; a class without samples keeps its old centroid."""
    counts = torch.stack([reply["counts"] for reply in replies])  # (clients, classes)
    means = torch.stack([reply["means"] for reply in replies])  # (clients, classes, features)
    total = counts.sum(0)
    now = (means * counts[:, :, None]).sum(0) / total.clamp(min=1)[:, None]
    if before is None:  # classes that were never seen have count 0 and align nothing
        return {"means": now, "counts": total}
    seen = total > 0
    return {
        "means": torch.where(seen[:, None], now, before["means"]),
        "counts": torch.where(seen, total, before["counts"]),
    }


def _classes(client: Client, targets: Tensor) -> Tensor:
    if client.criterion.for_classes:
        return targets
    # Deviation: the paper has classes only; the samples of a regression are one class.
    return torch.zeros(len(targets), dtype=torch.int64, device=targets.device)


FedPAC.card = Card(
    paper="Xu et al., Personalized Federated Learning with Feature Alignment and Classifier Collaboration, ICLR",
    year=2023,
    exchanged="the model and class centroids down; the model, class means and feature statistics up",
    server_state="the global body, the mean head, the class centroids, and a head for every client seen",
    cost="as FedAvg, plus three forward passes; a quadratic programme per client on the server",
    limits=(
        "lam = 0 and heads = own: FedRep",
        "lam = 0 and heads = mean: FedRep that shares its head as well",
        "a client with no variance (one sample) gets its own head back",
        "if all the weight falls on one client, another client receives that client's head",
        "needs a network that ends with its head: there are no features to align otherwise",
    ),
    deviations=(
        "the quadratic programme is solved exactly; the authors' code uses cvxpy and cuts weights below 1e-3",
        "a client seen for the first time gets the mean of the last heads; in the paper it has the initial one",
        "a class without samples in a round keeps its centroid; one that was never seen aligns nothing",
        "with batch normalisation the class means are those of features normalised as in training, which is "
        "where they are aligned; running statistics are far from them in the first rounds, and training diverges",
        "in a regression all samples are one class",
    ),
    only_sums=False,
)
