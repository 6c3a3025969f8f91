"""Evaluation: losses and correct predictions."""

from collections.abc import Sequence
from dataclasses import replace

import torch
from torch import Tensor

from fedtailor.learning.features import CHUNK
from fedtailor.learning.measures import Predictions, values_and_sums
from fedtailor.learning.objectives import Loss, criterion_of, hits, losses
from fedtailor.models import Network
from fedtailor.models.evaluating import evaluating
from fedtailor.records import Score


def evaluate(network: Network, x: Tensor, y: Tensor, loss: Loss, measures: Sequence[str] = ()) -> Score:
    """Count the correct predictions and sum the losses. The network does not change.

    Parameters
    ----------
    network
        The network to evaluate.
    x, y
        Inputs and targets.
    loss
        The kind of loss, as in ``training.loss``.
    measures
        The names of further measures.

    Examples
    --------
    >>> score = evaluate(network, x, y, "cross-entropy")
    >>> score.correct / score.samples, score.loss / score.samples
    """
    if len(x) == 0:
        return Score(0, 0.0, 0)
    (score,) = evaluate_each(network, x, y, [len(x)], loss, measures)
    return score


def evaluate_each(
    network: Network, x: Tensor, y: Tensor, sizes: list[int], loss: Loss, measures: Sequence[str] = ()
) -> list[Score]:
    """Evaluate one network on the samples of several clients together; ``sizes`` are their numbers of samples."""
    outputs: list[Tensor] | None = [] if measures else None
    lost, right = outcomes(network, x, y, loss, outputs)
    counts = [
        Score(int(hit.sum()), float(each.double().sum()), len(hit))
        for each, hit in zip(torch.split(lost, sizes), torch.split(right, sizes), strict=True)
    ]
    if outputs is None:
        return counts
    kind, scores = criterion_of(loss).kind, []
    pairs = zip(torch.split(torch.cat(outputs), sizes), torch.split(y, sizes), strict=True)
    for count, (mine, targets) in zip(counts, pairs, strict=True):
        values, sums = values_and_sums(measures, Predictions(mine, targets, kind))
        scores.append(replace(count, values=values, sums=sums))
    return scores


def outcomes(
    network: Network, x: Tensor, y: Tensor, loss: Loss, keep: list[Tensor] | None = None
) -> tuple[Tensor, Tensor]:
    """Every sample's loss and whether it is classified correctly; ``keep`` receives the outputs.  # (samples,) twice"""
    module = network.module.to(memory_format=torch.channels_last)  # type: ignore[call-overload]
    loss = criterion_of(loss).unweighted()
    lost, right = [], []
    with evaluating(module), torch.inference_mode():
        for inputs, targets in zip(torch.split(x, CHUNK), torch.split(y, CHUNK), strict=True):
            outputs = network(inputs)
            lost.append(losses(loss, outputs, targets))
            right.append(hits(outputs, targets))
            if keep is not None:
                keep.append(outputs)
    return torch.cat(lost), torch.cat(right)
