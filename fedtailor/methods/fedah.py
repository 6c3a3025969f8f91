from typing import Annotated, ClassVar, Literal

import torch
from pydantic import Field

from fedtailor.messages.payload import Payload
from fedtailor.methods.base import Card, Method
from fedtailor.methods.mixing import learn_mix
from fedtailor.parties import Client
from fedtailor.weights import select


class FedAH(Method):
    """FedRep whose heads start from a learned mix of the client's own and the global head (Zhou et al., 2024).

    Exchanged: the whole model, body r and head h, down and up.
    Client: loads r; its head starts from the aggregated head h_i + (h - h_i) * W_i (eq. 3), where h_i is its previous
    head (at first the initial one, Alg. 1 line 1) and W_i in [0, 1] has a weight for every element. It learns W_i,
    starting from the previous W_i, by gradient steps with r, h and h_i frozen (eq. 4). Then it trains the head with r
    frozen (eq. 5) and the body with that head frozen (eq. 6).
    Server: the mean of the models, weighted by data size (eq. 2).
    """

    name: ClassVar = "fedah"

    # Deviation: the paper's text sets it to the local learning rate, its public code to 1.
    eta: float = Field(1.0, ge=0, le=1000, description="learning rate of the mixing weights")
    start: float = Field(
        1.0, ge=0, le=1, description="initial value of the mixing weights: 0 is the own head, 1 the global head"
    )
    mix_epochs: int = Field(1, ge=0, le=10_000, description="epochs on the mixing weights")
    head_epochs: int = Field(1, ge=0, le=10_000, description="epochs on the head")
    body_epochs: int | None = Field(None, ge=0, le=10_000, description="epochs on the body; default: the run's")
    layers: Annotated[int, Field(ge=1)] | Literal["all"] = Field(
        "all", description="number of top layers of the head to mix; the global model overwrites the others"
    )

    def inert(self) -> str | None:
        if self.eta and self.mix_epochs:
            return None
        becomes = {0.0: "this is FedRep", 1.0: "this trains the global model's head and body in alternation"}
        return f"the mixing weights stay at {self.start:g}: {becomes.get(self.start, 'the mix is not learned')}"

    def idle_settings(self) -> frozenset[str]:
        if self.eta == 0:
            return frozenset({"mix_epochs"})
        return frozenset() if self.mix_epochs else frozenset({"eta"})

    def passes(self, epochs: int) -> float:
        body = epochs if self.body_epochs is None else self.body_epochs
        return body + (1 / 3 if self.mix_epochs or self.head_epochs else 0)

    # Algorithm 1, with its line numbers; lines 3, 10 and 11 are the default.

    def receive(self, client: Client, payload: Payload) -> None:
        # 1: at first the initial head
        own = client.state.get("head") or select(client.weights(), self._mixed(client))
        client.load(payload["model"])  # 4
        weights = client.state.get("mix") or {name: torch.full_like(head, self.start) for name, head in own.items()}
        client.state["mix"] = learn_mix(client, own, weights, eta=self.eta, epochs=self.mix_epochs)  # 6 and 7

    def fit(self, client: Client) -> None:
        client.train("head", epochs=self.head_epochs)  # 8
        client.train("body", epochs=self.body_epochs)  # 9
        client.state["head"] = select(client.weights(), self._mixed(client))

    def adapt(self, client: Client) -> None:
        """A new client has mixed its head from the initial and the global one; it trains it on the frozen body."""
        client.train("head")

    def _mixed(self, client: Client) -> frozenset[str]:
        """The parameters of the head's top layers."""
        network = client.network
        layers = network.head_layers if self.layers == "all" else network.head_layers[-self.layers :]
        parameters = network.parameters("head")
        return frozenset(name for layer in layers for name in network.layers[layer] if name in parameters)


FedAH.card = Card(
    paper="Zhou et al., FedAH: Aggregated Head for Personalized Federated Learning, arXiv 2412.01295",
    year=2024,
    exchanged="the model down, the model up",
    client_state="its previous head and its mixing weights",
    cost="as FedAvg, plus a forward pass: the frozen body's features are computed once for the epochs on the "
    "mix and on the head",
    limits=(
        "eta = 0 or mix_epochs = 0: the mixing weights keep their initial value",
        "weights that stay at 0: FedRep",
        "weights that stay at 1: the global model, head and body trained in alternation",
    ),
    deviations=(
        "eta = 1, as in the authors' code; the text says it is the local learning rate",
        "two measures: `received`, the body with the aggregated head, is what Algorithm 1 returns and what the paper's "
        "tables are compared with; `held`, after head and body have trained, is what a client would deploy",
        "the weights k_i of the mean sum to one over the clients that answered; in eq. 2 they do over all clients",
    ),
)
