from collections.abc import Sequence
from statistics import pstdev
from typing import Annotated, ClassVar, Literal

import torch
from pydantic import Field

from fedtailor.messages.payload import Payload
from fedtailor.methods.base import Card, Method
from fedtailor.methods.mixing import learn_mix
from fedtailor.parties import Client
from fedtailor.weights import select

WINDOW = 10  # number of latest epochs over which the loss must have settled


class FedALA(Method):
    """FedAvg whose clients start from a learned mix of their own and the global model (Zhang et al., 2023).

    Exchanged: the whole model, down and up.
    Client: loads the lower layers; its top layers start from w_i + (w - w_i) * W with W in [0, 1] for every element,
    learned by gradient steps on a share of its data: the first time until the loss settles, later for one epoch per
    round. Then E epochs of SGD on all layers.
    Server: the mean of the models, weighted by data size.
    """

    name: ClassVar = "fedala"

    layers: Annotated[int, Field(ge=1)] | Literal["all"] = Field(
        "all", description="number of top layers to mix; the global model overwrites those below"
    )
    eta: float = Field(1.0, ge=0, le=1000, description="learning rate of the mixing weights; 0 is FedAvg")
    share: float = Field(0.8, gt=0, le=1, description="share of the training data for learning the mix")
    threshold: float = Field(0.1, ge=0, description="standard deviation of the loss below which it has settled")
    cap: int = Field(
        100, ge=1, le=10_000, description="largest number of epochs when the mix is learned for the first time"
    )

    def inert(self) -> str | None:
        return "eta = 0 leaves the mixing weights at 1: this is FedAvg" if self.eta == 0 else None

    def idle_settings(self) -> frozenset[str]:
        return frozenset({"share", "threshold", "cap"}) if self.eta == 0 else frozenset()

    def passes(self, epochs: int) -> float:
        return epochs + self.share * (1 / 3 if self.layers == 1 else 1)

    def receive(self, client: Client, payload: Payload) -> None:
        client.load(payload["model"])
        local = client.state.get("local")
        if local is None:
            return
        known = client.state.get("mix")
        rows = torch.randperm(client.samples, generator=client.stream("mix"))
        client.state["mix"] = learn_mix(
            client,
            local,
            {name: torch.ones_like(tensor) for name, tensor in local.items()} if known is None else known,
            eta=self.eta,
            # Deviation: the first learning has a limit; in the paper it ends when it has converged.
            epochs=self.cap if known is None else 1,
            rows=rows[: max(1, round(self.share * client.samples))],
            until=self._settled,
        )

    def fit(self, client: Client) -> None:
        client.train()
        client.state["local"] = select(client.weights(), self._mixed(client))

    def _mixed(self, client: Client) -> frozenset[str]:
        """The parameters of the top layers."""
        parameters = client.network.parameters()
        layers = list(client.network.layers.values())
        top = layers if self.layers == "all" else layers[-self.layers :]
        return frozenset(name for names in top for name in names if name in parameters)

    def _settled(self, losses: Sequence[float]) -> bool:
        return len(losses) > WINDOW and pstdev(losses[-WINDOW:]) < self.threshold


FedALA.card = Card(
    paper="Zhang et al., FedALA: Adaptive Local Aggregation for Personalized Federated Learning, AAAI",
    year=2023,
    exchanged="the model down, the model up",
    client_state="its last top layers and their mixing weights",
    cost="as FedAvg, plus an epoch on the share of the data, over cached features where only the head is "
    "mixed; 11 to cap epochs in a client's second round",
    limits=("eta = 0: FedAvg",),
    deviations=(
        "all layers are mixed, as in pFedRLLA's comparison; the paper recommends only the top one (layers = 1)",
        "the first learning of W ends after cap epochs at the latest; the paper continues until it has converged",
        "the loss has settled when its mean over an epoch varies little; the authors' code looks at last batches",
    ),
)
