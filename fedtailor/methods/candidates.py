"""Candidates for the model that a client deploys, and the evidence about them on validation data.

All lie between the model that a client received and the one that it fine-tuned; logits may be moved by the log of the
frequencies of the client's classes. The movement is a change of the last layer's bias, so that a candidate is an
ordinary model.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby, product
from math import isfinite

import torch
from torch import Tensor

from fedtailor.learning.evaluation import outcomes
from fedtailor.learning.objectives import FOR_CLASSES, Criterion, hits, losses
from fedtailor.learning.precision import computing
from fedtailor.models import Network
from fedtailor.models.evaluating import evaluating
from fedtailor.parties import Client
from fedtailor.weights import Weights, mean

UNWEIGHTED = ("cross-entropy", "binary-cross-entropy")  # losses of classes in which all samples count the same
SHARES = (1.0, 0.8, 0.6, 0.4, 0.2, 0.0)  # shares of the fine-tuned model in the mix
POWERS = (0.0, 0.25, 0.5, 0.75, 1.0, 1.25)  # probabilities are multiplied by class frequencies to this power
SHARPNESS = (0.25, 0.35, 0.5, 0.7, 1.0, 1.4, 2.0)  # factors of logits; the calibrated loss uses the best one
SMOOTHING = 0.5  # samples that are added to the count of every class


@dataclass(frozen=True)
class Candidate:
    """One way to make a client's model: shares of the fine-tuned body and head, and the power of class frequencies."""

    body: float
    head: float
    power: float


def grid(mix: bool, parts: bool, correct: bool) -> tuple[Candidate, ...]:
    """All candidates; the first is the fine-tuned model.

    Parameters
    ----------
    mix
        Whether the received and the fine-tuned model are mixed.
    parts
        Whether body and head have shares of their own.
    correct
        Whether logits are moved by the log of class frequencies.
    """
    shares, powers = SHARES if mix else SHARES[:1], POWERS if correct else POWERS[:1]
    pairs = list(product(shares, shares)) if parts else [(share, share) for share in shares]
    return tuple(Candidate(body, head, power) for body, head in pairs for power in powers)


def mixed(network: Network, received: Weights, tuned: Weights, candidate: Candidate) -> Weights:
    """The mix of the received and the fine-tuned model, before logits are moved."""
    head = network.part("head")
    found: Weights = {}
    for inside, share in ((False, candidate.body), (True, candidate.head)):
        names = [name for name in tuned if (name in head) == inside]
        if share == 1:
            found |= {name: tuned[name] for name in names}
        elif names:
            both = [{name: weights[name] for name in names} for weights in (received, tuned)]
            found |= mean(both, [1 - share, share])
    return found


def log_frequencies(targets: Tensor, classes: int) -> Tensor:
    """The log of each class's share in these targets, smoothed so that no class is impossible.  # (classes,)"""
    counts = torch.bincount(targets.flatten(), minlength=classes).double() + SMOOTHING
    return (counts / counts.sum()).log().float()


def output_bias(network: Network) -> str | None:
    """The name of the tensor that is added to the outputs: the bias of the last layer. None if there is none.

    The function tries the bias out: it does not count if something follows the last layer, such as a scale.
    """
    shape = (network.inputs.outputs,)
    weights = network.weights("head")
    name = next((name for name in reversed(weights) if name.endswith("bias") and weights[name].shape == shape), None)
    if name is None:
        return None
    step = torch.linspace(-1.0, 1.0, shape[0])
    with evaluating(network.module), torch.inference_mode():
        inputs = network.inputs.example().to(next(network.module.parameters()).device)
        before = network(inputs).cpu()
        network.load({name: weights[name] + step})
        after = network(inputs).cpu()
    network.load({name: weights[name]})
    fits = before.shape[-1] == shape[0] and torch.allclose(after - before, step.expand_as(before), atol=1e-4)
    return name if fits else None


@dataclass(frozen=True)
class Tailoring:
    """The candidates of one client: its received and its fine-tuned model, and where its logits can be moved."""

    client: Client
    received: Weights
    tuned: Weights
    candidates: Sequence[Candidate]
    bias: str | None  # the tensor to which log frequencies are added; None: logits cannot be moved

    @classmethod
    def of(cls, client: Client, candidates: Sequence[Candidate]) -> "Tailoring":
        """The candidates of a client whose model has just been fine-tuned.

        Logits are moved only under the plain cross-entropy: other losses ask for other probabilities.
        """
        moves = any(candidate.power for candidate in candidates) and client.criterion.kind == "cross-entropy"
        bias = output_bias(client.network) if moves else None
        return cls(client, client.received, client.weights(), candidates, bias)

    def load(self, candidate: Candidate) -> None:
        """Turn the client's model into this candidate."""
        weights = mixed(self.client.network, self.received, self.tuned, candidate)
        if self.bias is not None and candidate.power:
            weights[self.bias] = weights[self.bias] + candidate.power * self._shift()
        self.client.load(weights)

    def gains(self, calibrated: bool) -> list[float]:
        """The gain of each candidate over the fine-tuned model on the client's validation data, from -1 to 1.

        Without validation data all gains are 0. It leaves the client with some candidate's model.
        """
        targets = self.client.data("val")[1]
        if not len(targets):
            return [0.0] * len(self.candidates)
        return gains_of(self.client.criterion, self._outputs_of_all(targets), targets, calibrated)

    def _outputs_of_all(self, targets: Tensor) -> Iterator[Tensor]:
        """The outputs of each candidate on the validation data, one by one: memory may not hold all of them."""
        shift = None if self.bias is None else self._shift().to(targets.device)
        for _, candidates in groupby(self.candidates, key=lambda one: (one.body, one.head)):
            for place, candidate in enumerate(candidates):
                if place == 0:
                    self.client.load(mixed(self.client.network, self.received, self.tuned, candidate))
                    outputs = _outputs(self.client)
                yield outputs if shift is None else outputs + candidate.power * shift

    def _shift(self) -> Tensor:
        return log_frequencies(self.client.data("train")[1], self.client.network.inputs.outputs).cpu()


def gains_of(criterion: Criterion, outputs: Iterable[Tensor], targets: Tensor, calibrated: bool) -> list[float]:
    """The gains over the first of these outputs for the same samples, from -1 to 1.

    A gain is the difference of the mean losses, at most 1 nat; for losses without a natural unit, their difference
    over their sum.

    Parameters
    ----------
    calibrated
        Under a plain loss of classes, losses are those at the best sharpness of the logits, and a gain is the mean of
        that in loss and that in accuracy.
    """
    plain = not calibrated or criterion.kind not in UNWEIGHTED
    sharpness = (1.0,) if plain else SHARPNESS
    lost, right = [], []
    for each in outputs:
        lost.append(_least_loss(criterion, each, targets, sharpness))
        right.append(0.0 if plain else float(hits(each, targets).double().mean()))
    found = [_gain(lost[0], loss, criterion.kind in FOR_CLASSES) for loss in lost]
    if plain:
        return found
    both = [(gain + share - right[0]) / 2 for gain, share in zip(found, right, strict=True)]
    return [gain if isfinite(loss) else -1.0 for gain, loss in zip(both, lost, strict=True)]


def _least_loss(criterion: Criterion, outputs: Tensor, targets: Tensor, sharpness: Sequence[float]) -> float:
    """The smallest mean loss that these factors of the logits give."""
    found = [losses(criterion, outputs if f == 1 else f * outputs, targets).double().mean() for f in sharpness]
    return float(torch.stack(found).min())


def pooled(evidence: Mapping[int, tuple[float, Sequence[float]]], caution: float) -> list[float]:
    """The mean gain of each candidate over clients, less ``caution`` standard errors; empty with too little evidence.

    It is a function of sums over clients: of n, n^2, n g, n^2 g and n^2 g^2, for the weight n and the gain g.

    Parameters
    ----------
    evidence
        By client: its weight, 0 without validation data, and its gains.
    caution
        The number of standard errors to subtract.
    """
    rows = [(weight, gains) for _, (weight, gains) in sorted(evidence.items()) if weight > 0]
    if len(rows) < 2:
        return []
    gains = torch.tensor([list(each) for _, each in rows], dtype=torch.double)  # (clients, candidates)
    counts = torch.tensor([weight for weight, _ in rows], dtype=torch.double)[:, None]
    weights = counts / counts.sum()
    centre = (weights * gains).sum(0)
    square = (weights.square() * (gains - centre).square()).sum(0) / (1 - weights.square().sum())
    found: list[float] = (centre - caution * square.sqrt()).tolist()
    return found


def best(candidates: Sequence[Candidate], scores: Sequence[float]) -> Candidate:
    """The candidate with the highest score; of equal ones the first."""
    return candidates[max(range(len(candidates)), key=lambda place: (scores[place], -place))]


def _outputs(client: Client) -> Tensor:
    """The outputs of the client's model on its validation data.  # (samples, classes)"""
    inputs, targets = client.data("val")
    kept: list[Tensor] = []
    with computing(client.network, client.training.precision):
        outcomes(client.network, inputs, targets, client.criterion, kept)
    return torch.cat(kept)


def _gain(reference: float, loss: float, nats: bool) -> float:
    gain = reference - loss if nats else (reference - loss) / (abs(reference) + abs(loss) or 1.0)
    return max(-1.0, min(1.0, gain)) if gain == gain else -1.0  # a loss that is not a number is the worst gain
