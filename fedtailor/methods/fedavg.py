from typing import ClassVar

from fedtailor.methods.base import Card, Method


class FedAvg(Method):
    """Train the global model on every client, average by data size (McMahan et al., 2017).

    Exchanged: the whole model, down and up.
    Client: E epochs of SGD from the received model.
    Server: w = sum_i n_i / n w_i over the clients that answered (Alg. 1).
    """

    name: ClassVar = "fedavg"


FedAvg.card = Card(
    paper="McMahan et al., Communication-Efficient Learning of Deep Networks from Decentralized Data, AISTATS",
    year=2017,
    exchanged="the model down, the model up",
)
