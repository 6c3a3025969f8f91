from typing import ClassVar

from fedtailor.methods.base import Method


class FedPer(Method):
    """Shared body, private head (Arivazhagan et al., 2019).

    Exchanged: the body, down and up.
    Client: E epochs of SGD on body and head together (Alg. 1); the head never leaves.
    Server: the mean of the bodies, weighted by data size (Alg. 2).
    """

    name: ClassVar = "fedper"
    paper: ClassVar = "Arivazhagan et al., Federated Learning with Personalization Layers, 2019"
    shares: ClassVar = "body"
