from typing import ClassVar, Literal

import torch
from pydantic import Field
from torch import Tensor

from fedtailor.learning import Batch, TrainingSettings
from fedtailor.methods.base import Card, Method
from fedtailor.models import Network
from fedtailor.parties import Client


class PerFedAvg(Method):
    """FedAvg of a model that is good after one gradient step on a client's data (Fallah et al., 2020).

    Exchanged: the whole model, down and up.
    Client: every mini-batch is cut into D, D' (and D''); with the inner step w' = w - alpha g(w; D), w moves by the
    run's optimiser and learning rate beta along (I - alpha H) g(w'; D'), the gradient of f_i(w - alpha g(w))
    (Alg. 1). ``first-order`` leaves the Hessian H out; ``hessian-free`` takes H u as
    [g(w + delta u; D'') - g(w - delta u; D'')] / (2 delta).
    Server: the mean by data size.
    Personal model: the received one after ``adapt_steps`` inner steps.
    """

    name: ClassVar = "per-fedavg"

    variant: Literal["first-order", "hessian-free"] = Field(
        "first-order", description="how the Hessian is approximated"
    )
    # Deviation: the paper has an alpha for every experiment.
    alpha: float = Field(
        0.01, ge=0, le=100, description="inner step size, below 1/L for L-smooth losses; 0: no inner step"
    )
    delta: float = Field(1e-3, gt=0, le=1, description="width of the difference in hessian-free")
    adapt_steps: int = Field(1, ge=0, le=10_000, description="mini-batches of adaptation before a model is deployed")

    def inert(self) -> str | None:
        if self.alpha == 0:
            return "alpha = 0 has no inner step: this is FedAvg on a part of every mini-batch"
        if self.adapt_steps == 0:
            return "adapt_steps = 0 deploys the received model without the adaptation that it is trained for"
        return None

    def idle_settings(self) -> frozenset[str]:
        return frozenset() if self.variant == "hessian-free" and self.alpha else frozenset({"delta"})

    def misfit(self, training: TrainingSettings, network: Network) -> str | None:
        if self.variant == "hessian-free" and training.clip is not None:
            return "with clipping, the difference of two gradients is no product with the Hessian"
        return None

    def passes(self, epochs: int) -> float:
        return epochs * (4 / 3 if self.variant == "hessian-free" else 1.0)

    def pieces(self) -> int:
        return 3 if self.variant == "hessian-free" else 2

    def fit(self, client: Client) -> None:
        def step(batch: Batch) -> Tensor:
            # Deviation: parts of one mini-batch, so that steps and data are FedAvg's; the paper draws them apart.
            inner, outer, *third = batch.split(self.pieces())
            loss, gradients = inner.gradient()
            _, meta = outer.gradient(at=batch.moved(gradients, -self.alpha))
            for part in third:
                _, ahead = part.gradient(at=batch.moved(meta, self.delta))
                _, behind = part.gradient(at=batch.moved(meta, -self.delta))
                bent = torch._foreach_sub(ahead, behind)  # 2 delta H u
                meta = list(torch._foreach_add(meta, bent, alpha=-self.alpha / (2 * self.delta)))
            batch.apply(meta)
            return loss

        client.train(step=step)

    def personal(self, client: Client) -> None:
        client.load(client.received)
        client.train(steps=self.adapt_steps, step=self._inner_step)

    def adapt(self, client: Client) -> None:
        """Make the inner steps that the model was trained for, on as many passes as the client makes."""
        client.train(step=self._inner_step)

    def _inner_step(self, batch: Batch) -> Tensor:
        loss, gradients = batch.gradient()
        for parameter, gradient in zip(batch.parameters.values(), gradients, strict=True):
            parameter.data.add_(gradient, alpha=-self.alpha)
        return loss


PerFedAvg.card = Card(
    paper="Fallah et al., Personalized Federated Learning with Theoretical Guarantees: A Model-Agnostic "
    "Meta-Learning Approach, NeurIPS",
    year=2020,
    exchanged="the model down, the model up",
    cost="as FedAvg, 4/3 of it for hessian-free; the adaptation only where a model is deployed or tested",
    limits=(
        "alpha = 0: FedAvg on the second part of every mini-batch, deployed without adaptation",
        "alpha too large for the losses' curvature: the received model is useless before its adaptation, and "
        "hessian-free diverges (the paper asks for alpha < 1/L)",
        "hessian-free with clipping: a difference of clipped gradients is no Hessian",
    ),
    deviations=(
        "D, D' and D'' are parts of the run's mini-batch, so that steps and data are those of FedAvg; the paper "
        "draws them apart",
        "alpha is 0.01; the paper has another constant for every experiment",
        "the mean is weighted by data size, as in the other methods; the paper's is plain",
    ),
)
