from typing import ClassVar

from pydantic import Field

from fedtailor.methods.base import Card, Method
from fedtailor.parties import Client


class FedProx(Method):
    """FedAvg with a proximal term that keeps clients near the received model (Li et al., 2020).

    Exchanged: the whole model, down and up.
    Client: minimises f_i(w) + mu/2 |w - w_received|^2 (eq. 2); the gradient of the proximal term passes
    through momentum like any part of the loss.
    Server: the mean by data size.
    """

    name: ClassVar = "fedprox"
    trains_only: ClassVar = True

    mu: float = Field(0.1, ge=0, le=1000, description="strength of the pull; 0 is FedAvg")

    def inert(self) -> str | None:
        return "mu = 0 switches the proximal term off: this is FedAvg" if self.mu == 0 else None

    def fit(self, client: Client) -> None:
        client.train(toward=client.received, pull=self.mu)  # eq. 2

    def adapt(self, client: Client) -> None:
        self.fit(client)


FedProx.card = Card(
    paper="Li et al., Federated Optimization in Heterogeneous Networks, MLSys",
    year=2020,
    exchanged="the model down, the model up",
    limits=("mu = 0: FedAvg",),
    deviations=(
        "every client does the same number of epochs; the paper also lets stragglers do fewer",
        "the mean is weighted by data size; the paper samples clients by size and takes the plain mean",
    ),
)
