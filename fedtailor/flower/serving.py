"""Run an experiment as a federation: the coordinator."""

from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path
from typing import Any

from fedtailor.data.roster import Entry, federation_of
from fedtailor.errors import UserError
from fedtailor.flower.engine import Flower
from fedtailor.flower.keys import ServerKeys
from fedtailor.flower.link import Link
from fedtailor.flower.programs import require
from fedtailor.runs import Run, resume, run
from fedtailor.runs.callbacks import Callback
from fedtailor.runs.resources import Resources
from fedtailor.runs.settings import Experiment, experiment
from fedtailor.runs.store import Store

AGAIN = 60.0  # seconds that nodes get to come back after the coordinator was away


def federated(settings: Experiment) -> Experiment:
    """The experiment as a federation runs it: each client is tested where its data are."""
    changes = {
        "engine": settings.engine.model_copy(update={"kind": "flower"}),
        "evaluation": settings.evaluation.model_copy(update={"together": False}),
    }
    return settings.model_copy(update=changes)


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
    """Wait for the nodes, run the experiment with them, and write the folder of a run.

    If the folder exists, the run in it goes on from its last complete round. Without ``keys`` anybody may listen and
    take part.
    """
    require()
    settings = federated(settings)
    _before(settings, folder)  # refuses before anything is started
    held = None if keys is None else ServerKeys(keys)
    with Link(host, port, held, settings.engine.limit_bytes, say) as link:
        say(f"waiting for nodes on {host}:{link.port}")
        return serve_on(link, settings, folder, callbacks, say)


def serve_on(
    link: Link,
    settings: Experiment,
    folder: Path,
    callbacks: Callback | None = None,
    say: Callable[[str], None] = lambda sentence: None,
) -> Run:
    """One run of those that a link may serve, one after the other."""
    settings = federated(settings)
    before = _before(settings, folder)
    data = {
        "settings": settings.data.model_dump(mode="json", include={"split", "val", "seed"}),
        "seed": settings.seed,
        "validation": settings.carves_validation,
    }
    limit = settings.engine.limit_bytes
    engine = Flower(link, settings.name, settings.rounds, data, settings.engine.deadline, limit, say)
    wanted = settings.data.clients

    def progress(names: list[str]) -> None:
        say(f"{len(names)} of {wanted} nodes: {', '.join(names)}")

    if before:
        engine.meet(before, AGAIN, progress)
    entries = before or engine.gather(wanted, progress)
    resources = Resources(given=federation_of(entries), engine=engine)
    if before:
        done = resume(folder, resources=resources, callbacks=callbacks, engine=settings.engine.model_dump())
    else:
        done = run(
            settings,
            folder=folder,
            resources=resources,
            callbacks=callbacks,
            notes={"nodes": [asdict(e) for e in entries]},
        )
    engine.farewell()
    return done


def _before(settings: Experiment, folder: Path) -> list[Entry]:
    """The nodes of the run in a folder, if it is this one and can go on; none if there is no folder."""
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
