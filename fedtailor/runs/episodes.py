"""Runs the episodes of a run, from its last stored round to the end or to a round boundary."""

import signal
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from dataclasses import asdict, replace
from functools import partial
from pathlib import Path

from fedtailor.data.federation import dealt_anew
from fedtailor.engines import Job
from fedtailor.learning.precision import native_bf16
from fedtailor.methods import AgentMethod, Decider, Policy, Server, shape, spec
from fedtailor.runs.accounting import client_promise, record_promise
from fedtailor.runs.callbacks import Callback, CallbackList
from fedtailor.runs.disk import DiskCheck
from fedtailor.runs.environment import differences
from fedtailor.runs.ledger import warn
from fedtailor.runs.loop import RoundLoop
from fedtailor.runs.measures import population
from fedtailor.runs.policies import needed_settings
from fedtailor.runs.promises import Promise
from fedtailor.runs.reading import Run
from fedtailor.runs.resources import Resources
from fedtailor.runs.settings import Experiment
from fedtailor.runs.store import Store
from fedtailor.runs.tracking import following


class Interrupted(Exception):
    """The user stopped a run. It is at a round boundary."""

    def __init__(self, folder: Path):
        super().__init__(f"stopped at a round boundary; resume with: fedtailor resume {folder}")
        self.folder = folder


def run_episodes(
    folder: Path,
    settings: Experiment,
    job: Job,
    resources: Resources,
    callbacks: Callback,
    deciders: Mapping[str, Decider] | None,
    policy: Policy | None,
) -> Run:
    """Run the remaining rounds; raise `Interrupted` if the user stops the run. Pre-training writes its policy."""
    with Store(folder, write=True) as store, _tracked(folder, settings, store, callbacks) as tracking:
        pretrained = store.meta("episodes")  # None unless the run is a pre-training
        episodes: int = pretrained or 1
        if changed := differences(store.meta("environment")):
            warn(store, callbacks, f"this run began with {changed}: its last digits may differ from here on")
        engine = resources.engine_for(settings)
        disk = [] if engine.remote else [DiskCheck(store, job.federation.clients, callbacks)]
        callbacks = CallbackList([callbacks, *disk, tracking])
        with _stop_at_boundary() as stop:
            engine.stop = stop
            engine.start(job)
            loop = RoundLoop(settings, job, engine, store, callbacks, deciders, policy, episodes)
            said = (*((store.meta("start") or {}).get("remarks", ())), *(store.meta("begins") or ()))
            for sentence in (*said, *_caveats(settings, job, loop, engine.remote)):
                warn(store, callbacks, sentence)
            done = loop.server.moment.episode * settings.rounds + loop.server.round - 1
            callbacks.begin(settings.name, settings.rounds * episodes, done)
            try:
                while complete := loop.run(stop):
                    if loop.server.moment.episode + 1 >= episodes:
                        break
                    loop = RoundLoop(settings, job, engine, store, callbacks, deciders, episodes=episodes)
            finally:
                callbacks.end()
        if not complete:
            raise Interrupted(folder)
        if pretrained is not None:
            _write_policy(folder, settings, job, store, loop.server)
        promises = _promises(settings, job, store)
        for promise in promises:
            warn(store, callbacks, promise.sentence)
        with store.transaction():
            store.set_meta("privacy", [asdict(promise) for promise in promises])
            store.set_meta("finished", True)
    return Run(folder)


def _write_policy(folder: Path, settings: Experiment, job: Job, store: Store, server: Server) -> None:
    """Write what a pre-training has learned, with the scenario in which it did."""
    method = settings.method
    assert isinstance(method, AgentMethod)
    scenario = {
        "environment": store.meta("environment"),
        "experiment": settings.as_dict(),
        "episodes": store.meta("episodes"),
    }
    of, agents, parts = spec(method.rehearses or method), server.decisions.policy(), method.learned(server)
    needed = needed_settings(settings, job)
    Policy(of, agents, parts, shape(method, server), scenario, needed).write(folder)


def _tracked(folder: Path, settings: Experiment, store: Store, callbacks: Callback) -> AbstractContextManager[Callback]:
    """The callback that keeps the copies of the run in trackers up to date."""
    return following(folder, settings.track, callbacks.warning, partial(warn, store, callbacks))


def _promises(settings: Experiment, job: Job, store: Store) -> list[Promise]:
    """The differential privacy of a complete run; a round counts as often as it was begun with other noise."""
    rounds = max(settings.rounds, store.meta("private_rounds") or 0)
    steps: dict[int, list[int]] = {}
    if settings.training.dp_sgd is not None:
        for row in store.read("tasks"):
            steps.setdefault(row["client"], []).append(row["steps"])
    records = record_promise(settings, steps, job.federation.train.sizes[: job.federation.clients].tolist(), rounds)
    promises = [promise for promise in (client_promise(settings, rounds), records) if promise is not None]
    if settings.start is None:
        return promises
    learned = f"what the start, {settings.start.path}, learned from its data"
    return [replace(promise, not_covered=(*promise.not_covered, learned)) for promise in promises]


def _caveats(settings: Experiment, job: Job, loop: RoundLoop, remote: bool) -> Iterator[str]:
    """A sentence for every setting that makes the method inert or breaks one of its assumptions."""
    method = settings.method
    timeless = method.uses_clock and settings.devices is None and not remote
    rule = settings.aggregation.rule
    idle = rule != "mean" and not method.averages
    numbers = not loop.made.job.federation.samples.classes
    for doubt in (
        method.inert(),
        method.misfit(settings.training, loop.server.network),
        "there is no table [devices]: all devices are taken to be equal" if timeless else None,
        f"it averages no replies, so aggregation.rule = {rule!r} does nothing; clip and gate protect it"
        if idle
        else None,
        "it rewards or weights by accuracy, which is 0 in a regression" if method.uses_accuracy and numbers else None,
    ):
        if doubt:
            yield f"{method.name or spec(method)}: {doubt}"
    if method.needs_validation and not job.federation.val.sizes.any():
        yield (
            f"{method.name or spec(method)}: it needs validation samples and the federation has none: give some, as in "
            f"Federation.from_clients(..., validation=True)"
        )
    tested, clients = loop.made.tested, loop.made.clients
    if population(settings.evaluation.clients, clients):
        yield f"the results are over {len(tested):,} of {clients:,} clients, which the seed drew (evaluation.clients)"
    if doubt := dealt_anew(settings.data, job.federation.samples):
        yield doubt
    if settings.training.precision == "bf16" and not remote and not native_bf16(job.device):
        yield "training.precision = 'bf16': it is slow on this machine, and may give other last digits"
    if settings.engine.device == "auto" and job.device == "cpu" and not remote:
        ray = settings.engine.kind == "ray"
        why = "workers of a Ray cluster train on its CPUs" if ray else "torch finds no GPU here, so the CPU trains"
        yield f"engine.device = 'auto': {why}"


@contextmanager
def _stop_at_boundary() -> Iterator[Callable[[], bool]]:
    """The first Ctrl-C stops at the next round boundary, the second one at once."""
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
