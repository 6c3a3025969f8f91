"""Aggregation weights from the entropy of a client's labels and the accuracy of its model."""

from collections.abc import Mapping, Sequence

import torch
from torch import Tensor

from fedtailor.messages.payload import Payload


def label_entropy(labels: Tensor) -> float:
    """The entropy H of labels in bits (HAPFL, eq. 37); 0 in a regression, which has no labels."""
    if labels.is_floating_point() or not len(labels):
        return 0.0
    counts = labels.bincount()
    shares = counts[counts > 0].double() / len(labels)
    return float(-(shares * shares.log2()).sum())


def entropy_accuracy_weights(entropies: Sequence[float], accuracies: Sequence[float]) -> list[float]:
    """The weights W (HAPFL, eq. 38), which sum to one over the aggregated models."""
    both = torch.tensor([entropies, accuracies], dtype=torch.double).softmax(1).mean(0)
    weights: list[float] = both.tolist()
    return weights


def reply_weights(replies: Mapping[int, Payload], accuracy: str) -> dict[int, float]:
    """The weights W of clients by the entropy in their replies and by the accuracy of this name."""
    entropies, accuracies = ([reply.number(name) for reply in replies.values()] for name in ("entropy", accuracy))
    return dict(zip(replies, entropy_accuracy_weights(entropies, accuracies), strict=True))
