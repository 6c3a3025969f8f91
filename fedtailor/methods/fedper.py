from typing import ClassVar

from fedtailor.methods.base import Card, Method
from fedtailor.parties import Client


class FedPer(Method):
    """Shared body, private head (Arivazhagan et al., 2019).

    Exchanged: the body, down and up.
    Client: E epochs of SGD on body and head together (Alg. 1); the head never leaves the client.
    Server: the mean of the bodies, weighted by data size (Alg. 2).
    """

    name: ClassVar = "fedper"
    shares: ClassVar = "body"

    def adapt(self, client: Client) -> None:
        """A new client trains a head on the frozen body, which fits all clients."""
        client.train("head")


FedPer.card = Card(
    paper="Arivazhagan et al., Federated Learning with Personalization Layers, arXiv 1912.00818",
    year=2019,
    exchanged="the body down, the body up",
    client_state="its head",
    server_state="the global body",
    limits=("a head of no layers: FedAvg", "a body of no layers: Local-only"),
)
