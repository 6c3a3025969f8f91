"""Losses and correctness of predictions."""

from typing import Literal

import torch.nn.functional as F
from torch import Tensor

Loss = Literal["cross-entropy", "squared-error"]


def losses(kind: Loss, outputs: Tensor, targets: Tensor) -> Tensor:
    """The loss of every sample.  # (samples,)"""
    if kind == "cross-entropy":
        return F.cross_entropy(outputs, targets, reduction="none")
    return 0.5 * (outputs - targets.view_as(outputs)).square().flatten(1).sum(1)


def mean_loss(kind: Loss, outputs: Tensor, targets: Tensor) -> Tensor:
    """The mean loss of a batch, differentiable."""
    if kind == "cross-entropy":
        return F.cross_entropy(outputs, targets)
    return losses(kind, outputs, targets).mean()


def hits(kind: Loss, outputs: Tensor, targets: Tensor) -> Tensor:
    """Which samples are classified correctly; none in a regression.  # (samples,)"""
    if kind == "cross-entropy":
        return outputs.argmax(1) == targets
    return targets.new_zeros(len(targets)).bool()
