"""Starts, pre-trains and resumes runs."""

import json
import os
import shutil
import sqlite3
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from fedtailor import imports
from fedtailor.data import Federation
from fedtailor.engines import Job
from fedtailor.errors import UserError
from fedtailor.methods import AgentMethod, Decider, catalogue, spec
from fedtailor.runs import toml
from fedtailor.runs.assembly import assemble, check_data, devices_digest, job_of, with_precision
from fedtailor.runs.callbacks import Callback, Callbacks, one_callback
from fedtailor.runs.completion import completed, devices_note
from fedtailor.runs.deployed import outline
from fedtailor.runs.disk import check_disk, least_bytes
from fedtailor.runs.drafts import new_draft, remove_drafts
from fedtailor.runs.environment import environment
from fedtailor.runs.episodes import Interrupted, run_episodes
from fedtailor.runs.extending import check_extension, check_rounds, extend, write_settings
from fedtailor.runs.fitting import measuring_of
from fedtailor.runs.folders import check_place, fresh_name, is_of_a_run, remove
from fedtailor.runs.ledger import check_layout, check_states
from fedtailor.runs.loop import ClientsFailed
from fedtailor.runs.pace import expected_seconds
from fedtailor.runs.policies import with_policy
from fedtailor.runs.reading import Run
from fedtailor.runs.resources import Resources, again, own_or_given
from fedtailor.runs.sections import Evaluation
from fedtailor.runs.settings import Experiment, experiment, method_dict, of_this_version
from fedtailor.runs.starting import InitialState, initial_state, start_settings, started
from fedtailor.runs.store import Store
from fedtailor.runs.together import together_note
from fedtailor.runs.tracking import check_trackers


def run(
    source: "str | Path | Mapping[str, Any] | Experiment | None" = None,
    *,
    folder: str | Path | None = None,
    federation: Federation | None = None,
    callbacks: Callbacks = None,
    resources: Resources | None = None,
    deciders: Mapping[str, Decider] | None = None,
    start: "str | Path | Mapping[str, Any] | None" = None,
    notes: Mapping[str, Any] | None = None,
    overwrite: bool = False,
) -> Run:
    """Run an experiment in a new folder.

    Parameters
    ----------
    source : str, Path, mapping, Experiment or None, optional
        The experiment: a TOML file, its settings, or an `Experiment`; None for the default settings or, with the run
        in ``start``, for those of that run.
    folder : str or Path, optional
        The folder of the run, which must not exist. By default ``runs/<name>`` or, if that exists, the first of
        ``runs/<name>-2``, ``runs/<name>-3``, ...
    federation : Federation, optional
        The clients' data, instead of those that the data settings describe.
    callbacks : Callback or sequence of Callback, optional
        They observe the run. An exception in one of them ends the run at its last complete round.
    resources : Resources, optional
        Loaded data and running workers, to share between runs. They stay open.
    deciders : mapping of str to callable, optional
        By the name of a decision: a function of the server and the question that replaces the method's agent.
    start : str, Path or mapping, optional
        The run or file of weights to start from, or the table ``start`` of the settings, as in
        ``{"path": "runs/first", "round": "best"}``. If method, model and clients are the same as in that run, all
        states are carried over and its rounds continue; otherwise the weights are the initial model.
    notes : mapping, optional
        Values to store with the run.
    overwrite : bool, optional
        Replace a run in the folder, if it is not running.

    Returns
    -------
    Run
        The finished run, open for reading.

    Raises
    ------
    UserError
        If a setting is wrong, or something is missing. Nothing is written then.
    Interrupted
        If the user ends the run with Ctrl-C. `resume` continues it.

    Examples
    --------
    >>> run = fedtailor.run({"method": {"name": "fedper"}, "rounds": 2}, folder="runs/first")
    >>> run.summary().final.accuracy > 0.5
    True
    >>> run.close()
    """
    if start is not None:
        table = {"path": str(start)} if isinstance(start, str | Path) else dict(start)
        same = start_settings(str(table.get("path", ""))) if source is None else None
        source = experiment(source if same is None else same, {"start": table})
    settings, place = _named(experiment(source), folder, Path("runs"), overwrite)
    with own_or_given(resources, federation) as resources:
        return _begin(place, settings, resources, one_callback(callbacks), deciders, notes or {}, overwrite)


def pretrain(
    source: "str | Path | Mapping[str, Any] | Experiment",
    *,
    folder: str | Path | None = None,
    federation: Federation | None = None,
    callbacks: Callbacks = None,
    resources: Resources | None = None,
    deciders: Mapping[str, Decider] | None = None,
    overwrite: bool = False,
) -> Run:
    """Train a method's agent, for the method's ``policy`` setting in other runs.

    The result is a run of ``pretrain.episodes`` episodes whose folder holds the policy at the end. It can be stopped
    and resumed like any other run. Nothing is evaluated, so no test data are used.

    Parameters
    ----------
    source : str, Path, mapping or Experiment
        The experiment that the agent learns in, with a method that has an agent.
    folder : str or Path, optional
        The folder of the run, which must not exist; by default ``policies/<name>`` or a fresh name, as in `run`.
    federation, callbacks, resources, deciders, overwrite
        As in `run`.

    Returns
    -------
    Run
        The finished run, open for reading.

    Examples
    --------
    >>> few = {"rounds": 2, "data": {"samples": 300}}
    >>> scenario = {**few, "method": {"name": "bwa"}, "pretrain": {"episodes": 3}}
    >>> fedtailor.pretrain(scenario, folder="policies/bwa").close()
    >>> fedtailor.run({**few, "method": {"name": "bwa", "policy": "policies/bwa"}}, folder="runs/bwa").close()
    """
    settings = experiment(source)
    if not isinstance(settings.method, AgentMethod):
        able = ", ".join(name for name, kind in catalogue().items() if issubclass(kind, AgentMethod))
        raise UserError(f"{spec(settings.method)} has no agent to pre-train; these have: {able}")
    if settings.start is not None:
        raise UserError("start: an agent is pre-trained in federations from their start; remove the table [start]")
    changes: dict[str, Any] = {"method": settings.method.rehearsal(), "evaluation": Evaluation(every=0, final=False)}
    changes |= {"stopping": None, "checkpoints": None}  # as nothing is evaluated
    settings, place = _named(settings, folder, Path("policies"), overwrite)
    notes = {"episodes": settings.pretrain.episodes}
    with own_or_given(resources, federation) as resources:
        rehearsal = settings.model_copy(update=changes)
        return _begin(place, rehearsal, resources, one_callback(callbacks), deciders, notes, overwrite)


@imports.foreign()
def resume(
    folder: str | Path,
    *,
    federation: Federation | None = None,
    callbacks: Callbacks = None,
    resources: Resources | None = None,
    engine: Mapping[str, Any] | None = None,
    deciders: Mapping[str, Decider] | None = None,
    episodes: int | None = None,
    rounds: int | None = None,
    track: Sequence[str] | None = None,
) -> Run:
    """Resume a run from its last complete round. The result is the same as without the interruption.

    Parameters
    ----------
    folder : str or Path
        The folder of the run.
    federation, callbacks, resources, deciders
        As in `run`. A run that began with the caller's ``federation`` needs it again.
    engine : mapping, optional
        Settings of the engine that differ from those of the run. They change no result.
    episodes : int, optional
        For pre-training: the total number of episodes to train to, at least as many as before.
    rounds : int, optional
        The total number of rounds to train to, at least as many as before. The result is the same as if the run had
        begun with it; refused where the method, the schedule or an agent depends on the number.
    track : sequence of str, optional
        Trackers, instead of those that the run began with. They change no result.

    Returns
    -------
    Run
        The finished run, open for reading.

    Examples
    --------
    >>> with fedtailor.resume("runs/first", engine={"workers": 4}) as run:
    ...     run.finished
    True
    """
    place = Path(folder)
    with Store(place, write=True) as store:  # raises if the run is damaged, or if another process runs it
        values, before, devices = store.meta("experiment"), store.meta("federation"), store.meta("devices")
        nodes = store.meta("nodes")
        check_states(store)
        if episodes is not None:
            _check_longer(place, store, episodes)
            values = {**values, "pretrain": {**values["pretrain"], "episodes": episodes}}
        if rounds is not None:
            check_rounds(place, store, rounds)
            rounds = None if rounds == values["rounds"] else rounds
            values = values if rounds is None else {**values, "rounds": rounds}
    chosen = {} if track is None else {"track": list(track)}
    values = of_this_version(values)
    settings = experiment({**values, **chosen, "engine": {**values["engine"], **(engine or {})}})
    check_trackers(settings.track)
    with own_or_given(resources, federation) as resources:
        if nodes is not None and resources.given is None:
            raise UserError(f"{place} is a federation: resume it with the 'fedtailor serve' that began it")
        resources.engine_for(settings).warm()
        job = job_of(again(settings, resources.given, f"{place} cannot resume"), resources)
        check_data(settings, job.federation, before, f"{place} cannot resume")
        with Store(place) as store:
            job = started(job, store)
        if devices_digest(settings, job) != devices:
            raise UserError(f"{place} cannot resume: the files in [devices] are not those it began with")
        if rounds is not None:
            check_extension(place, settings, job)
            with Store(place, write=True) as store:
                check_layout(store, settings.method)
                extend(place, store, values)
        policy = None
        if not _begun(place):
            begins = with_policy(settings, job, bool(deciders))
            settings, job, policy = begins.settings, begins.job, begins.policy
        if episodes is not None:
            with Store(place, write=True) as store, store.transaction():
                for key, value in (("experiment", values), ("episodes", episodes), ("finished", False)):
                    store.set_meta(key, value)
        with Store(place) as store:  # also after a process that was killed when it had stored other settings
            write_settings(place, store)
        return run_episodes(place, settings, job, resources, one_callback(callbacks), deciders, policy)


def _named(settings: Experiment, folder: str | Path | None, parent: Path, overwrite: bool) -> tuple[Experiment, Path]:
    """The folder of a run, and the settings with its name: a fresh one if the caller names no folder."""
    if folder is not None:
        return settings, Path(folder)
    name = settings.name if overwrite else fresh_name(parent, settings.name)
    return settings.model_copy(update={"name": name}), parent / name


def _begin(
    place: Path,
    settings: Experiment,
    resources: Resources,
    callbacks: Callback,
    deciders: Mapping[str, Decider] | None,
    notes: Mapping[str, Any],
    overwrite: bool = False,
) -> Run:
    check_place(place, overwrite)
    settings.method.check()
    check_trackers(settings.track)
    imports.remember(spec(settings.method))  # a class that the caller passed has not been imported by its name
    engine = resources.engine_for(settings)  # fails here if the engine is unavailable
    engine.warm()  # workers start while the data are read
    settings = with_precision(settings)  # recorded, so that a run that is resumed elsewhere keeps it
    asked, without = settings.method, settings.devices is None
    settings = completed(settings, resources.federation(settings), engine.remote)
    job = job_of(settings, resources)
    together = together_note(settings, job)
    settings = resources.resolved(settings).model_copy(update={"training": job.training})
    begins = with_policy(settings, job, bool(deciders))
    settings, job, policy = begins.settings, begins.job, begins.policy
    said = [devices_note(settings) if without else None, together, begins.note]
    notes = {**notes, "asked": method_dict(asked), "begins": [sentence for sentence in said if sentence]}
    with initial_state(settings, job) as begun:
        if begun is not None:
            settings, job = begun.applied(settings, job)
        made = assemble(settings, job)
        needed = least_bytes(made, engine.remote) + (begun.nbytes if begun else 0)
        check_disk(place, needed)
        ahead = settings.model_copy(update={"rounds": settings.rounds - (begun.facts["after"] if begun else 0)})
        timed = replace(made, experiment=ahead)  # the data of nodes are not here
        callbacks.expects(needed, None if engine.remote else expected_seconds(timed, notes.get("episodes", 1)))
        _check_not_the_start(place, begun)
        remove(place)
        _create(place, settings, job, notes, begun)
    try:
        return run_episodes(place, settings, job, resources, callbacks, deciders, policy)
    except Exception as error:
        fault = isinstance(error, ClientsFailed) or not isinstance(error, UserError | Interrupted)
        if fault and not _begun(place):
            remove(place)  # an error in the method's code before the first round is complete: nothing to resume
        raise


def _check_not_the_start(place: Path, begun: InitialState | None) -> None:
    """Raise a `UserError` if a run would replace the run that it starts from."""
    if begun is not None and place.exists() and place.samefile(Path(begun.facts["path"]).expanduser()):
        raise UserError(f"{place} cannot be replaced by a run that starts from it: name another with --name")


def _create(
    place: Path, settings: Experiment, job: Job, notes: Mapping[str, Any], begun: InitialState | None = None
) -> None:
    """Create the run's folder atomically: it is complete or does not exist.

    Only this account can open it, because states and models are made from clients' data.
    """
    try:
        place.parent.mkdir(parents=True, exist_ok=True)
        remove_drafts(place, is_of_a_run)
        draft, lock = new_draft(place, 0o700)
    except OSError as error:
        raise UserError(f"{place} cannot be made: {error.strerror}") from None
    try:
        (draft / "experiment.toml").write_text(toml.dumps(settings.as_dict()), encoding="utf-8")
        (draft / "environment.json").write_text(json.dumps(environment(), indent=2) + "\n", encoding="utf-8")
        if (prepared := job.federation.samples.preprocessing) is not None:
            (draft / "preprocessing.json").write_text(json.dumps(prepared.as_dict()) + "\n", encoding="utf-8")
        meta = {
            "experiment": settings.as_dict(),
            "environment": environment(),
            "federation": job.federation.digest(),
            "clients": job.federation.clients,
            "sizes": job.federation.train.sizes[: job.federation.clients].tolist(),
            "new": job.federation.new,
            "samples": outline(job.federation),
            "measuring": measuring_of(settings, job.federation).as_dict(),
            "devices": devices_digest(settings, job),
            "layout": settings.method.layout,
            **notes,
        }
        Store.create(draft, meta, _named_clients(job.federation))
        if begun is not None:
            with Store(draft, write=True) as store:
                begun.write(store)
        os.rename(draft, place)
    except UserError as error:  # such as a full disk, about which the advice is that of a run
        shutil.rmtree(draft, ignore_errors=True)
        raise UserError(f"{place} cannot be made: {str(error).partition(':')[0]}") from None
    except (OSError, sqlite3.Error) as error:
        shutil.rmtree(draft, ignore_errors=True)
        raise UserError(f"{place} cannot be made: {getattr(error, 'strerror', None) or error}") from None
    finally:
        if lock is not None:
            os.close(lock)


def _named_clients(federation: Federation) -> Iterator[dict[str, Any]]:
    """A row for every client that has a name of its own."""
    for client, name in enumerate(federation.labels):
        sizes = {part: int(getattr(federation, part).sizes[client]) for part in ("train", "val", "test")}
        yield {"client": client, "name": name, **sizes}


def _check_longer(place: Path, store: Store, episodes: int) -> None:
    before = store.meta("episodes")
    if before is None:
        raise UserError(f"{place} is not a pre-training: only 'fedtailor pretrain' has episodes")
    if episodes < before:
        raise UserError(f"{place} has {before} episodes: it can have more, not {episodes}")


def _begun(place: Path) -> bool:
    with Store(place) as store:
        return bool(store.rows("SELECT 1 FROM rounds LIMIT 1"))
