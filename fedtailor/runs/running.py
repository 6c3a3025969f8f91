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
from fedtailor.data.roster import Entry, federation_of
from fedtailor.devices import virtual_clock
from fedtailor.engines import Engine, Job, open_engine, parts, relative
from fedtailor.errors import UserError
from fedtailor.learning.tensors import inputs_of
from fedtailor.methods import (
    AgentMethod,
    Memory,
    Method,
    Moment,
    Policy,
    Rule,
    Server,
    catalogue,
    check_policy,
    find,
    read_policy,
    shape,
    spec,
    start,
)
from fedtailor.models import build as build_network
from fedtailor.models import count_flops
from fedtailor.runs import toml
from fedtailor.runs.callbacks import Callback
from fedtailor.runs.loop import RoundLoop, largest_cohort
from fedtailor.runs.reading import Run
from fedtailor.runs.settings import Evaluation, Experiment, experiment
from fedtailor.runs.store import Store
from fedtailor.version import __version__
from fedtailor.weights import nbytes, select


class Interrupted(Exception):
    """The user ended a run; it is at a round boundary."""

    def __init__(self, folder: Path):
        super().__init__(f"stopped at a round boundary; go on with: fedtailor resume {folder}")
        self.folder = folder


@dataclass
class Resources:
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

    def __enter__(self) -> "Resources":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def run(
    source: "str | Path | Mapping[str, Any] | Experiment | None" = None,
    *,
    folder: str | Path | None = None,
    federation: Federation | None = None,
    callbacks: Callback | None = None,
    resources: Resources | None = None,
    deciders: Mapping[str, Rule] | None = None,
    notes: Mapping[str, Any] | None = None,
) -> Run:
    """Run an experiment from the start in a new folder (``runs/<name>`` unless said otherwise).

    A ``federation`` of the caller's own takes the place of the data settings; ``notes`` are kept with the run.
    """
    settings = experiment(source)
    place = Path(folder) if folder is not None else Path("runs") / settings.name
    with _own(resources, federation) as resources:
        return _begin(place, settings, resources, callbacks or Callback(), deciders, notes)


def pretrain(
    source: "str | Path | Mapping[str, Any] | Experiment",
    *,
    folder: str | Path | None = None,
    federation: Federation | None = None,
    callbacks: Callback | None = None,
    resources: Resources | None = None,
    deciders: Mapping[str, Rule] | None = None,
) -> Run:
    """Train a method's agent on a scenario, for the method's ``policy`` setting in other runs.

    The folder (``policies/<name>`` unless said otherwise) is a run of several episodes, which can be stopped and
    resumed as any other, and at its end holds the policy. Nothing is tested, so test data play no part in it.
    """
    settings = experiment(source)
    if not isinstance(settings.method, AgentMethod):
        able = ", ".join(name for name, kind in catalogue().items() if issubclass(kind, AgentMethod))
        raise UserError(f"{spec(settings.method)} has no agent to pre-train; these have: {able}")
    changes = {"method": settings.method.rehearsal(), "evaluation": Evaluation(every=0, final=False)}
    place = Path(folder) if folder is not None else Path("policies") / settings.name
    with _own(resources, federation) as resources:
        rehearsal = settings.model_copy(update=changes)
        return _begin(
            place, rehearsal, resources, callbacks or Callback(), deciders, {"episodes": settings.pretrain.episodes}
        )


def resume(
    folder: str | Path,
    *,
    federation: Federation | None = None,
    callbacks: Callback | None = None,
    resources: Resources | None = None,
    engine: Mapping[str, Any] | None = None,
    deciders: Mapping[str, Rule] | None = None,
    episodes: int | None = None,
) -> Run:
    """Go on with a run from its last complete round; ``engine`` may say where, which changes no result.

    ``episodes`` lets pre-training go on for longer than it was meant to, as if it had been so from the beginning.
    """
    place = Path(folder)
    with Store(place, write=True) as store:  # refuses a damaged run and one that another process runs
        values, before, devices = store.meta("experiment"), store.meta("federation"), store.meta("devices")
        nodes = store.meta("nodes")
        if episodes is not None:
            _check_longer(place, store, episodes)
            values = {**values, "pretrain": {**values["pretrain"], "episodes": episodes}}
    settings = experiment({**values, "engine": {**values["engine"], **(engine or {})}})
    with _own(resources, federation) as resources:
        if nodes is not None and resources.given is None:
            raise UserError(f"{place} is a federation: go on with the 'fedtailor serve' that began it")
        job = job_of(settings, resources)
        if job.federation.digest() != before:
            raise UserError(f"{place} cannot go on: the data in {settings.data.source!r} are not those it began with")
        if _devices(settings, job) != devices:
            raise UserError(f"{place} cannot go on: the files in [devices] are not those it began with")
        policy = None if _begun(place) else _policy_of(settings, job)
        if episodes is not None:
            with Store(place, write=True) as store, store.transaction():
                for key, value in (("experiment", values), ("episodes", episodes), ("finished", False)):
                    store.set_meta(key, value)
            (place / "experiment.toml").write_text(toml.dumps(values), encoding="utf-8")
        return _go_on(place, settings, job, resources, callbacks or Callback(), deciders, policy)


def personal_model(folder: str | Path, client: int) -> tuple[Experiment, Job, str, dict[str, Any]]:
    """The model a client of a run would deploy: what its final pass gives, computed again, bit for bit.

    Before its weights comes the name of its network in the method's family, nothing for the run's own.
    """
    with Store(Path(folder), write=True) as store, Resources() as resources:
        if store.meta("nodes") is not None:
            raise UserError("the personal models of a federation are with its nodes: model/ in their --state folder")
        settings = experiment({**store.meta("experiment"), "engine": {"kind": "inline"}})
        job = job_of(settings, resources)
        if not 0 <= client < job.federation.clients:
            raise UserError(f"there is no client {client}: this run has clients 0 to {job.federation.clients - 1}")
        resources.engine_for(settings).start(job)
        loop = RoundLoop(settings, job, resources.engine_for(settings), store, Callback())
        model = loop.deployed(client)
        return settings, job, model.config["network"], model["model"]


def server_models(folder: str | Path) -> tuple[Experiment, Job, dict[str, dict[str, Any]]]:
    """The named models on the server of a run."""
    with Store(Path(folder), write=True) as store, Resources() as resources:
        settings = experiment({**store.meta("experiment"), "engine": {"kind": "inline"}})
        if (nodes := store.meta("nodes")) is not None:
            resources.given = federation_of([Entry.read(node) for node in nodes])
        job = job_of(settings, resources)
        loop = RoundLoop(settings, job, resources.engine_for(settings), store, Callback())
        return settings, job, job.method.models(loop.server)


def describe_devices(settings: Experiment, resources: Resources) -> dict[str, Any]:
    """The clients' devices, and what they would take for the experiment's network and method."""
    if settings.devices is None:
        raise UserError("this experiment has no devices: add a table [devices], or --set devices.profiles=uniform")
    job = job_of(settings, resources)
    inputs = inputs_of(job.federation.samples)
    network = build_network(settings.model, inputs, settings.seed)
    shared, _ = parts(job, network)
    flops, traffic = count_flops(network, inputs), nbytes(select(network.weights(), shared))
    clock = virtual_clock(settings.devices, job.federation.train.sizes.tolist(), settings.seed)
    rows = clock.table(flops, traffic, traffic)
    seconds = [row["epoch_seconds"] for row in rows if row["epoch_seconds"]]
    return {
        "model": settings.model.name,
        "flops": flops,
        "bytes_down": traffic,
        "bytes_up": traffic,
        "spread": max(seconds) / min(seconds) if seconds else 1.0,
        "devices": rows,
    }


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


def job_of(settings: Experiment, resources: Resources) -> Job:
    """Everything is checked here, before anything is written."""
    if settings.engine.kind != "inline":
        _importable(settings.method)
    federation = resources.federation(settings)
    for model in (settings.model, *settings.method.family(settings.model).values()):
        build_network(model, inputs_of(federation.samples), settings.seed)
    job = Job(
        settings.method,
        settings.model,
        settings.training,
        settings.seed,
        federation,
        settings.engine.device,
        counts_work=settings.devices is not None,
        measured=settings.engine.kind == "flower" and settings.devices is None,
    )
    _devices(settings, job)
    return job


def _devices(settings: Experiment, job: Job) -> str | None:
    """A digest of the clients' devices, which a file of the user's may describe; None if there are none."""
    if settings.devices is None:
        return None
    return virtual_clock(settings.devices, job.federation.train.sizes.tolist(), job.seed).digest()


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


def _policy_of(settings: Experiment, job: Job) -> Policy | None:
    """The policy that the method is to start with, if it fits."""
    if not isinstance(settings.method, AgentMethod):
        return None
    server = server_of(settings, job)  # also without a policy: settings of agents that do not fit fail here
    if settings.method.policy is None:
        return None
    policy = read_policy(settings.method.policy)
    of = spec(settings.method.rehearses or settings.method)
    check_policy(policy, settings.method.policy, of, shape(settings.method, server))
    return policy


def server_of(settings: Experiment, job: Job) -> Server:
    """The server before the first round."""
    network = build_network(settings.model, inputs_of(job.federation.samples), settings.seed)
    sizes = tuple(int(size) for size in job.federation.train.sizes)
    most = largest_cohort(settings, job.federation.clients)
    memory = Memory(lambda _client: None, set())
    shared, _ = parts(job, network)
    family = {name: relative(job, name, settings.seed) for name in settings.method.family(settings.model)}
    server = Server(
        network,
        sizes,
        settings.training,
        Moment(settings.seed),
        shared,
        memory,
        largest_cohort=most,
        family=family,
    )
    start(settings.method, server)
    return server


def _begin(
    place: Path,
    settings: Experiment,
    resources: Resources,
    callbacks: Callback,
    deciders: Mapping[str, Rule] | None,
    meta: Mapping[str, Any] | None = None,
) -> Run:
    if place.exists():
        raise UserError(f"{place} exists: go on with 'fedtailor resume {place}', or choose another name with --name")
    settings.method.check()
    job = job_of(settings, resources)
    policy = _policy_of(settings, job)
    resources.engine_for(settings)  # one that cannot be had is refused here
    _create(place, settings, job, meta or {})
    return _go_on(place, settings, job, resources, callbacks, deciders, policy)


def _create(place: Path, settings: Experiment, job: Job, more: Mapping[str, Any]) -> None:
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
            "devices": _devices(settings, job),
            **more,
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
    resources: Resources,
    callbacks: Callback,
    deciders: Mapping[str, Rule] | None,
    policy: Policy | None,
) -> Run:
    with Store(place, write=True) as store:
        episodes = store.meta("episodes")
        if (known := store.meta("environment")) != environment():
            callbacks.warning(f"this run began with {_differences(known)}: its last digits may differ from here on")
        engine = resources.engine_for(settings)
        with _stop_at_boundary() as stop:
            engine.start(job)
            loop = RoundLoop(settings, job, engine, store, callbacks, deciders, policy, episodes or 1)
            timeless = settings.method.uses_clock and settings.devices is None and not engine.remote
            for warning in (
                settings.method.inert(),
                settings.method.misfit(settings.training, loop.server.network),
                "there is no table [devices]: all devices are taken to be equal" if timeless else None,
            ):
                if warning:
                    callbacks.warning(f"{settings.method.name}: {warning}")
            done = loop.server.moment.episode * settings.rounds + loop.server.round - 1
            callbacks.begin(settings.name, settings.rounds * (episodes or 1), done)
            try:
                while complete := loop.run(stop):
                    if loop.server.moment.episode + 1 >= (episodes or 1):
                        break
                    loop = RoundLoop(settings, job, engine, store, callbacks, deciders, episodes=episodes)
            finally:
                callbacks.end()
        if not complete:
            raise Interrupted(place)
        if episodes is not None:
            method = settings.method
            assert isinstance(method, AgentMethod)
            learned = {"environment": store.meta("environment"), "experiment": settings.as_dict(), "episodes": episodes}
            agents, parts = loop.server.decisions.policy(), method.learned(loop.server)
            of = spec(method.rehearses or method)
            Policy(of, agents, parts, shape(method, loop.server), learned).write(place)
        with store.transaction():
            store.set_meta("finished", True)
    return Run(place)


def _check_longer(place: Path, store: Store, episodes: int) -> None:
    meant = store.meta("episodes")
    if meant is None:
        raise UserError(f"{place} is not a pre-training: only 'fedtailor pretrain' has episodes")
    if episodes < meant:
        raise UserError(f"{place} has {meant} episodes: it can have more, not {episodes}")


def _begun(place: Path) -> bool:
    with Store(place) as store:
        return bool(store.rows("SELECT 1 FROM rounds LIMIT 1"))


def _differences(known: Mapping[str, Any]) -> str:
    now = environment()
    return ", ".join(f"{key} {value}" for key, value in known.items() if now.get(key) != value)


@contextmanager
def _own(resources: Resources | None, federation: Federation | None) -> Iterator[Resources]:
    """The caller's resources, or one for this run alone."""
    if resources is not None:
        yield resources
        return
    with Resources(federation) as resources:
        yield resources


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
