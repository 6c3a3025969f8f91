from typing import ClassVar

from pydantic import Field

from fedtailor.methods.base import Card, Method
from fedtailor.parties import Client


class FedAvgFT(Method):
    """FedAvg; a client deploys the received global model after fine-tuning it on its own data.

    Exchanged, client, server: as FedAvg.
    Personal model: the *received* model after ``ft_epochs`` of SGD, so with ft_epochs = E it is the model
    that FedAvg's local training ends with.
    """

    name: ClassVar = "fedavg-ft"

    ft_epochs: int = Field(5, ge=0, le=10_000, description="epochs of fine-tuning; 0 deploys the global model")

    def inert(self) -> str | None:
        return "ft_epochs = 0 deploys the global model: this is FedAvg" if self.ft_epochs == 0 else None

    def personal(self, client: Client) -> None:
        client.load(client.received)
        client.train(epochs=self.ft_epochs)


FedAvgFT.card = Card(
    paper="FedAvg with fine-tuning, a baseline of many papers (pFedRLLA, FedBABU, ...)",
    year=2017,
    exchanged="the model down, the model up",
    cost="as FedAvg; fine-tuning only where a model is deployed or tested",
    limits=("ft_epochs = 0: FedAvg's global model is deployed", "ft_epochs = E: FedAvg's final pass"),
)
