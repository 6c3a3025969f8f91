from typing import ClassVar, Literal

import torch
from pydantic import Field
from torch import Tensor

from fedtailor.learning import Batch, optimiser
from fedtailor.methods.base import Card, Method
from fedtailor.parties import Client
from fedtailor.weights import Weights, mean, select


class APFL(Method):
    """FedAvg plus a local model; each client mixes the two (Deng et al., 2020).

    Exchanged: the whole model, down and up.
    Client: with vbar = alpha v + (1 - alpha) w_i, every mini-batch moves w_i by its gradient g(w_i) as in FedAvg,
    the local v by alpha g(vbar) (Alg. 1), and alpha by -eta <v - w_i, g(vbar)>, clipped to [0, 1].
    Server: the mean of the w_i, weighted by data size.
    Personal model: vbar, a mix of parameters, not of outputs; the received model is w.
    """

    name: ClassVar = "apfl"

    # Deviation: 1 is pFedRLLA's; the paper compares several.
    alpha_0: float = Field(1.0, ge=0, le=1, description="initial share of the local model in the mix")
    alpha_updates: Literal["step", "round", "never"] = Field(
        "step", description="when alpha is updated: in every mini-batch, in the first one of a round, or never"
    )

    def inert(self) -> str | None:
        if self.alpha_updates == "never" and self.alpha_0 in (0, 1):
            return f"alpha stays {self.alpha_0:g}: this is {'Local-only' if self.alpha_0 else 'FedAvg'}"
        return None

    def passes(self, epochs: int) -> float:
        return 2.0 * epochs

    def start_client(self, client: Client) -> None:
        client.state["v"] = client.weights()
        client.state["alpha"] = self.alpha_0

    def fit(self, client: Client) -> None:
        both = _JointTraining(client, self.alpha_updates)
        client.train(step=both.step)
        w_i = client.weights()
        client.load({**client.state["v"], **both.statistics})
        client.load(both.local)
        client.state["v"], client.state["alpha"] = client.weights(), both.alpha
        client.load(w_i)

    def personal(self, client: Client) -> None:
        v, alpha = client.state["v"], client.state["alpha"]
        client.load(mean([v, client.weights()], [alpha, 1 - alpha]))
        client.load(select(v, client.network.statistics))

    def adapt(self, client: Client) -> None:
        """A new client's v starts from the received model; it deploys vbar."""
        client.state["v"] = client.weights()
        self.fit(client)
        self.personal(client)


class _JointTraining:
    """Trains w_i, which is in the network, together with v and alpha."""

    def __init__(self, client: Client, updates: str):
        self.client, self.updates = client, updates
        self.alpha: float = client.state["alpha"]
        self.local: Weights = {}  # v
        mixed = mean([client.state["v"], client.received], [self.alpha, 1 - self.alpha])
        # Deviation: vbar has its own running statistics, which the paper does not treat.
        self.statistics = select(mixed, client.network.statistics)

    def step(self, batch: Batch) -> Tensor:
        alpha, w = self.alpha, [value.detach() for value in batch.parameters.values()]
        begins = not self.local
        if begins:
            self.local = batch.like(self.client.state["v"])
            self.statistics = {name: tensor.to(w[0].device) for name, tensor in self.statistics.items()}
            # Deviation: with momentum, v has its own; the paper has plain SGD.
            self.optimiser = optimiser(self.client.training, list(self.local.values()), self.client.lr)
        v = list(self.local.values())
        mixed = torch._foreach_add(torch._foreach_mul(v, alpha), w, alpha=1 - alpha)
        loss, slopes = batch.gradient(at={**dict(zip(self.local, mixed, strict=True)), **self.statistics})
        _, gradients = batch.gradient()
        if self.updates == "step" or (self.updates == "round" and begins):
            gaps = torch._foreach_mul(torch._foreach_sub(v, w), slopes)
            slope = sum(float(gap.sum()) for gap in gaps)  # <v - w_i, g(vbar)>
            self.alpha = min(1.0, max(0.0, alpha - self.client.lr * slope))
        batch.apply(gradients)
        self.optimiser.step(list(torch._foreach_mul(slopes, alpha)))
        return loss


APFL.card = Card(
    paper="Deng et al., Adaptive Personalized Federated Learning, arXiv 2003.13461",
    year=2020,
    exchanged="the model down, the model up",
    client_state="its local model v_i and its share alpha_i",
    cost="twice FedAvg",
    limits=(
        "alpha_updates = never and alpha_0 = 1: Local-only",
        "alpha_updates = never and alpha_0 = 0: FedAvg",
    ),
    deviations=(
        "the mean is weighted by data size, as in the other methods; the paper's is plain",
        "alpha_0 = 1 as in pFedRLLA's comparison; the paper compares several",
        "with momentum, w_i and v_i have separate momenta; the paper has plain SGD",
        "the running statistics of vbar start a round as the same mix and are then updated separately",
    ),
)
