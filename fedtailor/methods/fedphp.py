from typing import ClassVar

import torch
from pydantic import Field
from torch import Tensor

from fedtailor.learning import Objective
from fedtailor.learning.objectives import mean_loss
from fedtailor.methods.base import Card, Method
from fedtailor.models import Network
from fedtailor.parties import Client
from fedtailor.weights import mean

# Bandwidths of the kernels, in squared distance. Deviation: the authors' code scales them with each batch.
BANDWIDTHS = (10.0, 15.0, 20.0, 50.0)


class FedPHP(Method):
    """FedAvg whose clients keep a moving average of their models and learn from it (Li et al., 2021).

    Exchanged: the whole model, down and up.
    Client: trains the received model w on (1 - lam) loss + lam MMD^2(features of w, features of p), then keeps
    p = mu_t p + (1 - mu_t) w with mu_t = mu t / T in round t of T: the inherited private model.
    Server: the mean of the w, weighted by data size.
    Personal model: p.
    """

    name: ClassVar = "fedphp"

    lam: float = Field(0.1, ge=0, le=1, description="share of the transfer in the loss; 0: learn only from the data")
    mu: float = Field(0.1, ge=0, le=1, description="weight of the inherited model at the end; 0 inherits nothing")

    def inert(self) -> str | None:
        if self.lam == 1:
            return "lam = 1 switches the loss off: the head is not trained"
        if self.lam == 0 and self.mu == 0:
            return "lam = mu = 0 neither learns from the inherited model nor keeps one: this is FedAvg"
        return None

    def total(self) -> str | None:
        return "the weight of the inherited model grows with the share of the rounds" if self.mu else None

    def passes(self, epochs: int) -> float:
        return epochs * (4 / 3 if self.lam else 1)

    def fit(self, client: Client) -> None:
        inherited = client.state.get("inherited")
        # Deviation: nothing is transferred before the client has a model of its own to inherit.
        if inherited is None or self.lam == 0:
            client.train()
        else:
            client.train(objective=self._transfer(client, client.second_network(inherited)))
        trained = client.weights()
        # Deviation: mu grows with the round; in the paper with the client's participations over their expected number.
        mu = self.mu * min(1.0, client.round / max(1, client.rounds))
        client.state["inherited"] = trained if inherited is None else mean([inherited, trained], [mu, 1 - mu])

    def personal(self, client: Client) -> None:
        client.load(client.state["inherited"])

    def _transfer(self, client: Client, inherited: Network) -> Objective:
        def objective(network: Network, inputs: Tensor, targets: Tensor) -> Tensor:
            features, outputs = _features_and_outputs(network, inputs)
            with torch.no_grad():
                taught, _ = _features_and_outputs(inherited, inputs)
            loss = mean_loss(client.criterion, outputs, targets)
            return (1 - self.lam) * loss + self.lam * discrepancy(features.flatten(1), taught.flatten(1))

        return objective


def discrepancy(one: Tensor, other: Tensor) -> Tensor:
    """The squared maximum mean discrepancy of two sets of rows, under a sum of Gaussian kernels."""
    return (_kernel(one, one) + _kernel(other, other) - 2 * _kernel(one, other)).mean()


def _kernel(one: Tensor, other: Tensor) -> Tensor:
    """sum_a exp(-|x - y|^2 / 2a) for every pair.  # (rows of one, rows of other)"""
    squares = one.square().sum(1)[:, None] + other.square().sum(1) - 2 * one @ other.T
    widths = squares.new_tensor(BANDWIDTHS)[:, None, None]
    return torch.exp(-squares.clamp(min=0) / (2 * widths)).sum(0)


def _features_and_outputs(network: Network, inputs: Tensor) -> tuple[Tensor, Tensor]:
    if not network.splittable:  # Deviation: outputs for features
        outputs = network(inputs)
        return outputs, outputs
    features = network.features(inputs)
    return features, network.classify(features)


FedPHP.card = Card(
    paper="Li et al., FedPHP: Federated Personalization with Inherited Private Models, ECML PKDD",
    year=2021,
    exchanged="the model down, the model up",
    client_state="its inherited private model",
    cost="as FedAvg, plus a forward pass of the inherited model per epoch",
    limits=(
        "lam = 0: the global model is FedAvg's; the personal one is a moving average",
        "lam = mu = 0: FedAvg",
        "lam = 1: the loss is switched off, the head is not trained",
    ),
    deviations=(
        "mu and lam are 0.1 as in pFedRLLA's comparison; the authors' code has mu = 0.9",
        "mu grows with the round; in the paper with the client's participations over their expected number, "
        "which is the same on average and needs no knowledge of the sampling",
        "a client's first training has nothing to learn from; the authors' code begins with the initial model",
        "the kernels' bandwidths are fixed (10, 15, 20, 50); the authors' code scales them with each batch",
        "if a network cannot be cut before its head, its outputs replace the features",
    ),
)
