"""What a model learns from another one's outputs."""

import torch.nn.functional as F
from torch import Tensor

from fedtailor.learning.objectives import Loss, losses, mean_loss


def distilled(kind: Loss, own: Tensor, other: Tensor, targets: Tensor, *, hard: float, soft: float) -> Tensor:
    """hard * (loss against the targets) + soft * (divergence from the other model, which stays as it is).

    Outputs are (samples, outputs). A share of 0 leaves its term out.
    """
    parts = []
    if hard:
        parts.append(hard * mean_loss(kind, own, targets))
    if soft or not hard:
        parts.append(soft * divergence(kind, own, other.detach()))
    return sum(parts[1:], parts[0])


def divergence(kind: Loss, own: Tensor, other: Tensor) -> Tensor:
    """The mean over samples of D_KL(own || other) of the two softmax, at temperature 1.

    In a regression, where outputs are no distribution, the loss with the other model's outputs as targets: half the
    squared distance, which is the divergence of two Gaussians with deviation 1.
    """
    if kind != "cross-entropy":
        return losses(kind, own, other).mean()
    log_own, log_other = F.log_softmax(own, 1), F.log_softmax(other, 1)
    return (log_own.exp() * (log_own - log_other)).sum(1).mean()
