from typing import ClassVar

import torch
from pydantic import Field
from torch import Tensor

from fedtailor.learning import Batch
from fedtailor.methods.base import Card, Method
from fedtailor.parties import Client, Replies, Server
from fedtailor.weights import Weights, learned, mean


class PFedMe(Method):
    """Personal models as Moreau envelopes of the losses around the global one (T. Dinh et al., 2020).

    Exchanged: the whole model, down and up.
    Client: for every mini-batch, K steps theta <- theta - eta_p (g(theta) + lam (theta - w_i)) towards the minimiser
    of f_i(theta) + lam/2 |theta - w_i|^2, then w_i <- w_i - eta lam (w_i - theta), the gradient step of the
    envelope, with the run's optimiser (Alg. 1).
    Server: w <- (1 - beta) w + beta times the mean of the w_i, weighted by data size.
    Personal model: theta_i; the received model is w.
    """

    name: ClassVar = "pfedme"
    averages_once: ClassVar = True

    lam: float = Field(15.0, ge=0, le=10_000, description="strength of the envelope's pull")
    inner_steps: int = Field(5, ge=1, le=1000, description="steps K of theta on every mini-batch")
    # Deviation: the paper has an eta_p for every experiment; this one is stable at lam = 15.
    inner_lr: float = Field(0.01, gt=0, le=100, description="learning rate eta_p of theta")
    beta: float = Field(1.0, ge=0, le=10, description="share of the clients' mean in the new global model")
    restart: bool = Field(False, description="whether theta restarts from w_i in every mini-batch")

    def inert(self) -> str | None:
        if self.lam == 0 or self.beta == 0:
            return "lam = 0 or beta = 0 keeps the global model at its start: clients only fine-tune that"
        return None

    def passes(self, epochs: int) -> float:
        return float(epochs * self.inner_steps)

    def fit(self, client: Client) -> None:
        theta: Weights = {}

        def step(batch: Batch) -> Tensor:
            w = [value.detach() for value in batch.parameters.values()]
            if self.restart or not theta:
                theta.update({name: value.clone() for name, value in zip(batch.parameters, w, strict=True)})
            values, losses = list(theta.values()), []
            for _ in range(self.inner_steps):
                loss, gradients = batch.gradient(at=theta)
                slopes = torch._foreach_add(gradients, torch._foreach_sub(values, w), alpha=self.lam)
                torch._foreach_add_(values, slopes, alpha=-self.inner_lr)
                losses.append(loss.detach())
            batch.apply(list(torch._foreach_mul(torch._foreach_sub(w, values), self.lam)))
            return losses[0]

        client.train(step=step)
        w_i = client.weights()
        client.load(theta)
        client.state["theta"] = client.weights()
        client.load(w_i)

    def finish(self, server: Server, replies: Replies) -> None:
        w = learned(server.weights, server.network.statistics)
        # Deviation: by data size; the paper's mean is plain.
        super().finish(server, replies)
        server.weights = {**server.weights, **mean([w, server.weights], [1 - self.beta, self.beta])}

    def personal(self, client: Client) -> None:
        client.load(client.state["theta"])

    def adapt(self, client: Client) -> None:
        self.fit(client)
        self.personal(client)


PFedMe.card = Card(
    paper="T. Dinh et al., Personalized Federated Learning with Moreau Envelopes, NeurIPS",
    year=2020,
    exchanged="the model down, the model up",
    client_state="its personal model theta_i, to deploy; a round does not start from it",
    cost="K times FedAvg",
    limits=(
        "lam = 0 or beta = 0: the global model never moves",
        "inner_steps large: theta is the minimiser of the envelope, if eta_p (L + lam) < 2 for L-smooth losses",
    ),
    deviations=(
        "the mean is weighted by data size, as in the other methods; the paper's is plain",
        "eta_p is 0.01, which is stable at lam = 15; the paper chooses it for every experiment",
        "theta begins a round at w and continues from batch to batch, as in the authors' code; the paper only asks "
        "for an approximate minimiser (restart = true begins every batch at w_i)",
    ),
)
