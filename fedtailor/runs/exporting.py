"""Exports trained models as two files: safetensors weights and a small JSON card."""

import json
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import safetensors.torch
import torch
from torch import Tensor, nn

from fedtailor import imports
from fedtailor.data import Federation, Samples
from fedtailor.data.preprocessing import Preprocessing
from fedtailor.data.roster import Entry, federation_of
from fedtailor.engines import Job
from fedtailor.errors import UserError, one_line
from fedtailor.learning.tensors import inputs_of, prepared_inputs
from fedtailor.models import Inputs, ModelSettings, build
from fedtailor.runs.assembly import assemble, check_data, job_of
from fedtailor.runs.callbacks import Callback
from fedtailor.runs.deployed import described, kept
from fedtailor.runs.environment import environment
from fedtailor.runs.ledger import deployed_ledger
from fedtailor.runs.loop import RoundLoop
from fedtailor.runs.reading import Run, find_client
from fedtailor.runs.resources import Resources, again
from fedtailor.runs.settings import Experiment, experiment, method_dict
from fedtailor.runs.starting import started
from fedtailor.runs.store import Store
from fedtailor.weights import Weights

WEIGHTS, CARD, PREPROCESSING = "model.safetensors", "card.json", "preprocessing.json"


@dataclass(frozen=True)
class Model:
    """An exported model.

    Attributes
    ----------
    module : torch.nn.Module
        The network with its weights, in evaluation mode.
    card : dict
        What the model was trained with: classes, inputs, pre-processing, method, seed, versions.
    preprocessing : Preprocessing or None
        What is done to samples first; `outputs` and `predict` do it.
    """

    module: nn.Module
    card: dict[str, Any]
    preprocessing: Preprocessing | None = None

    def outputs(self, x: np.ndarray) -> Tensor:
        """The network's outputs for raw samples, as the data source gives them (images as ``uint8``).

        A table may also hold the categories' names, and None or "?" for a missing value.
        """
        x = np.ascontiguousarray(x)
        if self.preprocessing is not None and x.dtype.kind in "OUS":
            x = self.preprocessing.codes(x)
        inputs = prepared_inputs(x, self.preprocessing, (tuple(self.card["mean"]), tuple(self.card["std"])))
        with torch.inference_mode():
            return self.module(inputs)  # type: ignore[no-any-return]

    def predict(self, x: np.ndarray) -> list[Any]:
        """The predictions for raw samples: names of classes or, in a regression, numbers."""
        if not self.card["classes"]:
            outputs = self.outputs(x)
            return outputs.flatten().tolist() if outputs.shape[1] == 1 else outputs.tolist()
        return [self.card["classes"][index] for index in self.outputs(x).argmax(1).tolist()]


def export_client(
    run: str | Path, client: int | str, target: str | Path, *, federation: Federation | None = None
) -> Path:
    """Write the model that a client would deploy: the one that the final pass scored.

    The final pass stores these models (``evaluation.keep_models``). Otherwise the client receives and trains once
    more on the data of the run, which gives the same model; other data are refused.

    Parameters
    ----------
    run : str or Path
        The folder of the run.
    client : int or str
        The number of the client, or its name.
    target : str or Path
        The folder to write, which must not exist.
    federation : Federation, optional
        The clients' data, if the run began with the caller's and did not store its models.

    Returns
    -------
    Path
        The folder, with ``model.safetensors`` and ``card.json``.

    Examples
    --------
    >>> folder = fedtailor.export_client("runs/first", 3, "exports/client-3")
    >>> sorted(file.name for file in folder.iterdir())
    ['card.json', 'model.safetensors']
    """
    with Run(run) as found:
        number = found.client(client)
        who: dict[str, Any] = {"client": number} | ({"name": found.label(number)} if found.names else {})
    settings, job, network, weights = personal_model(run, number, federation)
    return _write(Path(target), settings, job, network, weights, {**who, **_privacy(run)})


def export_global(
    run: str | Path, target: str | Path, model: str = "global", *, federation: Federation | None = None
) -> Path:
    """Write a model of the server.

    Parameters
    ----------
    run : str or Path
        The folder of the run.
    target : str or Path
        The folder to write, which must not exist.
    model : str, optional
        The name of the model, for a method whose server holds several, such as ``group/0``.
    federation : Federation, optional
        The clients' data, if the run began with the caller's.

    Returns
    -------
    Path
        The folder, with ``model.safetensors`` and ``card.json``.

    Examples
    --------
    >>> folder = fedtailor.export_global("runs/first-comparison/fedavg-s0", "exports/fedavg")
    >>> sorted(file.name for file in folder.iterdir())
    ['card.json', 'model.safetensors']
    """
    settings, job, models = server_models(run, federation)
    if model not in models:
        held = ", ".join(sorted(models)) or "none: its clients' models are personal, export them with --client"
        raise UserError(f"{run} has no {model!r} model on its server (it holds {held})")
    return _write(Path(target), settings, job, model, models[model], {"server_model": model, **_privacy(run)})


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
    >>> len(model.predict(images))
    3
    """
    place = Path(folder)
    try:
        card = json.loads((place / CARD).read_text(encoding="utf-8"))
        weights = safetensors.torch.load_file(place / WEIGHTS)
        preprocessing = None
        if card.get("preprocessing") is not None:
            facts = json.loads((place / PREPROCESSING).read_text(encoding="utf-8"))
            preprocessing = Preprocessing.from_dict(facts)
    except FileNotFoundError as error:
        raise UserError(
            f"{error.filename or place / WEIGHTS} does not exist: write it with 'fedtailor export'"
        ) from None
    except (LookupError, TypeError, AttributeError, ValueError, safetensors.SafetensorError) as error:
        raise UserError(f"{place} holds a damaged model ({error}): write it again with 'fedtailor export'") from None
    try:
        with imports.foreign(allow):
            network = build(ModelSettings.model_validate(card["model"]), Inputs(**card["inputs"]), 0)
        network.load(weights)
    except (LookupError, TypeError, ValueError, AttributeError, RuntimeError) as error:
        reason = one_line(f"{type(error).__name__}: {error}")
        raise UserError(f"{place / CARD} does not describe {WEIGHTS} ({reason}): export the model again") from None
    network.module.eval()
    return Model(network.module, card, preprocessing)


@imports.foreign()
def personal_model(
    folder: str | Path, client: int, federation: Federation | None = None
) -> tuple[Experiment, Job, str, Weights]:
    """The model that a client of a run would deploy, the one that its final pass scored.

    If the final pass did not store it, the client trains once more on the same data, which gives the same model.
    Returns settings, job, the name of its network in the method's family (empty: the run's own network), and weights.
    """
    with Store(Path(folder), write=True) as store, Resources(federation) as resources:
        if store.meta("nodes") is not None:
            raise UserError("the personal models of a federation are with its nodes: model/ in their --state folder")
        _check_client(store, client)
        settings, model = _inline(store), kept(store, client)
        if model is not None:  # the data are not needed
            data = described(store.meta("samples"), store.meta("clients"))
            job = Job(settings.method, settings.model, settings.training, settings.seed, data)
            return settings, job, model.config["network"], model["model"]
        if client >= store.meta("clients"):
            raise UserError(f"client {client} is new and its model was not kept: raise evaluation.keep_models")
        sentence = f"{folder} cannot export client {client}"
        settings = again(settings, federation, sentence)
        job = started(job_of(settings, resources), store)
        check_data(settings, job.federation, store.meta("federation"), sentence)
        engine = resources.engine_for(settings)
        engine.start(job)
        model = RoundLoop(settings, job, engine, store, Callback()).deployed(client)
        return settings, job, model.config["network"], model["model"]


@imports.foreign()
def server_models(
    folder: str | Path, federation: Federation | None = None
) -> tuple[Experiment, Job, dict[str, Weights]]:
    """The named models on the server of a run."""
    sentence = f"{folder} cannot export its server's model"
    with Store(Path(folder), write=True) as store, Resources(federation) as resources:
        settings = _inline(store)
        if (nodes := store.meta("nodes")) is not None:
            resources.given = federation_of([Entry.read(node) for node in nodes], settings.data.preprocess)
        settings = again(settings, resources.given, sentence)
        job = started(job_of(settings, resources), store)
        if nodes is None:
            check_data(settings, job.federation, store.meta("federation"), sentence)
        ledger, _ = deployed_ledger(store, job.seed, settings.rounds)
        return settings, job, job.method.models(ledger.server(assemble(settings, job, ledger.moment)))


def _check_client(store: Store, client: int) -> None:
    """Raise a `UserError` if the run has no such client, or if the client failed in the final pass."""
    find_client(store, client)
    for event in store.read("events", "WHERE kind IN ('final', 'new') AND client = ?", [client]):
        raise UserError(f"client {client} has no model: it failed in the final pass ({event['detail']})")


def _inline(store: Store) -> Experiment:
    """The settings of a run, to compute in this process."""
    return experiment({**store.meta("experiment"), "engine": {"kind": "inline"}})


def _privacy(run: str | Path) -> dict[str, Any]:
    """The run's differential privacy as a fact of a card; nothing without privacy."""
    with Run(run) as opened:
        sentences = [promise.sentence for promise in opened.privacy]
    return {"privacy": sentences} if sentences else {}


def _write(target: Path, settings: Experiment, job: Job, network: str, weights: Weights, what: dict[str, Any]) -> Path:
    facts = {**what, "run": settings.name, "rounds": settings.rounds, "data": settings.data.source}
    return write_model(target, job, network, weights, facts)


def write_model(
    target: Path, job: Job, network: str, weights: Weights, facts: dict[str, Any], again: bool = False
) -> Path:
    """Write weights and their card. ``network`` is a name in the method's family, or empty for the run's own network.

    With ``again``, a model in the folder is overwritten.
    """
    if target.exists() and not again:
        raise UserError(f"{target} exists: name another folder with --out")
    samples = job.federation.samples
    inputs, prepared = inputs_of(samples), _preprocessing_of(samples, facts)
    card = {
        **facts,
        "method": method_dict(job.method),
        "seed": job.seed,
        "classes": list(samples.classes),
        "inputs": {"shape": list(inputs.shape), "outputs": inputs.outputs, "vocabulary": inputs.vocabulary},
        "mean": list(samples.mean),
        "std": list(samples.std),
        "preprocessing": None if prepared is None else {**prepared.settings.model_dump(), "inputs": prepared.names},
        "model": job.method.family(job.model).get(network, job.model).model_dump(mode="json"),
        "environment": environment(),
    }
    target.mkdir(parents=True, exist_ok=again)
    safetensors.torch.save_file(weights, target / WEIGHTS)
    (target / CARD).write_text(json.dumps(card, indent=2) + "\n", encoding="utf-8")
    if prepared is not None:
        (target / PREPROCESSING).write_text(json.dumps(prepared.as_dict()) + "\n", encoding="utf-8")
    return target


def _preprocessing_of(samples: Samples, facts: dict[str, Any]) -> Preprocessing | None:
    """The pre-processing that belongs to a model; no client's own statistics fit a model of the server."""
    prepared = samples.preprocessing
    if prepared is None or prepared.settings.statistics == "federation":
        return prepared
    return prepared.of(facts["client"]) if "client" in facts else prepared.without_statistics()
