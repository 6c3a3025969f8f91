"""Runs an experiment as a federation."""

from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path
from typing import Any

from fedtailor.data import DataSettings
from fedtailor.data.partitions import Given
from fedtailor.data.roster import Entry, federation_of
from fedtailor.errors import UserError
from fedtailor.flower.coordinator.engine import FlowerEngine
from fedtailor.flower.coordinator.link import Link
from fedtailor.flower.coordinator.nodes import Nodes
from fedtailor.flower.coordinator.notices import Notices
from fedtailor.flower.keys import ServerKeys
from fedtailor.flower.programs import require
from fedtailor.learning import TrainingSettings
from fedtailor.runs import Run, resume, run
from fedtailor.runs.assembly import with_precision
from fedtailor.runs.callbacks import Callback
from fedtailor.runs.resources import Resources
from fedtailor.runs.settings import Experiment, experiment
from fedtailor.runs.store import Store

CLIP = 3.0  # aggregation.clip of a federation whose settings do not name it
RECONNECT_TIMEOUT = 60.0  # seconds that nodes have to reconnect after the coordinator restarted


def serve(
    settings: Experiment,
    folder: Path,
    *,
    host: str = "0.0.0.0",
    port: int = 8000,
    keys: Path | None = None,
    callbacks: Callback | None = None,
    say: Callable[[str], None] = lambda sentence: None,
) -> Run:
    """Wait for the nodes, run the experiment with them, and write the run's folder.

    Parameters
    ----------
    settings : Experiment
        The experiment; ``data.clients`` is the number of nodes to wait for.
    folder : Path
        The run's folder. If it exists, the run in it is resumed after its last complete round.
    host, port : str, int
        Where nodes connect.
    keys : Path or None
        The folder of `fedtailor.flower.keys`. Without keys there is no TLS and every node may take part.
    callbacks : Callback or None
        Observe the run.
    say : callable
        Receives a sentence whenever a node connects, leaves or is refused.

    Returns
    -------
    Run
        The finished run.

    Examples
    --------
    >>> run = serve(experiment("experiment.toml"), Path("runs/hospitals"), keys=Path("keys"))  # doctest: +SKIP
    """
    require()
    settings = _with_precision(federated(settings), folder)
    _members_of(settings, folder)  # refuses before anything is started
    server_keys = None if keys is None else ServerKeys(keys)
    with Link(host, port, server_keys, settings.engine.limit_bytes, Notices(say)) as link:
        say(f"waiting for nodes on {host}:{link.port}")
        return serve_on(link, settings, folder, callbacks, say)


def serve_on(
    link: Link,
    settings: Experiment,
    folder: Path,
    callbacks: Callback | None = None,
    say: Callable[[str], None] = lambda sentence: None,
) -> Run:
    """Run one experiment on an open link, as `serve` does; a link can serve several runs, one after the other."""
    settings = _with_precision(federated(settings), folder)
    members, clients = _members_of(settings, folder), settings.data.clients
    assert clients is not None
    say = Notices(say)  # not that of the link: a flood from the network does not hide what is said about nodes
    nodes = Nodes(link, _data_settings(settings), say, bf16=settings.training.precision == "bf16")

    def progress(names: list[str]) -> None:
        say(f"{len(names)} of {clients} nodes: {', '.join(names)}")

    if members:
        nodes.reconnect(members, RECONNECT_TIMEOUT, progress)
    else:
        nodes.gather(clients, progress)
    limit, deadline = settings.engine.limit_bytes, settings.engine.deadline
    engine = FlowerEngine(link, nodes, settings.name, settings.rounds, deadline, limit, settings.privacy.model_dump())
    resources = Resources(given=federation_of(nodes.members, settings.data.preprocess), engine=engine)
    if members:
        done = resume(folder, resources=resources, callbacks=callbacks, engine=settings.engine.model_dump())
    else:
        notes = {"nodes": [asdict(entry) for entry in nodes.members]}
        done = run(settings, folder=folder, resources=resources, callbacks=callbacks, notes=notes)
    engine.end_run()
    return done


def federated(settings: Experiment) -> Experiment:
    """Return the experiment as a federation runs it.

    It runs on Flower, tests each client where its data are, and clips changes unless the settings say otherwise.
    """
    if settings.attack is not None:
        raise UserError("attack: malicious clients belong to a simulation; remove the table [attack]")
    for table in ("stopping", "checkpoints", "start"):
        if getattr(settings, table) is not None:
            raise UserError(
                f"{table}: nodes keep their latest states only, which rules it out; remove the table [{table}]"
            )
    aggregation = settings.aggregation
    if "clip" not in aggregation.model_fields_set and not settings.privacy.hides_clients:  # which clips by itself
        aggregation = aggregation.model_copy(update={"clip": CLIP})
    split = settings.data.with_defaults()
    kept = {key: getattr(split, key) for key in ("clients", "split", "val", "seed", "preprocess")}
    changes: dict[str, Any] = {
        "data": DataSettings(source="nodes", partition=Given(), **kept),
        "aggregation": aggregation,
        "privacy": settings.privacy.model_copy(update={"generator": "system"}),
        "training": _private_training(_serial(settings.training)),
        "engine": settings.engine.model_copy(update={"kind": "flower"}),
        "evaluation": settings.evaluation.model_copy(update={"together": False}),
    }
    return settings.model_copy(update=changes)


def _with_precision(settings: Experiment, folder: Path) -> Experiment:
    """Resolve ``training.precision = "auto"``: as the run in this folder did, otherwise for this machine."""
    if settings.training.precision != "auto" or not folder.exists():
        return with_precision(settings)
    with Store(folder) as store:
        known = experiment(store.meta("experiment")).training.precision
    return settings.model_copy(update={"training": settings.training.model_copy(update={"precision": known})})


def _serial(settings: TrainingSettings) -> TrainingSettings:
    """Return the settings of clients that train on machines of their own, each alone."""
    if settings.together == "on":
        raise UserError(
            "training.together = 'on': the clients of a federation train on machines of their own: use 'off'"
        )
    return settings.model_copy(update={"together": "off"})


def _private_training(settings: TrainingSettings) -> TrainingSettings:
    """Return the settings with batches and noise of private training from the operating system's generator."""
    if settings.dp_sgd is None:
        return settings
    return settings.model_copy(update={"dp_sgd": settings.dp_sgd.model_copy(update={"generator": "system"})})


def _data_settings(settings: Experiment) -> dict[str, Any]:
    """Return what a node needs to split its data."""
    return {
        "settings": settings.data.model_dump(mode="json", include={"split", "val", "seed", "preprocess"}),
        "seed": settings.seed,
        "validation": settings.carves_validation,
    }


def _members_of(settings: Experiment, folder: Path) -> list[Entry]:
    """Return the nodes of the run in this folder, empty without a folder; refuse a run that cannot be resumed."""
    if not folder.exists():
        return []
    with Store(folder) as store:
        nodes, values, finished = store.meta("nodes"), store.meta("experiment"), store.meta("finished")
    if nodes is None:
        raise UserError(f"{folder} is a simulation, not a federation: choose another name with --name")
    if finished:
        raise UserError(f"{folder} is finished: look at it with 'fedtailor show {folder}', or choose another --name")
    known = experiment(values)
    if _identity(known) != _identity(settings):
        raise UserError(f"{folder} began with other settings: choose another name with --name")
    return [Entry.read(node) for node in nodes]


def _identity(settings: Experiment) -> dict[str, Any]:
    return {key: value for key, value in settings.as_dict().items() if key not in ("engine", "compare", "pretrain")}
