"""Writes an export: the model in its formats, its card and its pre-processing, all at once or not at all."""

import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import safetensors.torch
import torch
from torch.export import ExportedProgram

from fedtailor.data import Federation, Samples
from fedtailor.data.preprocessing import Preprocessing
from fedtailor.engines import Job
from fedtailor.errors import UserError
from fedtailor.learning.objectives import chosen_loss
from fedtailor.learning.program import Program, preparing_of
from fedtailor.learning.temperature import Calibration, calibrate
from fedtailor.learning.tensors import inputs_of
from fedtailor.models import ModelSettings, build
from fedtailor.models.catalogue import auto_name
from fedtailor.runs.drafts import folder_at_once
from fedtailor.runs.environment import environment
from fedtailor.runs.exporting.card import MODEL_CARD, page
from fedtailor.runs.exporting.formats import (
    FILES,
    OnnxProgram,
    chosen_formats,
    difference,
    onnx_file,
    read_torch,
    runtime,
    torch_file,
    traced,
)
from fedtailor.runs.exporting.loading import CARD, PREPROCESSING, Model, digest
from fedtailor.runs.settings import method_dict
from fedtailor.seeding import numpy_stream
from fedtailor.weights import Weights

CHECKED = 256  # samples on which a program is compared with the model
BATCH = 1024
WRITTEN = {*FILES.values(), CARD, MODEL_CARD, PREPROCESSING}  # the files of an export


@dataclass(frozen=True)
class ClientData:
    """A client's samples that an export may use: those to train and to validate, never those to test."""

    samples: Samples
    train: np.ndarray
    val: np.ndarray

    @classmethod
    def of(cls, federation: Federation, client: int) -> "ClientData":
        return cls(federation.samples, federation.train[client], federation.val[client])


@dataclass(frozen=True)
class Deployable:
    """A model to export.

    Attributes
    ----------
    job : Job
        What it was trained with; its federation has the form of the samples, and need not have any.
    network : str
        The name of its network in the method's family; empty for the run's own.
    weights : Weights
        Its tensors.
    facts : dict
        More for its card; ``client`` is the number of the client, if it is a client's.
    data : ClientData or str
        The client's samples, to calibrate and to check; otherwise the reason why there are none.
    """

    job: Job
    network: str
    weights: Weights
    facts: dict[str, Any]
    data: ClientData | str


def write_model(
    target: Path,
    model: Deployable,
    formats: Sequence[str] = ("safetensors",),
    licence: str | None = None,
    again: bool = False,
) -> Path:
    """Write an export. With ``again``, it replaces one in the folder.

    Raises
    ------
    UserError
        If the folder exists or cannot be written, or if a format cannot be made of the network.
    """
    with folder_at_once(target, is_of_exports, again) as draft:
        write_files(draft, model, formats, licence)
    return target


def write_files(
    draft: Path, model: Deployable, formats: Sequence[str] = ("safetensors",), licence: str | None = None
) -> None:
    """Write the files of an export into an empty folder."""
    formats, samples, job = chosen_formats(formats), model.job.federation.samples, model.job
    prepared, inputs = _preprocessing_of(samples, model.facts), inputs_of(samples)
    loss = chosen_loss(job.training.loss, bool(samples.classes)) if samples.classes else None
    settings = job.method.family(job.model).get(model.network, job.model)
    card: dict[str, Any] = {
        **model.facts,
        "method": method_dict(job.method),
        "seed": job.seed,
        "classes": list(samples.classes),
        "sample": {"type": samples.x.dtype.name, "shape": list(samples.x.shape[1:])},
        "columns": [[column.name, list(column.categories)] for column in samples.columns],
        "inputs": {"shape": list(inputs.shape), "outputs": inputs.outputs, "vocabulary": inputs.vocabulary},
        "mean": list(samples.mean),
        "std": list(samples.std),
        "preprocessing": None if prepared is None else {**prepared.settings.model_dump(), "inputs": prepared.names},
        "model": settings.model_dump(mode="json"),
        "network": auto_name(inputs) if settings.name == "auto" else settings.name,
        "loss": loss,
        "licence": licence,
        "environment": environment(),
    }
    reference = _Reference(card, prepared, settings, samples, model)
    if loss is not None:
        card["calibration"] = reference.calibration(loss).as_dict()
    files = _weights(model.weights) if "safetensors" in formats else {}
    if prepared is not None:
        files[PREPROCESSING] = (json.dumps(prepared.as_dict()) + "\n").encode()
    for name, content in files.items():
        (draft / name).write_bytes(content)
    card["checks"] = {name: _write_program(draft, name, reference) for name in formats if name != "safetensors"}
    card["files"] = {file.name: digest(file.read_bytes()) for file in sorted(draft.iterdir())}
    (draft / CARD).write_text(json.dumps(card, indent=2) + "\n", encoding="utf-8")
    (draft / MODEL_CARD).write_text(page(card), encoding="utf-8")


def is_of_exports(draft: Path, deeper: bool = True) -> bool:
    """Whether a draft holds nothing but files of an export, or folders with files of an export."""
    return all(
        not path.is_symlink()
        and ((path.name in WRITTEN and path.is_file()) or (deeper and path.is_dir() and is_of_exports(path, False)))
        for path in draft.iterdir()
    )


def _weights(weights: Weights) -> dict[str, bytes]:
    return {FILES["safetensors"]: safetensors.torch.save(weights)}


class _Reference:
    """The run's model, which every format is compared with."""

    def __init__(
        self,
        card: dict[str, Any],
        prepared: Preprocessing | None,
        settings: ModelSettings,
        samples: Samples,
        model: Deployable,
    ) -> None:
        self.card, self.prepared, self.settings, self.samples = card, prepared, settings, samples
        self.weights, self.data = model.weights, model.data
        self._model: Model | None = None
        self._traced: ExportedProgram | None = None

    def model(self) -> Model:
        """The network with its weights; building it may fail, for example if it is a stranger's code."""
        if self._model is None:
            network = build(self.settings, inputs_of(self.samples), 0)
            network.load(self.weights)
            network.module.eval()
            self._model = Model(self.card, self.prepared, network.module)
        return self._model

    def calibration(self, loss: str) -> Calibration:
        """The temperature that fits the client's validation samples, and nothing else."""
        if isinstance(self.data, str):
            return Calibration(missing=self.data)
        if not len(self.data.val):
            return Calibration(missing="the client has no validation samples, see val in data.split")
        try:
            model = self.model()
        except UserError as error:
            return Calibration(missing=str(error))
        x, y = self.data.samples.x, torch.from_numpy(self.data.samples.y[self.data.val])
        parts = [self.data.val[start : start + BATCH] for start in range(0, len(self.data.val), BATCH)]
        return calibrate(torch.cat([model.outputs(x[part]) for part in parts]), y, loss)

    def traced(self) -> ExportedProgram:
        """All of it as the operations of one program."""
        if self._traced is None:
            self._traced = traced(self._program(), np.repeat(self.examples()[0][:1], 2, 0), self.card["network"])
        return self._traced

    def _program(self) -> Program:
        temperature = float(self.card.get("calibration", {}).get("temperature", 1.0))
        preparing = preparing_of(self.samples.x.dtype, self.prepared, (self.samples.mean, self.samples.std))
        return Program(self.model().module, preparing, self.card["loss"], temperature).eval().requires_grad_(False)

    def compute(self, x: np.ndarray) -> tuple[np.ndarray, ...]:
        """What a program must compute."""
        model = self.model()
        outputs = model.outputs(x).numpy()
        return (outputs, model.probabilities(x).numpy()) if self.card["classes"] else (outputs,)

    def examples(self) -> tuple[np.ndarray, str]:
        """Samples to compare on, and what they are."""
        if not isinstance(self.data, str):
            rows = np.concatenate([self.data.val, self.data.train])[:CHECKED]
            if len(rows):
                return np.ascontiguousarray(self.data.samples.x[rows]), "the client's validation and training samples"
        reason = self.data if isinstance(self.data, str) else "the client has none"
        return made_up(self.samples, self.prepared, 32), f"made-up samples ({reason})"


def made_up(samples: Samples, prepared: Preprocessing | None, count: int) -> np.ndarray:
    """Arbitrary raw samples of the right form, the same every time."""
    stream, size, kind = numpy_stream(0, "export", "check"), (count, *samples.x.shape[1:]), samples.x.dtype
    if kind == np.uint8:
        return stream.randint(0, 256, size).astype(kind)
    if samples.vocabulary:
        return stream.randint(0, samples.vocabulary, size).astype(kind)
    x = stream.standard_normal(size).astype(kind)
    for j, column in enumerate(samples.columns):
        if column.categories:
            x[:, j] = stream.randint(0, len(column.categories), count)
    if prepared is not None and prepared.settings.impute != "none":
        x[stream.random_sample(size) < 0.1] = np.nan
    return x


def _write_program(draft: Path, format: str, reference: _Reference) -> dict[str, Any]:
    """Write a program, read it again, and compare it with the model; returns what its card says."""
    x, of = reference.examples()
    program, file = reference.traced(), draft / FILES[format]
    file.write_bytes(torch_file(program) if format == "torch" else onnx_file(program, reference.card["network"]))
    given = read_torch(file) if format == "torch" else OnnxProgram(file.read_bytes(), file.name)
    found = difference(reference.compute, given, x, file.name)
    return {"runtime": runtime(format), "of": of, **found}


def _preprocessing_of(samples: Samples, facts: dict[str, Any]) -> Preprocessing | None:
    """The pre-processing that belongs to a model; no client's own statistics fit a model of the server."""
    prepared = samples.preprocessing
    if prepared is None or prepared.settings.statistics == "federation":
        return prepared
    return prepared.of(facts["client"]) if "client" in facts else prepared.without_statistics()
