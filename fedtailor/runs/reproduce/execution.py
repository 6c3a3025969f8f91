"""Runs the missing runs of a reproduction, and keeps a record of every finished run."""

import time
from collections import deque
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean

from fedtailor.errors import UserError
from fedtailor.parties.policy import CARD
from fedtailor.runs.callbacks import Callback
from fedtailor.runs.reading import Run
from fedtailor.runs.reproduce.claims import decide
from fedtailor.runs.reproduce.locks import Locks
from fedtailor.runs.reproduce.plan import Plan, Step, load_deciders, run_folder
from fedtailor.runs.reproduce.records import Record, read_records, record_of, write_record
from fedtailor.runs.reproduce.tables import make_table, steps_of
from fedtailor.runs.resources import Resources
from fedtailor.runs.running import pretrain, resume, run

PAUSE = 1.0  # seconds between two looks at the runs of other processes


class ReproductionCallback(Callback):
    """Observes the steps of a reproduction and their runs. It does nothing; views override what they show."""

    def plan(self, steps: Sequence[Step], seconds: Sequence[float | None]) -> None: ...

    def step_begins(self, step: Step) -> None: ...

    def step_ends(self, step: Step) -> None: ...

    def waits(self, runs: int) -> None:
        """Other processes have taken all the runs that are left."""


@dataclass(frozen=True)
class Todo:
    """The finished and the missing runs of a reproduction, in the order of execution."""

    records: Mapping[str, Record]
    missing: tuple[Step, ...]
    seconds: tuple[float | None, ...]  # estimated seconds of each of `missing`; None if no record helps

    @property
    def estimate(self) -> float | None:
        """Estimated seconds of all missing runs; None if nothing is known."""
        known = [seconds for seconds in self.seconds if seconds is not None]
        return sum(known) if len(known) == len(self.seconds) else None


def todo(plan: Plan, tables: Iterable[str], runs: Path, *, from_records: bool = False) -> Todo:
    """Find the finished and the missing runs of some tables.

    A record is reused if its key (settings, policy, results version) and the digest of its data agree.

    Parameters
    ----------
    plan
        The runs of a recipe.
    tables
        Names of the tables to make.
    runs
        The parent folder of the runs. A policy that exists there is not trained again.
    from_records
        Trust the records without checking the data.
    """
    records = read_records(plan.folder)
    wanted = {step.key: step for name in tables for step in steps_of(plan, name)}
    checked = records if from_records else _with_these_data(wanted.values(), records)
    ordered: dict[str, Step] = {}

    def add(step: Step) -> None:
        """Queue a step after the pre-training that it needs."""
        policy = step.needs
        if policy is not None and not _can_begin(plan, step, runs):
            add(policy)
        ordered[step.key] = step

    for step in wanted.values():
        if not _has_record(step, checked):
            add(step)
    missing = _in_order(ordered.values())
    kept = {key: record for key, record in checked.items() if key not in ordered}
    work = {step.key: step.work for methods in plan.steps.values() for steps in methods.values() for step in steps}
    return Todo(kept, tuple(missing), tuple(_estimate(step, records, work) for step in missing))


def run_missing(plan: Plan, todo: Todo, runs: Path, callbacks: ReproductionCallback | None = None) -> dict[str, Record]:
    """Run the missing runs, and return all records by key.

    Ctrl-C stops at a round boundary (``Interrupted``). The same call resumes from there, also after kill -9.
    Several processes may make the same call with the same folder of runs: each carries out the runs that no other
    process has taken, and waits at the end for those of the others.
    """
    callbacks = callbacks or ReproductionCallback()
    records = dict(todo.records)
    callbacks.plan(todo.missing, todo.seconds)
    if not todo.missing:
        return records
    made = run_folder(runs, plan.folder, todo.missing[0]).parent
    made.mkdir(parents=True, exist_ok=True)
    waiting, postponed = deque(todo.missing), 0
    with Resources() as resources, Locks(made) as locks:
        while waiting:
            step = waiting.popleft()
            if not _can_begin(plan, step, runs) or not locks.take(step):
                waiting.append(step)
                postponed += 1
                if postponed >= len(waiting):
                    callbacks.waits(len(waiting))
                    time.sleep(PAUSE)
                    postponed = 0
                continue
            callbacks.step_begins(step)
            with _finished(plan, step, run_folder(runs, plan.folder, step), callbacks, resources) as done:
                records[step.key] = record_of(step, done)
            write_record(plan.folder, step, records[step.key])
            callbacks.step_ends(step)
            locks.release(step)
            postponed = 0
    return records


def check(plan: Plan, tables: Iterable[str]) -> None:
    """Raise a `UserError` if a table or a claim does not fit the plan, before anything runs."""
    decide(plan, {name: make_table(plan, name, {}) for name in plan.declaration.tables})
    for name in tables:
        if not steps_of(plan, name):
            raise UserError(f"{plan.folder}: the table {name} has no run: its rows name no method of its experiments")


def _can_begin(plan: Plan, step: Step, runs: Path) -> bool:
    """Whether the policy that the run starts with is there; another process may still be training it."""
    return step.needs is None or (run_folder(runs, plan.folder, step.needs) / CARD).is_file()


def _finished(plan: Plan, step: Step, place: Path, callbacks: Callback, resources: Resources) -> Run:
    deciders = load_deciders(plan.folder, step)
    if not place.exists():
        begin = pretrain if step.pretrains else run
        return begin(step.settings, folder=place, callbacks=callbacks, resources=resources, deciders=deciders)
    before = Run(place)
    if before.finished:
        return before
    before.close()
    engine = step.settings.engine.model_dump(exclude_none=True)
    return resume(place, callbacks=callbacks, resources=resources, engine=engine, deciders=deciders)


def _has_record(step: Step, records: Mapping[str, Record]) -> bool:
    """Whether a step is finished with the present policy of its pre-training."""
    if step.key not in records:
        return False
    if step.needs is None or step.needs.key not in records:
        return True
    return records[step.key].policy == records[step.needs.key].policy


def _with_these_data(steps: Iterable[Step], records: Mapping[str, Record]) -> dict[str, Record]:
    """The records whose data match the present data of their settings."""
    kept = dict(records)
    resources = Resources()
    by_data = sorted((s for s in steps if s.key in records), key=lambda s: (s.experiment, s.seed))
    for step in by_data:
        if resources.federation(step.settings).digest() != records[step.key].data:
            del kept[step.key]
    return kept


def _in_order(steps: Iterable[Step]) -> list[Step]:
    """Sort steps: pre-trainings first, then by experiment and seed, so that data are loaded once."""
    steps = list(steps)
    places = {name: place for place, name in enumerate(dict.fromkeys(step.experiment for step in steps))}
    return sorted(steps, key=lambda step: (not step.pretrains, places[step.experiment], step.seed))


def _estimate(step: Step, records: Mapping[str, Record], work: Mapping[str, float]) -> float | None:
    """Estimate seconds from records of the same method and experiment, otherwise from the pace of all records."""
    same = [r.seconds for r in records.values() if (r.experiment, r.method) == (step.experiment, step.method)]
    if same:
        return fmean(same)
    total = sum(work[key] for key in records if key in work)
    return step.work * sum(records[key].seconds for key in records if key in work) / total if total else None
