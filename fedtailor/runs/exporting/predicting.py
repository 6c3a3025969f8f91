"""Predictions of an exported model for samples in files."""

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch

from fedtailor.data.columns import Column
from fedtailor.data.readers.inputs import Form, Unlabelled, read_inputs
from fedtailor.errors import UserError
from fedtailor.runs.exporting.loading import CARD, Predictor, load_any

BATCH = 1024


@dataclass(frozen=True)
class Predictions:
    """The predictions for the samples of a file or folder.

    Attributes
    ----------
    samples : tuple of str
        The samples: numbers of rows from 1, or names of files.
    predictions : list
        The name of the class of each sample; in a regression a number, or a list of numbers.
    classes : tuple of str
        The names of all classes; empty in a regression.
    probabilities : ndarray or None
        The probabilities of the classes, a row per sample; None in a regression.
    calibrated : bool
        Whether the probabilities were calibrated on validation samples of the client.
    notes : tuple of str
        What to know about the samples, such as columns that were left out.
    """

    samples: tuple[str, ...]
    predictions: list[Any]
    classes: tuple[str, ...]
    probabilities: np.ndarray | None
    calibrated: bool
    notes: tuple[str, ...]

    def rows(self) -> list[dict[str, Any]]:
        """A row per sample: ``sample``, ``prediction`` and the probabilities of the classes."""
        rows = []
        for place, (sample, prediction) in enumerate(zip(self.samples, self.predictions, strict=True)):
            row: dict[str, Any] = {"sample": sample, "prediction": prediction}
            if self.probabilities is not None:
                chances = self.probabilities[place].tolist()
                row |= {"probability": max(chances), "probabilities": dict(zip(self.classes, chances, strict=True))}
            rows.append(row)
        return rows

    def table(self) -> tuple[list[str], list[list[Any]]]:
        """The header and the rows of a CSV file."""
        several = not self.classes and bool(self.predictions) and isinstance(self.predictions[0], list)
        targets = [f"prediction {k}" for k in range(len(self.predictions[0]))] if several else ["prediction"]
        header = ["sample", *targets, *(f"probability of {name}" for name in self.classes)]
        rows = []
        for place, (sample, prediction) in enumerate(zip(self.samples, self.predictions, strict=True)):
            chances = [] if self.probabilities is None else self.probabilities[place].tolist()
            rows.append([sample, *(prediction if several else [prediction]), *chances])
        return header, rows


def predict(
    export: str | Path,
    data: str | Path,
    *,
    format: str | None = None,
    allow: Iterable[str] = (),
    progress: Callable[[int, int], None] | None = None,
) -> Predictions:
    """Predict with an exported model from a file. No code of the export runs.

    Parameters
    ----------
    export : str or Path
        The folder of an export.
    data : str or Path
        A ``.csv`` file with the columns of the training data (others are left out), an ``.npz`` file with ``x``, an
        image, or a folder of images. Labels are not needed.
    format : {"safetensors", "onnx"}, optional
        What computes; by default the safetensors weights if the export has them.
    allow : iterable of str, optional
        Networks of the form ``module:Class`` that may be imported; an ONNX program needs none.
    progress : callable, optional
        Called with the number of samples so far and of all.

    Returns
    -------
    Predictions
        Names of classes with their probabilities, or numbers.

    Raises
    ------
    UserError
        If the export is damaged, or the samples do not have the form of the training data.

    Examples
    --------
    >>> import numpy as np
    >>> np.savez("images.npz", x=np.zeros((3, 8, 8, 1), np.uint8))
    >>> done = fedtailor.predict("exports/client-3", "images.npz")
    >>> len(done.predictions), done.probabilities.shape
    (3, (3, 10))
    """
    if format not in (None, "safetensors", "onnx"):
        raise UserError(f"format {format!r}: predictions are made from safetensors weights or an ONNX program")
    model = load_any(export, format, allow)
    given = read_inputs(Path(data), _form(Path(export), model))
    outputs, chances = [], []
    for start in range(0, len(given.x), BATCH):
        part = given.x[start : start + BATCH]
        outputs += model.predict(part)
        chances += [model.probabilities(part)] if model.card["classes"] else []
        if progress is not None:
            progress(min(start + BATCH, len(given.x)), len(given.x))
    return _predictions(model, given, outputs, torch.cat(chances).numpy() if chances else None, Path(export))


def _predictions(
    model: Predictor, given: Unlabelled, outputs: list[Any], chances: np.ndarray | None, export: Path
) -> Predictions:
    values = np.array(outputs, np.float64) if chances is None else chances
    if not np.isfinite(values).all():
        row = given.names[int(np.argwhere(~np.isfinite(values))[0][0])]
        raise UserError(f"{export} gives no finite number for sample {row}: the model is of no use there")
    classes = tuple(str(name) for name in model.card["classes"])
    return Predictions(given.names, outputs, classes, chances, model.calibrated, given.notes)


def _form(export: Path, model: Predictor) -> Form:
    """The form of the samples that a card describes."""
    card = model.card
    try:
        sample = card["sample"]
        shape = tuple(int(n) for n in sample["shape"])
        columns = tuple(Column(str(name), tuple(map(str, values))) for name, values in card.get("columns", ()))
        kind = np.dtype(sample["type"])
        vocabulary = int(card["inputs"]["vocabulary"])
        if kind.name not in ("uint8", "float32", "int32", "int64") or (columns and shape != (len(columns),)):
            raise ValueError(f"samples of type {kind.name}")
    except (LookupError, TypeError, ValueError, AttributeError):
        raise UserError(f"{export / CARD} does not say what a sample is: export the model again") from None
    prepared = model.preprocessing
    return Form(kind, shape, columns, vocabulary, prepared is not None and prepared.settings.impute != "none")
