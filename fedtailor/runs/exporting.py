"""A trained model as two files: safetensors weights and a small JSON card."""

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import safetensors.torch
import torch
from torch import Tensor, nn

from fedtailor.engines import Job
from fedtailor.errors import UserError
from fedtailor.learning.tensors import inputs_of, normalise
from fedtailor.models import Inputs, ModelSettings, build
from fedtailor.runs.running import environment, personal_model, server_models
from fedtailor.runs.settings import Experiment, method_dict
from fedtailor.weights import Weights

WEIGHTS, CARD = "model.safetensors", "card.json"


@dataclass(frozen=True)
class Model:
    """An exported model: ``fedtailor.load_model(folder).predict(images)``."""

    module: nn.Module
    card: dict[str, Any]

    def outputs(self, x: np.ndarray) -> Tensor:
        """The network's outputs for raw samples, as the data source gives them (images as bytes)."""
        inputs = torch.from_numpy(np.ascontiguousarray(x))
        if inputs.dtype == torch.uint8:
            inputs = normalise(inputs, tuple(self.card["mean"]), tuple(self.card["std"]))
        with torch.inference_mode():
            return self.module(inputs)  # type: ignore[no-any-return]

    def predict(self, x: np.ndarray) -> list[str]:
        """The class names predicted for raw samples."""
        return [self.card["classes"][index] for index in self.outputs(x).argmax(1).tolist()]


def export_client(run: str | Path, client: int, target: str | Path) -> Path:
    """Write the model that a client would deploy."""
    settings, job, network, weights = personal_model(run, client)
    return _write(Path(target), settings, job, network, weights, {"client": client})


def export_global(run: str | Path, target: str | Path, model: str = "global") -> Path:
    """Write a model of the server."""
    settings, job, models = server_models(run)
    if model not in models:
        held = ", ".join(sorted(models)) or "none: its clients' models are personal, export them with --client"
        raise UserError(f"{run} has no {model!r} model on its server (it holds {held})")
    return _write(Path(target), settings, job, model, models[model], {"server_model": model})


def load_model(folder: str | Path) -> Model:
    """An exported model, ready to use."""
    place = Path(folder)
    try:
        card = json.loads((place / CARD).read_text(encoding="utf-8"))
        weights = safetensors.torch.load_file(place / WEIGHTS)
    except FileNotFoundError as error:
        raise UserError(
            f"{error.filename or place / WEIGHTS} does not exist: write it with 'fedtailor export'"
        ) from None
    except (ValueError, safetensors.SafetensorError) as error:
        raise UserError(f"{place} holds a damaged model ({error}): write it again with 'fedtailor export'") from None
    network = build(ModelSettings.model_validate(card["model"]), Inputs(**card["inputs"]), 0)
    network.load(weights)
    network.module.eval()
    return Model(network.module, card)


def _write(target: Path, settings: Experiment, job: Job, network: str, weights: Weights, what: dict[str, Any]) -> Path:
    facts = {**what, "run": settings.name, "rounds": settings.rounds, "data": settings.data.source}
    return write_model(target, job, network, weights, facts)


def write_model(
    target: Path, job: Job, network: str, weights: Weights, facts: dict[str, Any], again: bool = False
) -> Path:
    """Write weights of the network of this name in the method's family, or of the run's own, and their card.

    ``again``: over those that are there.
    """
    if target.exists() and not again:
        raise UserError(f"{target} exists: name another folder with --out")
    samples = job.federation.samples
    inputs = inputs_of(samples)
    card = {
        **facts,
        "method": method_dict(job.method),
        "seed": job.seed,
        "classes": list(samples.classes),
        "inputs": {"shape": list(inputs.shape), "outputs": inputs.outputs, "vocabulary": inputs.vocabulary},
        "mean": list(samples.mean),
        "std": list(samples.std),
        "model": job.method.family(job.model).get(network, job.model).model_dump(mode="json"),
        "environment": environment(),
    }
    target.mkdir(parents=True, exist_ok=again)
    safetensors.torch.save_file(weights, target / WEIGHTS)
    (target / CARD).write_text(json.dumps(card, indent=2) + "\n", encoding="utf-8")
    return target
