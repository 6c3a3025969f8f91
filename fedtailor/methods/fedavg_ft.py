from typing import ClassVar

from pydantic import Field

from fedtailor.learning import TrainingSettings
from fedtailor.methods.base import Card, Method
from fedtailor.methods.fedavg import FedAvg
from fedtailor.parties import Client


class FedAvgFT(Method):
    """FedAvg; a client deploys the received global model after ``ft_epochs`` of fine-tuning on its own data.

    Exchanged, client, server: as FedAvg.
    Personal model: the *received* model after ``ft_epochs`` of SGD. FedAvg's clients deploy it after the E epochs of
    a round, so with ft_epochs = E both methods deploy the same models.
    """

    name: ClassVar = "fedavg-ft"

    ft_epochs: int = Field(5, ge=0, le=10_000, description="epochs of fine-tuning; 0 deploys the global model")

    def inert(self) -> str | None:
        return "ft_epochs = 0 fine-tunes nothing: clients deploy FedAvg's global model" if self.ft_epochs == 0 else None

    def coincides(self, other: Method, training: TrainingSettings) -> str | None:
        if type(other) is FedAvg and training.steps is None and self.ft_epochs == training.epochs:
            return (
                f"fine-tuning for ft_epochs = {self.ft_epochs} is the local training of FedAvg with training.epochs = "
                f"{self.ft_epochs}; another ft_epochs tells them apart"
            )
        return None

    def personal(self, client: Client) -> None:
        client.load(client.received)
        client.train(epochs=self.ft_epochs)


FedAvgFT.card = Card(
    paper="FedAvg with fine-tuning, a baseline of many papers (pFedRLLA, FedBABU, ...)",
    year=2017,
    exchanged="the model down, the model up",
    cost="as FedAvg; fine-tuning only where a model is deployed or tested",
    limits=("ft_epochs = 0: FedAvg's global model is deployed", "ft_epochs = E: FedAvg"),
)
