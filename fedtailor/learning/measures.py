"""Measures of predictions: per client, and over the samples of all clients.

Most measures are functions of sums over samples. A client computes its sums; those of all clients added up give the
pooled value, exactly, and no prediction leaves the client. AUROC needs the order of all predictions: its pooled value
comes from counts of log-odds in narrow bins, within which predictions count as ties. Measures of the user's own need
all predictions at once: they have no pooled value.

A measure that is not defined for a client is None, never 0: classes need two that occur, R2 needs targets that differ.
"""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, Literal

import numpy as np
import torch
from torch import Tensor

from fedtailor.errors import UserError, unknown
from fedtailor.learning.objectives import probabilities
from fedtailor.learning.own import own_function

BINS = 15  # of equal width, for the calibration error
ODDS, WIDEST = 256, 16.0  # bins of equal width for log-odds between -WIDEST and WIDEST, for the pooled AUROC
Sums = Sequence[float]


class Predictions:
    """The outputs of a network and their targets, in double precision.

    Parameters
    ----------
    outputs, targets : Tensor
        Rows of outputs, and classes or numbers.
    loss : str
        The kind of loss that the network was trained with.
    """

    def __init__(self, outputs: Tensor, targets: Tensor, loss: str = "cross-entropy"):
        self.outputs, self.targets, self.loss = outputs.detach().double().cpu(), targets.cpu(), loss

    @cached_property
    def shares(self) -> Tensor:
        """The probabilities of the classes."""
        return probabilities(self.loss, self.outputs)

    @cached_property
    def errors(self) -> np.ndarray:
        """Outputs minus targets, a row per sample."""
        wanted = self.targets.double().view_as(self.outputs)
        return (self.outputs - wanted).flatten(1).numpy()


# Sums over samples


def _of_classes(found: Predictions) -> list[float]:
    """By class: samples predicted correctly, samples, predictions."""
    classes, said = found.outputs.shape[1], found.outputs.argmax(1)
    right = found.targets[said == found.targets]
    counts = [torch.bincount(part, minlength=classes) for part in (right, found.targets, said)]
    return torch.cat(counts).double().tolist()


def _of_log_loss(found: Predictions) -> list[float]:
    if found.loss == "binary-cross-entropy":
        lost = -torch.log(found.shares.gather(1, found.targets[:, None]))
    else:
        lost = -torch.log_softmax(found.outputs, 1).gather(1, found.targets[:, None])
    return [float(lost.sum()), float(len(lost))]


def _of_bins(found: Predictions) -> list[float]:
    """By bin of confidence: samples, correct predictions, confidence."""
    sure, said = found.shares.max(1)
    place = torch.clamp((sure * BINS).ceil().long() - 1, 0, BINS - 1)  # a bin holds its upper edge
    columns = (torch.ones_like(sure), (said == found.targets).double(), sure)
    return torch.cat([torch.zeros(BINS, dtype=torch.float64).index_add_(0, place, c) for c in columns]).tolist()


def _of_odds(found: Predictions) -> list[float]:
    """By class (of two only the second): its samples by bin of the class's log-odds, then all others by bin."""
    shares = found.shares[:, 1:] if found.shares.shape[1] == 2 else found.shares
    first = found.shares.shape[1] - shares.shape[1]
    if not torch.isfinite(shares).all():
        return [math.nan] * (2 * ODDS * shares.shape[1])
    odds = torch.logit(shares).clamp(-WIDEST, WIDEST)
    place = ((odds + WIDEST) * (ODDS / (2 * WIDEST))).long().clamp(max=ODDS - 1)  # (samples, classes)
    counts: list[float] = []
    for column in range(shares.shape[1]):
        own = found.targets == first + column
        for part in (own, ~own):
            counts += torch.bincount(place[part, column], minlength=ODDS).double().tolist()
    return counts


def _of_absolute(found: Predictions) -> list[float]:
    return [float(np.abs(found.errors).sum()), float(found.errors.size)]


def _of_squares(found: Predictions) -> list[float]:
    return [float(np.square(found.errors).sum()), float(found.errors.size)]


def _of_moments(found: Predictions) -> list[float]:
    """Samples; then squared errors, means of the targets and their squared distances from it, by output."""
    aims = found.targets.double().reshape(len(found.targets), -1).numpy()
    mean = aims.mean(0)
    rows = (np.square(found.errors).sum(0), mean, np.square(aims - mean).sum(0))
    return [float(len(aims)), *np.concatenate(rows).tolist()]


def _add(sums: Sequence[Sums]) -> list[float]:
    return [math.fsum(column) for column in zip(*sums, strict=True)]


def _add_moments(sums: Sequence[Sums]) -> list[float]:
    """Squared distances from the common mean: those within the clients, and those between their means."""
    rows = np.array(sums, dtype=np.float64)
    counts, (errors, means, spreads) = rows[:, :1], np.split(rows[:, 1:], 3, axis=1)
    total = counts.sum()
    mean = (counts * means).sum(0) / total
    between = (counts * np.square(means - mean)).sum(0)
    return [float(total), *errors.sum(0).tolist(), *mean.tolist(), *(spreads.sum(0) + between).tolist()]


@dataclass(frozen=True)
class Statistic:
    """Sums over the samples of a client, and how those of several clients are added."""

    of: Callable[[Predictions], list[float]]
    length: Callable[[int], int] = lambda outputs: 2  # how many sums there are, by the number of outputs
    add: Callable[[Sequence[Sums]], list[float]] = _add


STATISTICS: dict[str, Statistic] = {
    "classes": Statistic(_of_classes, lambda outputs: 3 * outputs),
    "log-loss": Statistic(_of_log_loss),
    "bins": Statistic(_of_bins, lambda outputs: 3 * BINS),
    "odds": Statistic(_of_odds, lambda outputs: 2 * ODDS * (1 if outputs <= 2 else outputs)),
    "absolute": Statistic(_of_absolute),
    "squares": Statistic(_of_squares),
    "moments": Statistic(_of_moments, lambda outputs: 1 + 3 * outputs, _add_moments),
}


# From sums to values


def _balanced_accuracy(sums: Sums) -> float | None:
    right, samples, _ = np.split(np.array(sums, dtype=np.float64), 3)
    occurs = samples > 0
    return float((right[occurs] / samples[occurs]).mean()) if occurs.sum() > 1 else None


def _macro_f1(sums: Sums) -> float | None:
    right, samples, said = np.split(np.array(sums, dtype=np.float64), 3)
    known = samples + said > 0
    return float((2 * right[known] / (samples + said)[known]).mean()) if (samples > 0).sum() > 1 else None


def _mean(sums: Sums) -> float | None:
    return sums[0] / sums[1] if sums[1] else None


def _exponential(sums: Sums) -> float | None:
    mean = _mean(sums)
    return None if mean is None else math.exp(mean) if mean < 700 else math.inf


def _root(sums: Sums) -> float | None:
    mean = _mean(sums)
    return None if mean is None else math.sqrt(mean)


def _calibration_error(sums: Sums) -> float | None:
    samples, right, sure = np.split(np.array(sums, dtype=np.float64), 3)
    return float(np.abs(right - sure).sum() / samples.sum()) if samples.sum() else None


def _r2(sums: Sums) -> float | None:
    errors, _, spreads = np.split(np.array(sums[1:], dtype=np.float64), 3)
    return float((1 - errors / spreads).mean()) if spreads.min() > 0 else None


def _pooled_auroc(sums: Sums) -> float | None:
    """Pairs in which the sample of the class has the higher log-odds; half of those in the same bin."""
    counts = np.array(sums, dtype=np.float64).reshape(-1, 2, ODDS)  # (classes, own or other, bins)
    if np.isnan(counts).any():
        return math.nan
    own, others = counts[:, 0], counts[:, 1]
    pairs = own.sum(1) * others.sum(1)
    occurs = pairs > 0
    if not occurs.any():
        return None
    below = np.cumsum(others, axis=1) - others
    return float(((own * (below + others / 2)).sum(1)[occurs] / pairs[occurs]).mean())


def _auroc(found: Predictions) -> float | None:
    """Of two classes that of the second; of more, the mean over the classes that occur, each against the others."""
    from sklearn.metrics import roc_auc_score

    occurs = torch.unique(found.targets).tolist()
    if len(occurs) < 2:
        return None
    shares = found.shares.numpy()
    if not np.isfinite(shares).all():
        return math.nan
    classes = [1] if shares.shape[1] == 2 else occurs
    return float(np.mean([roc_auc_score(found.targets.numpy() == c, shares[:, c]) for c in classes]))


# Measures


@dataclass(frozen=True)
class Measure:
    """A measure, which direction is better, and how it is written.

    Attributes
    ----------
    name : str
        Its name in the settings.
    targets : str
        ``classes``, ``numbers`` or ``any``: the targets that it is for.
    better : str
        ``higher`` or ``lower``.
    percent : bool
        Whether it is a share that is written in percent.
    statistic : str
        The sums that its pooled value is computed from, and the value of a client unless ``direct`` gives it; empty if
        it cannot be pooled.
    """

    name: str
    targets: Literal["classes", "numbers", "any"]
    better: Literal["higher", "lower"] = "higher"
    percent: bool = False
    statistic: str = ""
    from_sums: Callable[[Sums], float | None] = field(default=_mean, repr=False)
    direct: Callable[[Predictions], float | None] | None = field(default=None, repr=False)

    def pooled(self, sums: Sequence[Sums]) -> float | None:
        """The value over the samples of several clients, from the sums of each; None if it cannot be pooled."""
        return self.from_sums(STATISTICS[self.statistic].add(sums)) if self.statistic and sums else None


ACCURACY = Measure("accuracy", "classes", percent=True)  # counted by every evaluation
MEASURES: dict[str, Measure] = {
    measure.name: measure
    for measure in (
        ACCURACY,
        Measure("balanced-accuracy", "classes", percent=True, statistic="classes", from_sums=_balanced_accuracy),
        Measure("macro-f1", "classes", percent=True, statistic="classes", from_sums=_macro_f1),
        Measure("auroc", "classes", statistic="odds", from_sums=_pooled_auroc, direct=_auroc),
        Measure("log-loss", "classes", "lower", statistic="log-loss"),
        Measure("perplexity", "classes", "lower", statistic="log-loss", from_sums=_exponential),
        Measure("calibration-error", "classes", "lower", True, "bins", _calibration_error),
        Measure("mae", "numbers", "lower", statistic="absolute"),
        Measure("rmse", "numbers", "lower", statistic="squares", from_sums=_root),
        Measure("r2", "numbers", statistic="moments", from_sums=_r2),
    )
}
USUAL = {"classes": ("accuracy",), "numbers": ("rmse", "mae", "r2")}  # the first is the headline


def measure(name: str) -> Measure:
    """The measure of this name, or the user's own as ``module:function``.

    The function gets outputs and targets of one client as tensors and returns a number, or None where it is undefined.
    Its attribute ``better`` may say ``"lower"``, and ``percent`` may be true.
    """
    if ":" not in name:
        if name not in MEASURES:
            raise unknown("measure", name, MEASURES)
        return MEASURES[name]
    function = own_function(name, "evaluation.measures")

    def value(found: Predictions) -> float | None:
        given = function(found.outputs, found.targets)
        return None if given is None else float(given)

    better: Literal["higher", "lower"] = "lower" if getattr(function, "better", "higher") == "lower" else "higher"
    return Measure(name, "any", better, bool(getattr(function, "percent", False)), direct=value)


@dataclass(frozen=True)
class Measuring:
    """What a run measures: its headline, and the measures beside accuracy."""

    headline: str = "accuracy"
    further: tuple[str, ...] = ()
    classes: bool = True  # whether targets are classes; otherwise there is no accuracy

    def as_dict(self) -> dict[str, Any]:
        """The facts that a run records; with them its measures can be shown without importing the user's own."""
        shown = {one.name: {"better": one.better, "percent": one.percent} for one in map(measure, self.further)}
        return {"headline": self.headline, "classes": self.classes, "measures": shown}


def chosen(names: Sequence[str], headline: str | None, classes: bool) -> Measuring:
    """What a run with these settings measures; a `UserError` if a measure does not fit the targets."""
    kind = "classes" if classes else "numbers"
    headline = headline or USUAL[kind][0]
    every = dict.fromkeys((*(names or USUAL[kind]), headline))
    for name in every:
        if measure(name).targets not in (kind, "any"):
            fitting = ", ".join(known for known, one in MEASURES.items() if one.targets == kind)
            raise UserError(
                f"the measure {name!r} is for {measure(name).targets}, but the targets of these data are {kind}: "
                f"set evaluation.measures and evaluation.headline to {fitting}, or module:function"
            )
    return Measuring(headline, tuple(name for name in every if name != "accuracy"), classes)


def values_and_sums(names: Sequence[str], found: Predictions) -> tuple[dict[str, float | None], dict[str, list[float]]]:
    """The values of these measures for a client, and the sums from which they can be pooled."""
    every = [measure(name) for name in names]
    if not len(found.targets):
        return dict.fromkeys(names), {}
    sums = {kind: STATISTICS[kind].of(found) for kind in dict.fromkeys(one.statistic for one in every if one.statistic)}
    values: dict[str, float | None] = {}
    for one in every:
        values[one.name] = one.direct(found) if one.direct is not None else one.from_sums(sums[one.statistic])
    return values, sums


def pooled(name: str, sums: Sequence[Mapping[str, Sums]]) -> float | None:
    """A measure over the samples of several clients, from the sums of each."""
    one = measure(name)
    return one.pooled([each[one.statistic] for each in sums if one.statistic in each])


def check_measured(
    names: Sequence[str], outputs: int, values: Mapping[str, float | None], sums: Mapping[str, Sums]
) -> None:
    """Raise a ValueError if a client did not send these measures with sums that can be added."""
    if values.keys() != set(names):
        raise ValueError("its measures are not those of the run")
    wanted = {one.statistic for one in map(measure, names) if one.statistic}
    if sums.keys() != wanted or any(len(sums[kind]) != STATISTICS[kind].length(outputs) for kind in wanted):
        raise ValueError("the sums of its measures cannot be added to those of others")
