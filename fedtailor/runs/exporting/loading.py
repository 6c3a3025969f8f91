"""Loads exported models: the network of safetensors weights, or an ONNX program.

Neither runs code of the export: a network is built through the gate of `fedtailor.imports`, and an ONNX program holds
operations only. A torch program is never read here, because reading it unpickles.
"""

import hashlib
import json
from abc import ABC, abstractmethod
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import safetensors.torch
import torch
from torch import Tensor, nn

from fedtailor import imports
from fedtailor.data.preprocessing import Preprocessing
from fedtailor.errors import UserError, one_line
from fedtailor.learning.temperature import log_probabilities
from fedtailor.learning.tensors import prepared_inputs
from fedtailor.models import Inputs, ModelSettings, build
from fedtailor.runs.exporting.formats import FILES, OnnxProgram

CARD, PREPROCESSING = "card.json", "preprocessing.json"
DAMAGE = (LookupError, TypeError, AttributeError, ValueError, safetensors.SafetensorError)


@dataclass(frozen=True)
class Predictor(ABC):
    """An exported model, whatever computes it.

    Attributes
    ----------
    card : dict
        What the model was trained with: classes, inputs, pre-processing, method, seed, versions.
    preprocessing : Preprocessing or None
        What is done to samples first; `outputs`, `probabilities` and `predict` do it.
    """

    card: dict[str, Any]
    preprocessing: Preprocessing | None = None

    @abstractmethod
    def outputs(self, x: np.ndarray) -> Tensor:
        """The network's outputs for raw samples, as the data source gives them (images as ``uint8``).

        A table may also hold the categories' names, and None or "?" for a missing value.
        """

    @property
    def calibrated(self) -> bool:
        """Whether the probabilities were calibrated on validation samples of the client."""
        calibration = self.card.get("calibration") or {}
        return bool(calibration) and "not_calibrated" not in calibration

    def probabilities(self, x: np.ndarray) -> Tensor:
        """The probabilities of the classes for raw samples, calibrated if the card says so."""
        if not self.card["classes"]:
            raise UserError("a regression has no probabilities: call predict")
        temperature = float((self.card.get("calibration") or {}).get("temperature", 1.0))
        return log_probabilities(self.card.get("loss", "cross-entropy"), self.outputs(x), temperature).exp()

    def predict(self, x: np.ndarray) -> list[Any]:
        """The predictions for raw samples: names of classes or, in a regression, numbers."""
        outputs = self.outputs(x)
        if not self.card["classes"]:
            return outputs.flatten().tolist() if outputs.shape[1] == 1 else outputs.tolist()
        return [self.card["classes"][index] for index in outputs.argmax(1).tolist()]

    def _raw(self, x: np.ndarray) -> np.ndarray:
        x = np.ascontiguousarray(x)
        return self.preprocessing.codes(x) if self.preprocessing is not None and x.dtype.kind in "OUS" else x


@dataclass(frozen=True)
class Model(Predictor):
    """An exported model as a torch network.

    Attributes
    ----------
    module : torch.nn.Module
        The network with its weights, in evaluation mode.
    """

    module: nn.Module = field(default_factory=nn.Identity)

    def outputs(self, x: np.ndarray) -> Tensor:
        channels = tuple(self.card["mean"]), tuple(self.card["std"])
        inputs = prepared_inputs(self._raw(x), self.preprocessing, channels)
        with torch.inference_mode():
            return self.module(inputs)  # type: ignore[no-any-return]


@dataclass(frozen=True)
class OnnxModel(Predictor):
    """An exported model as an ONNX program, which onnxruntime computes."""

    program: OnnxProgram | None = None

    def outputs(self, x: np.ndarray) -> Tensor:
        assert self.program is not None
        found = self.program(self._raw(x))[0]
        if found.shape[:1] != (len(x),) or (self.card["classes"] and found.shape[1:] != (len(self.card["classes"]),)):
            raise UserError(
                f"{self.program.where} gives outputs of shape {found.shape}, which its card does not describe"
            )
        return torch.from_numpy(found)


def load_model(folder: str | Path, allow: Iterable[str] = ()) -> Model:
    """Load an exported model.

    Parameters
    ----------
    folder : str or Path
        The folder that `export_client` or `export_global` wrote.
    allow : iterable of str, optional
        Networks of the form ``module:Class`` that may be imported; those that you have trained yourself may anyway.

    Returns
    -------
    Model
        The network and its card.

    Examples
    --------
    >>> model = fedtailor.load_model("exports/client-3")
    >>> with fedtailor.Run("runs/first") as run:
    ...     images = run.federation().samples.x[:3]
    >>> len(model.predict(images)), tuple(model.probabilities(images).shape)
    (3, (3, 10))
    """
    place = Path(folder)
    card, preprocessing = _described(place)
    name = FILES["safetensors"]
    try:
        weights = safetensors.torch.load(_content(place / name, card))
    except DAMAGE as error:
        raise _damaged(place, error) from None
    try:
        with imports.foreign(allow):
            network = build(ModelSettings.model_validate(card["model"]), Inputs(**card["inputs"]), 0)
        if missing := [tensor for tensor in network.names if tensor not in weights]:
            raise ValueError(f"the tensor {missing[0]!r} is missing")
        network.load(weights)
    except (LookupError, TypeError, ValueError, AttributeError, RuntimeError) as error:
        reason = one_line(f"{type(error).__name__}: {error}")
        raise UserError(f"{place / CARD} does not describe {name} ({reason}): export the model again") from None
    network.module.eval()
    return Model(card, preprocessing, network.module)


def load_onnx(folder: str | Path) -> OnnxModel:
    """Load the ONNX program of an export; it needs no code of its network.

    Parameters
    ----------
    folder : str or Path
        The folder of an export with ``model.onnx``.

    Returns
    -------
    OnnxModel
        The program and its card.

    Examples
    --------
    >>> model = fedtailor.load_onnx(fedtailor.export_client("runs/first", 2, "exports/onnx", formats=["onnx"]))
    >>> with fedtailor.Run("runs/first") as run:
    ...     images = run.federation().samples.x[:3]
    >>> len(model.predict(images)), tuple(model.probabilities(images).shape)
    (3, (3, 10))
    """
    place = Path(folder)
    card, preprocessing = _described(place)
    try:
        content = _content(place / FILES["onnx"], card)
        if not isinstance(card["classes"], list):
            raise ValueError("its card has no list of classes")
    except DAMAGE as error:
        raise _damaged(place, error) from None
    return OnnxModel(card, preprocessing, OnnxProgram(content, str(place / FILES["onnx"])))


def load_any(folder: str | Path, format: str | None = None, allow: Iterable[str] = ()) -> Predictor:
    """Load the model of an export from its safetensors weights or, if it has none or by wish, as ONNX program."""
    place = Path(folder)
    if not (place / CARD).is_file():
        raise UserError(f"{place} is not an export: it has no {CARD}; write one with 'fedtailor export'")
    held = [name for name, file in FILES.items() if (place / file).is_file()]
    if format is not None and format not in held:
        raise UserError(f"{place} holds no {FILES[format]}: export the model again with --format {format}")
    if held == ["torch"]:
        raise UserError(
            f"{place} holds a torch program only, which is not read here because reading it may run code: export the "
            "model again with --format safetensors, or load it with torch.export.load if you trust it"
        )
    wanted = format or next((name for name in held if name != "torch"), "safetensors")
    return load_onnx(place) if wanted == "onnx" else load_model(place, allow)


def digest(content: bytes) -> str:
    """The digest of a file, as a card holds it."""
    return hashlib.sha256(content).hexdigest()


def _described(place: Path) -> tuple[dict[str, Any], Preprocessing | None]:
    """The card and the pre-processing of an export."""
    try:
        card = json.loads(_read(place / CARD))
        prepared = card.get("preprocessing") is not None
        facts = json.loads(_content(place / PREPROCESSING, card)) if prepared else None
        return card, None if facts is None else Preprocessing.from_dict(facts)
    except DAMAGE as error:
        raise _damaged(place, error) from None


def _content(path: Path, card: dict[str, Any]) -> bytes:
    """A file of an export; a `ValueError` if it is not the one that its card describes."""
    content, files = _read(path), card.get("files", {})
    if path.name in files and files[path.name] != digest(content):
        raise ValueError(f"{path.name} is not the file that {CARD} describes")
    return content


def _read(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except (FileNotFoundError, NotADirectoryError):
        raise UserError(f"{path} does not exist: write it with 'fedtailor export'") from None
    except OSError as error:
        raise UserError(f"{path} cannot be read: {error.strerror}") from None


def _damaged(place: Path, error: Exception) -> UserError:
    return UserError(f"{place} holds a damaged model ({one_line(str(error))}): write it again with 'fedtailor export'")
