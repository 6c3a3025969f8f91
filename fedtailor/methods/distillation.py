"""Distillation: losses between the outputs of two models."""

import torch.nn.functional as F
from torch import Tensor

from fedtailor.learning.objectives import Loss, criterion_of, losses, mean_loss


def distilled(kind: Loss, own: Tensor, other: Tensor, targets: Tensor, *, hard: float, soft: float) -> Tensor:
    """hard * (loss with the targets) + soft * (divergence from the other model, which is constant).

    Outputs are (samples, outputs). A factor of 0 omits its term.
    """
    parts = []
    if hard:
        parts.append(hard * mean_loss(kind, own, targets))
    if soft or not hard:
        parts.append(soft * divergence(kind, own, other.detach()))
    return sum(parts[1:], parts[0])


def divergence(kind: Loss, own: Tensor, other: Tensor) -> Tensor:
    """The mean over samples of D_KL(own || other) between the two softmax outputs, at temperature 1.

    In a regression outputs are no distribution. Then it is the loss with the other model's outputs as targets.
    Half the squared distance, for example, is the divergence of two Gaussians with deviation 1.
    """
    if not criterion_of(kind).for_classes:
        return losses(kind, own, other).mean()
    log_own, log_other = F.log_softmax(own, 1), F.log_softmax(other, 1)
    return (log_own.exp() * (log_own - log_other)).sum(1).mean()
