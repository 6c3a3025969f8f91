from typing import ClassVar

from fedtailor.learning import TrainingSettings
from fedtailor.methods.base import Card, Method
from fedtailor.models import Network


class FedBN(Method):
    """FedAvg whose normalisation layers, parameters and statistics, stay on the client (Li et al., 2021).

    Exchanged: all other layers, down and up.
    Client: E epochs of SGD on everything (Alg. 1).
    Server: the mean of what travels, weighted by data size.
    """

    name: ClassVar = "fedbn"

    def shared(self, network: Network) -> frozenset[str]:
        return network.part("all") - network.normalisation

    def misfit(self, training: TrainingSettings, network: Network) -> str | None:
        return None if network.normalisation else "the network has no normalisation layer: this is FedAvg"


FedBN.card = Card(
    paper="Li et al., FedBN: Federated Learning on Non-IID Features via Local Batch Normalization, ICLR",
    year=2021,
    exchanged="the model without its normalisation layers, down and up",
    client_state="its normalisation layers: scales, shifts and running statistics",
    server_state="the global model without normalisation layers",
    limits=(
        "a network without normalisation layers (cnn, mlp, ...): FedAvg",
        "running_statistics = reset: every task resets the running statistics; scales and shifts stay",
    ),
    deviations=(
        "batch, group, layer, instance and RMS normalisation all stay, by the type of the layer; "
        "the paper has batch normalisation only",
        "the mean is weighted by data size; the paper's Alg. 1 takes the plain mean",
    ),
)
