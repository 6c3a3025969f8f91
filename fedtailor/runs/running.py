"""Start, resume and export a run."""

import json
import os
import platform
import shutil
import signal
import sqlite3
import tempfile
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from fedtailor.data import Federation, build
from fedtailor.engines import Engine, Job, open_engine
from fedtailor.errors import UserError
from fedtailor.learning.tensors import inputs_of
from fedtailor.methods import Method, find, spec
from fedtailor.models import build as build_network
from fedtailor.runs import toml
from fedtailor.runs.loop import RoundLoop, Script
from fedtailor.runs.reading import Run
from fedtailor.runs.settings import Experiment, experiment
from fedtailor.runs.store import Store
from fedtailor.runs.watch import Watch
from fedtailor.version import __version__


class Interrupted(Exception):
    """The user ended a run; it is at a round boundary."""

    def __init__(self, folder: Path):
        super().__init__(f"stopped at a round boundary; go on with: fedtailor resume {folder}")
        self.folder = folder


@dataclass
class Workshop:
    """What several runs share: loaded data and warm workers."""

    given: Federation | None = None  # the caller's own, instead of what the data settings say
    engine: Engine | None = None
    _federation: tuple[Any, Federation] | None = None

    def federation(self, settings: Experiment) -> Federation:
        if self.given is not None:
            return self.given
        key = (settings.data, settings.partition_seed, settings.carves_validation)
        if self._federation is None or self._federation[0] != key:
            self._federation = (key, build(*key[:2], needs_validation=key[2]))
        return self._federation[1]

    def engine_for(self, settings: Experiment) -> Engine:
        if self.engine is None:
            self.engine = open_engine(settings.engine)
        return self.engine

    def close(self) -> None:
        if self.engine is not None:
            self.engine.close()
        self.engine = None

    def __enter__(self) -> "Workshop":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def run(
    source: "str | Path | Mapping[str, Any] | Experiment | None" = None,
    *,
    folder: str | Path | None = None,
    federation: Federation | None = None,
    watch: Watch | None = None,
    workshop: Workshop | None = None,
    scripts: Mapping[str, Script] | None = None,
) -> Run:
    """Run an experiment from the start in a new folder (``runs/<name>`` unless said otherwise).

    A ``federation`` of the caller's own takes the place of the data settings.
    """
    settings = experiment(source)
    place = Path(folder) if folder is not None else Path("runs") / settings.name
    if place.exists():
        raise UserError(f"{place} exists: go on with 'fedtailor resume {place}', or choose another name with --name")
    with _own(workshop, federation) as shop:
        job = job_of(settings, shop)
        _create(place, settings, job)
        return _go_on(place, settings, job, shop, watch or Watch(), scripts)


def resume(
    folder: str | Path,
    *,
    federation: Federation | None = None,
    watch: Watch | None = None,
    workshop: Workshop | None = None,
    engine: Mapping[str, Any] | None = None,
    scripts: Mapping[str, Script] | None = None,
) -> Run:
    """Go on with a run from its last complete round; ``engine`` may say where, which changes no result."""
    place = Path(folder)
    with Store(place, write=True) as store:  # refuses a damaged run and one that another process runs
        values, before = store.meta("experiment"), store.meta("federation")
    settings = experiment({**values, "engine": {**values["engine"], **(engine or {})}})
    with _own(workshop, federation) as shop:
        job = job_of(settings, shop)
        if job.federation.digest() != before:
            raise UserError(f"{place} cannot go on: the data in {settings.data.source!r} are not those it began with")
        return _go_on(place, settings, job, shop, watch or Watch(), scripts)


def personal_model(folder: str | Path, client: int) -> tuple[Experiment, Job, dict[str, Any]]:
    """The model a client of a run would deploy: what its final pass gives, computed again, bit for bit."""
    with Store(Path(folder), write=True) as store, Workshop() as shop:
        settings = experiment({**store.meta("experiment"), "engine": {"kind": "inline"}})
        job = job_of(settings, shop)
        if not 0 <= client < job.federation.clients:
            raise UserError(f"there is no client {client}: this run has clients 0 to {job.federation.clients - 1}")
        shop.engine_for(settings).start(job)
        loop = RoundLoop(settings, job, shop.engine_for(settings), store, Watch())
        return settings, job, dict(loop.personal_model(client))


def server_models(folder: str | Path) -> tuple[Experiment, Job, dict[str, dict[str, Any]]]:
    """The named models on the server of a run."""
    with Store(Path(folder), write=True) as store, Workshop() as shop:
        settings = experiment({**store.meta("experiment"), "engine": {"kind": "inline"}})
        job = job_of(settings, shop)
        loop = RoundLoop(settings, job, shop.engine_for(settings), store, Watch())
        return settings, job, job.method.models(loop.server)


def environment() -> dict[str, Any]:
    """Versions that a result depends on."""
    import numpy
    import torch

    return {
        "fedtailor": __version__,
        "python": platform.python_version(),
        "torch": torch.__version__,
        "numpy": numpy.__version__,
        "platform": f"{platform.system()} {platform.machine()}",
        "cpu": torch.backends.cpu.get_cpu_capability(),
    }


def job_of(settings: Experiment, shop: Workshop) -> Job:
    """Everything is checked here, before anything is written."""
    if settings.engine.kind != "inline":
        _importable(settings.method)
    federation = shop.federation(settings)
    build_network(settings.model, inputs_of(federation.samples), settings.seed)
    return Job(settings.method, settings.model, settings.training, settings.seed, federation, settings.engine.device)


def _importable(method: Method) -> None:
    """Refuse a method that another process could not find."""
    name = spec(method)
    module, _, attribute = name.partition(":")
    if module == "__main__" or "<locals>" in attribute:
        raise UserError(
            f"{attribute} is defined where worker processes cannot import it: put it into a file of its own "
            f"(mine.py, then method.name = 'mine:{attribute.rpartition('.')[2]}') or set engine.kind = 'inline'"
        )
    find(name)


def _create(place: Path, settings: Experiment, job: Job) -> None:
    """Make the run's folder; it appears complete or not at all."""
    try:
        place.parent.mkdir(parents=True, exist_ok=True)
        draft = Path(tempfile.mkdtemp(prefix=f".{place.name}-", dir=place.parent))
    except OSError as error:
        raise UserError(f"{place} cannot be made: {error.strerror}") from None
    try:
        draft.chmod(0o755)
        (draft / "experiment.toml").write_text(toml.dumps(settings.as_dict()), encoding="utf-8")
        (draft / "environment.json").write_text(json.dumps(environment(), indent=2) + "\n", encoding="utf-8")
        meta = {
            "experiment": settings.as_dict(),
            "environment": environment(),
            "federation": job.federation.digest(),
            "clients": job.federation.clients,
        }
        Store.create(draft, meta)
        os.rename(draft, place)
    except (OSError, sqlite3.Error) as error:
        shutil.rmtree(draft, ignore_errors=True)
        raise UserError(f"{place} cannot be made: {getattr(error, 'strerror', None) or error}") from None


def _go_on(
    place: Path,
    settings: Experiment,
    job: Job,
    shop: Workshop,
    watch: Watch,
    scripts: Mapping[str, Script] | None,
) -> Run:
    with Store(place, write=True) as store:
        if (known := store.meta("environment")) != environment():
            watch.warning(f"this run began with {_differences(known)}: its last digits may differ from here on")
        engine = shop.engine_for(settings)
        with _stop_at_boundary() as stop:
            engine.start(job)
            loop = RoundLoop(settings, job, engine, store, watch, scripts)
            for warning in (settings.method.inert(), settings.method.misfit(settings.training, loop.server.network)):
                if warning:
                    watch.warning(f"{settings.method.name}: {warning}")
            watch.begin(settings.name, settings.rounds, loop.server.round - 1)
            try:
                complete = loop.run(stop)
            finally:
                watch.end()
        if not complete:
            raise Interrupted(place)
        with store.transaction():
            store.set_meta("finished", True)
    return Run(place)


def _differences(known: Mapping[str, Any]) -> str:
    now = environment()
    return ", ".join(f"{key} {value}" for key, value in known.items() if now.get(key) != value)


@contextmanager
def _own(workshop: Workshop | None, federation: Federation | None) -> Iterator[Workshop]:
    """The caller's workshop, or one for this run alone."""
    if workshop is not None:
        yield workshop
        return
    with Workshop(federation) as shop:
        yield shop


@contextmanager
def _stop_at_boundary() -> Iterator[Callable[[], bool]]:
    """The first Ctrl-C asks for an end at the next round boundary, the second ends at once."""
    asked = threading.Event()
    if threading.current_thread() is not threading.main_thread():
        yield asked.is_set
        return

    def ask(_signal: int, _frame: object) -> None:
        if asked.is_set():
            raise KeyboardInterrupt
        asked.set()

    before = {number: signal.signal(number, ask) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield asked.is_set
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
