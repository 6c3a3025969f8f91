"""Adapts a run's model to a client that never took part. The run does not change."""

import os
import statistics
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from fedtailor import imports
from fedtailor.data import Federation, Samples
from fedtailor.data.federation import one_client
from fedtailor.data.folder import client_of_arrays
from fedtailor.data.folder import one_client as read_client
from fedtailor.data.newcomers import made_alike, prepared_alike
from fedtailor.data.readers import Roles
from fedtailor.data.settings import DataSettings
from fedtailor.devices import VirtualClock, virtual_clock
from fedtailor.devices.profiles import UNITS
from fedtailor.engines import Inline, Job, Result
from fedtailor.errors import UserError
from fedtailor.methods import Payload, spec
from fedtailor.runs.assembly import assemble
from fedtailor.runs.callbacks import Callback
from fedtailor.runs.exporting import ClientData, Deployable, write_model
from fedtailor.runs.exporting.formats import chosen_formats
from fedtailor.runs.fitting import measuring_of
from fedtailor.runs.ledger import deployed_ledger
from fedtailor.runs.newcomers import Welcome
from fedtailor.runs.phases import Phases, Recorder
from fedtailor.runs.promises import Promise
from fedtailor.runs.settings import NAMES_A_FOLDER, Experiment, experiment, is_name
from fedtailor.runs.starting import started
from fedtailor.runs.store import Store
from fedtailor.runs.tasks import Tasks

UNCOVERED = "not covered: the samples of the new client, which adapted the model without noise"
NewData = str | Path | Mapping[str, Any] | tuple[Any, Any]


@dataclass(frozen=True)
class Adapted:
    """The model of a new client.

    Attributes
    ----------
    folder : Path
        The folder that was written; `fedtailor.load_model` reads it.
    name : str
        The client's name.
    samples : dict of str to int
        How many samples were used to train, to validate and to test.
    scores : list of dict
        By the number of passes over the client's data, 0 for the received model: the score on its test samples.
    """

    folder: Path
    name: str
    samples: dict[str, int]
    scores: list[dict[str, Any]]


@imports.foreign()
def adapt(
    run: str | Path,
    data: NewData,
    target: str | Path | None = None,
    *,
    name: str | None = None,
    passes: int | None = None,
    speed: float | None = None,
    label: str | None = None,
    formats: Iterable[str] = ("safetensors",),
    licence: str | None = None,
) -> Adapted:
    """Give a client that never took part a personal model. The run does not change.

    The server welcomes the client as the method says, the client receives, and adapts the received model to its
    training samples. Its test samples only score the result.

    Parameters
    ----------
    run : str or Path
        The folder of the run; its data are not needed.
    data : path, mapping or pair
        The client's data: a ``.npz`` or ``.csv`` file or a folder, as docs/data.md describes them, arrays named as in
        an ``.npz`` file, or a pair (x, y). Without test samples of its own, they are split as in the run.
    target : str or Path, optional
        The folder to write, which must not exist; by default ``exports/<name>``.
    name : str, optional
        The client's name; by default that of the file or folder.
    passes : int, optional
        Passes over the client's training samples; by default ``training.epochs`` of the run.
    speed : float, optional
        The speed of the client's device as in ``[devices]``, if the run has devices; by default their median.
    label : str, optional
        The column of a CSV file to predict; by default that of the run, or the last one.
    formats, licence
        As in `export_client`.

    Returns
    -------
    Adapted
        The folder, with the same files as an export, and the scores.

    Raises
    ------
    UserError
        If the data do not fit the run, or the method cannot adapt. Nothing is written then.

    Examples
    --------
    >>> import numpy as np
    >>> x, y = np.random.RandomState(0).randint(0, 16, (40, 8, 8, 1)).astype(np.uint8), np.arange(40) % 10
    >>> done = fedtailor.adapt("runs/first", (x, y), "exports/bern", name="bern", passes=3)
    >>> [score["passes"] for score in done.scores], done.samples["test"]
    ([0, 1, 3], 10)
    """
    chosen = chosen_formats(formats)
    name = name or (Path(data).expanduser().stem if isinstance(data, str | Path) else "new-client")
    if not is_name(name):
        raise UserError(f"name = {name!r}: {NAMES_A_FOLDER}")
    place = Path("exports") / name if target is None else Path(target)
    if os.path.lexists(place):
        raise UserError(f"{place} exists: name another folder with --out")
    with Store(Path(run), still=True) as store:
        store.check_version()
        settings = _settings(store, Path(run))
        passes = max(1, settings.training.epochs) if passes is None else passes
        federation = _federation(store, settings, data, name, label)
        job = Job(settings.method, settings.model, settings.training, settings.seed, federation)
        measures = measuring_of(settings, federation).further
        job = started(replace(job, counts_work=settings.devices is not None, measures=measures), store)
        numbers = sorted({1, passes}) if passes else [0]
        results, round = _results(store, settings, job, numbers, speed)
        promises = [Promise.read(row).sentence for row in store.meta("privacy") or []]
    if (failure := next((result.failure for result in results if result.failure), None)) is not None:
        raise UserError(f"{name} cannot adapt the model of {run} ({spec(settings.method)}): {failure}")
    classes = bool(federation.samples.classes)
    scores = [{"passes": 0, **_shown(results[0], "received", classes)}]
    scores += [{"passes": n, **_shown(one, "new", classes)} for n, one in zip(numbers, results, strict=True) if n]
    samples = {part: len(getattr(federation, part).indices) for part in ("train", "val", "test")}
    facts = {
        "name": name,
        "client": federation.clients,
        "new_client": True,
        "passes": passes,
        "run": settings.name,
        "rounds": round,
        "data": name,
        "samples": samples,
        "scores": scores,
    }
    facts |= {"privacy": [*promises, UNCOVERED]} if promises else {}
    assert results[-1].reply is not None
    model = Payload.unpack(results[-1].reply)
    own = ClientData.of(federation, federation.clients)
    write_model(place, Deployable(job, model.config["network"], model["model"], facts, own), chosen, licence)
    return Adapted(place, name, samples, scores)


def _settings(store: Store, run: Path) -> Experiment:
    if store.meta("episodes") is not None:
        raise UserError(f"{run} pre-trains an agent: it has no model to adapt")
    if not store.rows("SELECT 1 FROM rounds LIMIT 1"):
        raise UserError(f"{run} has no complete round yet: there is no model to adapt")
    settings = experiment({**store.meta("experiment"), "engine": {"kind": "inline"}})
    if store.meta("nodes") is not None and settings.method.uses_clock and "welcome" in settings.method.changes:
        raise UserError(
            f"{run} is a federation whose method, {spec(settings.method)}, chooses a model by measured times of "
            "devices: a new client joins it with 'fedtailor join'"
        )
    return settings


def _federation(store: Store, settings: Experiment, data: NewData, name: str, label: str | None) -> Federation:
    """The new client's data, in the form of the run's and after all its clients, which are empty."""
    recorded = store.meta("samples")
    if recorded is None:
        raise UserError(f"{store.path} was written by an earlier version, which did not record the form of its data")
    outline = recorded["outline"]
    kind, shape = recorded["arrays"]["x"]
    samples, rows, where = _read(settings.data, data, label)
    samples = made_alike(samples, outline, np.zeros((0, *shape), np.dtype(kind)), where)
    needs = settings.carves_validation
    alone = one_client(samples, rows, settings.data, settings.seed, needs)
    for part, wanted in (("train", True), ("test", True), ("val", needs)):
        if wanted and not len(getattr(alone, part).indices):
            what = {"train": "train", "test": "test", "val": "validate"}[part]
            raise UserError(f"{where} has too few samples ({len(samples)}): none is left to {what}")
    samples = prepared_alike(samples, outline, alone.train[0])
    clients = int(store.meta("clients"))
    alone = Federation(samples, alone.train, alone.val, alone.test, (name,))
    return replace(alone.placed(clients, clients + 1), new=1)


def _read(settings: DataSettings, data: NewData, label: str | None) -> tuple[Samples, dict[str, np.ndarray], str]:
    if not isinstance(data, str | Path):
        arrays = {"x": data[0], "y": data[1]} if isinstance(data, tuple) else data
        return *client_of_arrays(arrays, "data"), "data"
    place = Path(data).expanduser()
    if not place.exists():
        raise UserError(f"{place} does not exist: name the new client's data, a .npz or .csv file or a folder")
    roles = replace(settings.roles, client=None) if settings.source == "folder" else Roles()
    tables = place.suffix.lower() == ".csv" or (place.is_dir() and any(place.glob("*.csv")))
    roles = replace(roles, label=label or roles.label) if tables else Roles(label=label)
    return *read_client(place, roles), str(place)


def _results(
    store: Store, settings: Experiment, job: Job, passes: list[int], speed: float | None
) -> tuple[list[Result], int]:
    """The results of the new client's tasks, and the round that the run is at."""
    ledger, best = deployed_ledger(store, job.seed, settings.rounds)
    moment = ledger.moment if best is None else replace(ledger.moment, round=best + 1)
    made = assemble(settings, job, moment)
    server = ledger.server(made)
    server.sizes = _sizes(store, settings, server.clients)
    clock = _clock(settings, server.sizes, len(job.federation.train[made.clients]), job.seed, speed)
    with Inline() as engine:
        engine.start(job)
        tasks = Tasks(engine, store, Callback(), ledger.stateful)
        tasks.scope = f"{ledger.prefix}client"
        phases = Phases(made, server, tasks, Recorder({}, Callback()))
        welcome = Welcome(made, server, phases, tasks, clock)
        return list(welcome.adapt([made.clients], passes, keeps=True)), moment.round - 1


def _sizes(store: Store, settings: Experiment, clients: int) -> tuple[int, ...]:
    """The numbers of training samples of the run's clients."""
    recorded = store.meta("sizes") or [row["train"] for row in store.read("clients", "ORDER BY client")]
    return tuple(recorded[:clients]) if recorded else (0,) * clients


def _clock(
    settings: Experiment, sizes: tuple[int, ...], samples: int, seed: int, speed: float | None
) -> VirtualClock | None:
    """The run's clock with one more device."""
    if settings.devices is None:
        if speed is not None:
            raise UserError("--speed is about the devices of a run, and this run has none: leave it out")
        return None
    clock = virtual_clock(settings.devices, sizes, seed)
    typical = statistics.median(profile.speed for profile in clock.profiles)
    own = replace(clock.profiles[0], speed=typical if speed is None else speed * UNITS["speed"], failure=0.0)
    return replace(clock, profiles=(*clock.profiles, own), sizes=(*sizes, samples))


def _shown(result: Result, model: str, classes: bool) -> dict[str, Any]:
    score = result.scores[model]
    shown: dict[str, Any] = {"accuracy": score.correct / score.samples} if classes else {}
    shown["loss"] = score.loss / score.samples
    return {**shown, **({"measures": dict(score.values)} if score.values else {})}
