from typing import ClassVar

from pydantic import Field

from fedtailor.methods.base import Card, Method
from fedtailor.parties import Client


class FedRep(Method):
    """Shared body, private head; the head is trained first, then the body (Collins et al., 2021).

    Exchanged: the body, down and up.
    Client: ``head_epochs`` on the head with the received body, then E epochs on the body with that head (Alg. 1).
    Server: the mean of the bodies, weighted by data size.
    """

    name: ClassVar = "fedrep"
    trains_only: ClassVar = True
    shares: ClassVar = "body"

    # Deviation: 5 as in pFedRLLA's comparison; the paper has 10.
    head_epochs: int = Field(5, ge=0, le=10_000, description="epochs on the head, before the run's epochs on the body")

    def inert(self) -> str | None:
        if self.head_epochs == 0:
            return "head_epochs = 0 never trains the head: this is FedBABU before its fine-tuning"
        return None

    def passes(self, epochs: int) -> float:
        return epochs + (1 / 3 if self.head_epochs else 0)

    def fit(self, client: Client) -> None:
        client.train("head", epochs=self.head_epochs)
        client.train("body")

    def adapt(self, client: Client) -> None:
        """A new client trains a head on the frozen body, which fits all clients."""
        client.train("head")


FedRep.card = Card(
    paper="Collins et al., Exploiting Shared Representations for Personalized Federated Learning, ICML",
    year=2021,
    exchanged="the body down, the body up",
    client_state="its head",
    server_state="the global body",
    cost="as FedAvg, plus a forward pass: the frozen body's features are computed once for all head epochs",
    limits=(
        "head_epochs = 0: FedBABU before its fine-tuning",
        "epochs = 0: private heads on the initial body",
        "a head of no layers: FedAvg",
    ),
    deviations=(
        "5 head epochs, as in pFedRLLA's comparison; the paper's experiments do 10 and then few on the body",
        "the mean is weighted by data size; the paper's Alg. 1 takes the plain mean",
    ),
)
