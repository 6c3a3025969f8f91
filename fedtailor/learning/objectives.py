"""Losses and correctness of predictions."""

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import torch
import torch.nn.functional as F
from torch import Tensor

from fedtailor.learning.own import own_function

if TYPE_CHECKING:
    from fedtailor.learning.settings import TrainingSettings

FOR_CLASSES = ("cross-entropy", "weighted-cross-entropy", "balanced-cross-entropy", "binary-cross-entropy")
FOR_NUMBERS = ("mse", "huber", "squared-error")


@dataclass(frozen=True)
class Criterion:
    """A loss with all that it needs: what `losses` and `mean_loss` compute.

    Attributes
    ----------
    kind : str
        The kind of loss, as in ``training.loss``, but never ``auto``.
    weights : Tensor or None
        The weight of each class, for a weighted loss; classes beyond its end have weight 1.
    delta : float
        Where the loss ``huber`` turns from a square into a line.
    own_classes : bool
        For a loss of the user's own: whether targets are classes.
    """

    kind: str
    weights: Tensor | None = None
    delta: float = 1.0
    own_classes: bool = False

    @classmethod
    def of(cls, settings: "TrainingSettings", targets: Tensor) -> "Criterion":
        """The loss of these settings for a client with these training targets.

        The balanced loss weights a class by n / (k n_c) for n samples, k classes that occur and n_c samples of the
        class. The mean weight of the client's samples is then 1. A class that does not occur has weight 1.
        """
        kind = chosen_loss(settings.loss, classes=not targets.is_floating_point())
        weights = None
        if kind == "weighted-cross-entropy":
            weights = torch.tensor(settings.class_weights, dtype=torch.float32, device=targets.device)
        elif kind == "balanced-cross-entropy":
            counts = torch.bincount(targets).double()
            weights = torch.where(counts > 0, len(targets) / (counts.count_nonzero() * counts), 1.0).float()
        return cls(kind, weights, settings.huber_delta, not targets.is_floating_point())

    @property
    def for_classes(self) -> bool:
        """Whether outputs are those of a classification."""
        return self.own_classes if ":" in self.kind else self.kind in FOR_CLASSES

    def unweighted(self) -> "Criterion":
        """The same loss without weights, as evaluation reports it."""
        return self if self.weights is None else replace(self, kind="cross-entropy", weights=None)


Loss = str | Criterion  # a kind that needs nothing else may be given by its name


def criterion_of(loss: Loss) -> Criterion:
    """A loss that may be given by its name."""
    return loss if isinstance(loss, Criterion) else Criterion(loss)


def chosen_loss(kind: str, classes: bool) -> str:
    """The kind of loss; ``auto`` is cross-entropy for classes and the mean squared error for numbers."""
    return kind if kind != "auto" else "cross-entropy" if classes else "mse"


def losses(loss: Loss, outputs: Tensor, targets: Tensor) -> Tensor:
    """The loss of every sample.  # (samples,)"""
    criterion = criterion_of(loss)
    kind = criterion.kind
    if ":" in kind:
        return own_function(kind, "training.loss")(outputs, targets)  # type: ignore[no-any-return]
    if kind == "binary-cross-entropy":
        ones = F.one_hot(targets, outputs.shape[1]).to(outputs.dtype)
        return F.binary_cross_entropy_with_logits(outputs, ones, reduction="none").mean(1)
    if kind in FOR_CLASSES:
        plain = F.cross_entropy(outputs, targets, reduction="none")
        return plain if criterion.weights is None else plain * _weights(criterion.weights, outputs)[targets]
    aims = targets.view_as(outputs)
    if kind == "huber":
        return F.huber_loss(outputs, aims, reduction="none", delta=criterion.delta).flatten(1).mean(1)
    squares = (outputs - aims).square().flatten(1)
    return squares.mean(1) if kind == "mse" else 0.5 * squares.sum(1)


def mean_loss(loss: Loss, outputs: Tensor, targets: Tensor) -> Tensor:
    """The mean loss of a batch, differentiable."""
    if criterion_of(loss).kind == "cross-entropy":
        return F.cross_entropy(outputs, targets)
    return losses(loss, outputs, targets).mean()


def hits(outputs: Tensor, targets: Tensor) -> Tensor:
    """Which samples are classified correctly; none in a regression.  # (samples,)"""
    if targets.is_floating_point():
        return targets.new_zeros(len(targets)).bool()
    return outputs.argmax(1) == targets


def probabilities(kind: str, outputs: Tensor) -> Tensor:
    """The probabilities of the classes.  # (samples, classes)

    The outputs of a binary loss are independent: their sigmoids are divided by their sum.
    """
    if kind == "binary-cross-entropy":
        each = torch.sigmoid(outputs)
        return each / each.sum(1, keepdim=True)
    return torch.softmax(outputs, 1)


def _weights(weights: Tensor, outputs: Tensor) -> Tensor:
    return F.pad(weights, (0, max(0, outputs.shape[1] - len(weights))), value=1.0).to(outputs.dtype)
