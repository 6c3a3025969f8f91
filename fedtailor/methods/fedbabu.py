from typing import ClassVar, Literal

from pydantic import Field

from fedtailor.methods.base import Card, Method
from fedtailor.parties import Client, Server
from fedtailor.weights import Weights


class FedBABU(Method):
    """Only the body is trained in the federation; a client fine-tunes the model it deploys (Oh et al., 2022).

    Exchanged: the body, down and up.
    Client: E epochs on the body under the initial head, which is the same on all clients and never trained.
    Server: the mean of the bodies, weighted by data size.
    Personal model: the *received* body and the initial head after ``ft_epochs`` on ``ft_part``.
    """

    name: ClassVar = "fedbabu"
    shares: ClassVar = "body"

    ft_epochs: int = Field(5, ge=0, le=10_000, description="epochs of fine-tuning; 0 deploys the global model")
    ft_part: Literal["all", "body", "head"] = Field("all", description="the part to fine-tune")
    ft_lr: float | None = Field(None, gt=0, le=100, description="learning rate of fine-tuning; default: the run's")

    def inert(self) -> str | None:
        if self.ft_epochs == 0:
            return "ft_epochs = 0 deploys the global model with a head that was never trained"
        return None

    def fit(self, client: Client) -> None:
        client.train("body")

    def personal(self, client: Client) -> None:
        client.load(client.received)
        client.train(self.ft_part, epochs=self.ft_epochs, lr=self.ft_lr)

    def adapt(self, client: Client) -> None:
        """A new client fine-tunes as all others do."""
        client.train(self.ft_part, lr=self.ft_lr)

    def models(self, server: Server) -> dict[str, Weights]:
        return {"global": {**server.initial, **server.weights}}


FedBABU.card = Card(
    paper="Oh et al., FedBABU: Toward Enhanced Representation for Federated Image Classification, ICLR",
    year=2022,
    exchanged="the body down, the body up",
    client_state="the initial head, the same on every client",
    server_state="the global body",
    cost="as FedAvg; fine-tuning only where a model is deployed or tested",
    limits=(
        "ft_epochs = 0: the global model is deployed, with a head that was never trained",
        "a head of no layers: FedAvg with fine-tuning",
        "under a small head that is never trained, features grow: fine-tuning it needs a smaller ft_lr",
    ),
    deviations=("5 epochs of fine-tuning, as in FedAvg-FT; the paper reports several numbers",),
)
