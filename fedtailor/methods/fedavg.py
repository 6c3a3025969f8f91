from typing import ClassVar

from fedtailor.methods.base import Method


class FedAvg(Method):
    """Train the global model on every client, average by data size (McMahan et al., 2017).

    Exchanged: the whole model, down and up.
    Client: E epochs of SGD from the received model.
    Server: w = sum_i n_i / n w_i over the clients that answered (Alg. 1).
    """

    name: ClassVar = "fedavg"
    paper: ClassVar = "McMahan et al., Communication-Efficient Learning of Deep Networks, AISTATS 2017"
