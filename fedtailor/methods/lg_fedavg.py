from typing import ClassVar

from fedtailor.methods.base import Card, Method


class LGFedAvg(Method):
    """Private body, shared head: local representations, a global classifier (Liang et al., 2020).

    Exchanged: the head, down and up.
    Client: E epochs of SGD on body and head together; the body never leaves the client.
    Server: the mean of the heads, weighted by data size.
    """

    name: ClassVar = "lg-fedavg"
    shares: ClassVar = "head"


LGFedAvg.card = Card(
    paper="Liang et al., Think Locally, Act Globally: Federated Learning with Local and Global Representations, "
    "arXiv 2001.01523",
    year=2020,
    exchanged="the head down, the head up",
    client_state="its body",
    server_state="the global head",
    limits=("a head of all layers: FedAvg", "a head of no layers: Local-only"),
    deviations=(
        "starts from the initial model; the paper's experiments may start from one trained by FedAvg",
        "a client that never trained predicts with the initial body; the paper asks an ensemble of all clients",
    ),
)
