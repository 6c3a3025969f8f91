"""Evaluation: losses and correct predictions."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import torch
from torch import Tensor

from fedtailor.learning.features import CHUNK
from fedtailor.learning.objectives import Loss, hits, losses
from fedtailor.models import Network
from fedtailor.models.evaluating import evaluating


@dataclass(frozen=True)
class Score:
    """The counts of an evaluation.

    Attributes
    ----------
    correct : int
        Samples classified correctly; 0 in a regression.
    loss : float
        The sum of the losses of all samples.
    samples : int
        The number of samples.
    values : mapping of str to float or None
        The values of further measures; None where a measure is undefined, as for a client with one class.
    sums : mapping of str to sequence of float
        What further measures need to be computed over the samples of all clients.
    """

    correct: int
    loss: float
    samples: int
    values: Mapping[str, float | None] = field(default_factory=dict)
    sums: Mapping[str, Sequence[float]] = field(default_factory=dict)


def evaluate(network: Network, x: Tensor, y: Tensor, loss: Loss) -> Score:
    """Count the correct predictions and sum the losses. The network does not change.

    Parameters
    ----------
    network
        The network to evaluate.
    x, y
        Inputs and targets.
    loss
        The kind of loss, as in ``training.loss``.

    Examples
    --------
    >>> score = evaluate(network, x, y, "cross-entropy")
    >>> score.correct / score.samples, score.loss / score.samples
    """
    if len(x) == 0:
        return Score(0, 0.0, 0)
    lost, right = outcomes(network, x, y, loss)
    return Score(int(right.sum()), float(lost.double().sum()), len(x))


def outcomes(network: Network, x: Tensor, y: Tensor, loss: Loss) -> tuple[Tensor, Tensor]:
    """Every sample's loss and whether it is classified correctly.  # (samples,), (samples,)"""
    module = network.module.to(memory_format=torch.channels_last)  # type: ignore[call-overload]
    lost, right = [], []
    with evaluating(module), torch.inference_mode():
        for inputs, targets in zip(torch.split(x, CHUNK), torch.split(y, CHUNK), strict=True):
            outputs = network(inputs)
            lost.append(losses(loss, outputs, targets))
            right.append(hits(loss, outputs, targets))
    return torch.cat(lost), torch.cat(right)
