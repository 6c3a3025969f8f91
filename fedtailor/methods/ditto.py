from typing import ClassVar

from pydantic import Field

from fedtailor.methods.base import Card, Method
from fedtailor.parties import Client


class Ditto(Method):
    """FedAvg plus a personal model that is kept near the global one (Li et al., 2021).

    Exchanged: the whole model, down and up.
    Client: E epochs of SGD on its personal v_i, v <- v - eta (g(v) + lam (v - w)) with w the received model;
    and, as in FedAvg, E epochs from w (Alg. 1).
    Server: the mean of the models trained from w, weighted by data size.
    Personal model: v_i; the received model is w.
    """

    name: ClassVar = "ditto"
    trains_only: ClassVar = True

    # Deviation: 0.5 is pFedRLLA's; the paper's clients choose by validation data.
    lam: float = Field(
        0.5, ge=0, le=1000, description="strength of the pull to the global model; 0: clients train alone"
    )

    def inert(self) -> str | None:
        return "lam = 0 unties the personal models: they are Local-only's" if self.lam == 0 else None

    def passes(self, epochs: int) -> float:
        return 2.0 * epochs

    def start_client(self, client: Client) -> None:
        client.state["v"] = client.weights()

    def fit(self, client: Client) -> None:
        client.load(client.state["v"])
        client.train(toward=client.received, pull=self.lam)
        client.state["v"] = client.weights()
        client.load(client.received)
        client.train()

    def personal(self, client: Client) -> None:
        client.load(client.state["v"])

    def adapt(self, client: Client) -> None:
        """A new client's v starts from the received model."""
        client.train(toward=client.received, pull=self.lam)


Ditto.card = Card(
    paper="Li et al., Ditto: Fair and Robust Federated Learning Through Personalization, ICML",
    year=2021,
    exchanged="the model down, the model up",
    client_state="its personal model v_i, with its own running statistics",
    cost="twice FedAvg",
    limits=(
        "lam = 0: v_i is Local-only's model, the global model FedAvg's",
        "lam large: v_i approaches the global model; training needs lr * lam < 2",
    ),
    deviations=(
        "lam = 0.5 as in pFedRLLA's comparison; the paper lets every client choose by its validation data, from "
        "{0.1, 1, 2} or, under strong attacks, {0.05, 0.1, 0.2}",
    ),
)
