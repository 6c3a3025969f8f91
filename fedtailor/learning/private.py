"""Differentially private SGD (Abadi et al., 2016), the local training that hides single samples."""

import math
from random import SystemRandom

import torch
from torch import Tensor, nn
from torch.func import functional_call, grad_and_value, vmap

from fedtailor.learning.noise import Noise, seeded_noise, system_noise
from fedtailor.learning.objectives import Criterion, mean_loss
from fedtailor.learning.options import TrainOptions
from fedtailor.learning.settings import DPSGD, TrainingSettings
from fedtailor.learning.steps import Training, descend
from fedtailor.models import Network


def train_privately(
    network: Network,
    x: Tensor,
    y: Tensor,
    settings: TrainingSettings,
    options: TrainOptions,
    training: Training,
    criterion: Criterion,
    stream: torch.Generator,
) -> tuple[int, int, float]:
    """Train with clipped gradients of single samples and noise; the numbers of steps and samples, and the mean loss.

    Every sample is in a step's batch with probability batch size / samples, independently, as the accountant assumes.
    An empty batch is a step of noise alone.
    """
    private = settings.dp_sgd
    assert private is not None
    if options.objective is not None or options.step is not descend or options.until is not None:
        raise ValueError("training.dp_sgd covers plain SGD steps of the run's loss only")
    size = settings.batch_size if options.batch_size is None else options.batch_size
    rate = sample_rate(size, len(x))
    epochs, steps = options.duration(settings)
    steps = epochs * math.ceil(len(x) / size) if steps is None else steps
    system = SystemRandom() if private.generator == "system" else None
    normal = system_noise if system else seeded_noise(stream)
    seen, total = 0, 0.0
    for _ in range(steps):
        if system:
            chosen = torch.tensor([system.random() < rate for _ in range(len(x))])
        else:
            chosen = torch.rand(len(x), generator=stream, dtype=torch.float64) < rate
        losses, gradients = _private_gradients(network, training, x[chosen], y[chosen], criterion, private, normal)
        average = [gradient / (rate * len(x)) for gradient in gradients]
        training.optimiser.step(training.adjusted(average))
        seen += int(chosen.sum())
        total += losses
    return steps, seen, total / max(seen, 1)


def sample_rate(batch_size: int, samples: int) -> float:
    """The probability with which a sample is in a batch."""
    return min(1.0, batch_size / samples)


def why_not_private(module: nn.Module) -> str:
    """Why samples of this network have no gradients of their own; empty if they have."""
    for layer in module.modules():
        if isinstance(layer, nn.modules.batchnorm._BatchNorm):
            return "BatchNorm mixes the samples of a batch"
        if isinstance(layer, nn.RNNBase):
            return "recurrent layers give no gradients of single samples"
    return ""


def _private_gradients(
    network: Network, training: Training, x: Tensor, y: Tensor, criterion: Criterion, private: DPSGD, normal: Noise
) -> tuple[float, list[Tensor]]:
    """The sum of the losses, and the noisy sum of the clipped gradients."""
    trained = {name: value.detach() for name, value in training.parameters.items()}
    sums = [torch.zeros_like(value) for value in trained.values()]
    loss = 0.0
    if len(x):

        def of_one(weights: dict[str, Tensor], inputs: Tensor, target: Tensor) -> Tensor:
            outputs = functional_call(network.module, weights, (inputs[None],))
            return mean_loss(criterion, outputs, target[None])

        each = vmap(grad_and_value(of_one), in_dims=(None, 0, 0), randomness="different")
        gradients, losses = each(trained, x, y)
        rows = [gradients[name].flatten(1) for name in trained]
        lengths = torch.stack([row.square().sum(1) for row in rows]).sum(0).sqrt()  # (samples,)
        factors = (private.clip / lengths.clamp(min=1e-12)).clamp(max=1.0)
        sums = [(factors @ row).view_as(value) for row, value in zip(rows, trained.values(), strict=True)]
        loss = float(losses.detach().sum())
    return loss, [total + private.noise * private.clip * normal(total) for total in sums]
