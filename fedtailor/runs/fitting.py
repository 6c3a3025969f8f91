"""Checks that loss and measures fit the targets of the data, before anything is written."""

import torch
from torch import Tensor

from fedtailor.data import Federation
from fedtailor.data.partitions import Resampled
from fedtailor.errors import UserError
from fedtailor.learning.measures import Measuring, chosen
from fedtailor.learning.objectives import FOR_CLASSES, FOR_NUMBERS
from fedtailor.learning.own import own_function
from fedtailor.learning.tensors import inputs_of
from fedtailor.runs.settings import Experiment


def check_shared_samples(settings: Experiment) -> None:
    """Raise a `UserError` if clients share samples, and the settings need samples with one owner."""
    if not isinstance(settings.data.partition, Resampled):
        return
    kind = "data.partition.kind = 'resampled' gives a sample to several clients"
    if settings.attack is not None and settings.attack.kind == "label-flip":
        raise UserError(f"{kind}, so attack.kind = 'label-flip' would change the labels of honest clients: use 'scale'")
    if settings.training.dp_sgd is not None:
        raise UserError(f"{kind}, so training.dp_sgd cannot say what it promises about a sample: choose another one")


def measuring_of(settings: Experiment, federation: Federation) -> Measuring:
    """What a run measures on these data; a `UserError` if a measure does not fit them."""
    table = settings.evaluation
    return chosen(table.measures, table.headline, classes=bool(federation.samples.classes))


def check_loss(settings: Experiment, federation: Federation) -> None:
    """Raise a `UserError` if the loss does not fit the targets."""
    loss, classes = settings.training.loss, federation.samples.classes
    said = f"training.loss = {loss!r}"
    if ":" in loss:
        _check_own(said, loss, federation)
    elif loss in (FOR_NUMBERS if classes else FOR_CLASSES):
        ours, theirs = ("classes", "numbers") if classes else ("numbers", "classes")
        fitting = ", ".join(FOR_CLASSES if classes else FOR_NUMBERS)
        raise UserError(
            f"{said} is for {theirs}, but the targets in {settings.data.source!r} are {ours}: "
            f"leave it out, or use {fitting} or module:function"
        )
    weights = settings.training.class_weights
    if weights is not None and len(weights) != len(classes):
        raise UserError(f"training.class_weights has {len(weights)} weights, but the data have {len(classes)} classes")


def _check_own(said: str, name: str, federation: Federation) -> None:
    """Try a loss of the user's own on two samples."""
    function, samples = own_function(name, "training.loss"), federation.samples
    outputs = torch.zeros(2, inputs_of(samples).outputs, requires_grad=True)
    targets = torch.zeros(2, dtype=torch.int64) if samples.classes else torch.zeros(2, *samples.y.shape[1:])
    try:
        found = function(outputs, targets)
    except Exception as error:  # a user's function may raise anything
        reason = " ".join(f"{type(error).__name__}: {error}".split())
        shapes = f"outputs {tuple(outputs.shape)} and targets {tuple(targets.shape)}"
        raise UserError(f"{said} fails on {shapes} ({reason})") from None
    if not isinstance(found, Tensor) or found.shape != (2,) or not found.requires_grad:
        raise UserError(f"{said} must return a differentiable tensor with the loss of every sample, not their mean")
