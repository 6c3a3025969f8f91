"""Commands that train: run, resume, pretrain."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from fedtailor.cli.comparing import compare_in, is_comparison
from fedtailor.cli.interrupts import interruptible
from fedtailor.cli.options import (
    DataDir,
    EngineKind,
    ExperimentFile,
    Json,
    Name,
    Overwrite,
    Quiet,
    Rounds,
    RunFolder,
    RunsFolder,
    Seed,
    Sets,
    Track,
    Workers,
)
from fedtailor.cli.settings import settings_from, shared_options, split_list
from fedtailor.errors import UserError

if TYPE_CHECKING:
    from fedtailor.runs import Experiment

commands = typer.Typer()


@commands.command(
    epilog="Example: fedtailor run experiment.toml --set training.lr=0.1 --name try-2, then: "
    "fedtailor run --from runs/try-2 --method fedper --name warm"
)
def run(
    experiment: ExperimentFile = None,
    sets: Sets = None,
    name: Name = None,
    method: Annotated[str | None, typer.Option(help="The method; see 'fedtailor methods'.")] = None,
    seed: Seed = None,
    rounds: Rounds = None,
    data_dir: DataDir = None,
    workers: Workers = None,
    engine: EngineKind = None,
    track: Track = None,
    begin: Annotated[
        Path | None,
        typer.Option(
            "--from", metavar="RUN|FILE", help="Start from a run's state, or from weights (.safetensors, .pt)."
        ),
    ] = None,
    at: Annotated[
        str | None, typer.Option(metavar="ROUND", help="With --from: last, best, or a round that the run kept.")
    ] = None,
    out: RunsFolder = Path("runs"),
    overwrite: Overwrite = False,
    as_json: Json = False,
    quiet: Quiet = False,
) -> None:
    """Run an experiment in a new folder.

    'fedtailor new' writes an EXPERIMENT.toml. Without one, FedAvg trains 20 clients on digits, and --from RUN uses
    the settings of RUN.
    """
    settings = settings_from(
        experiment if experiment is not None or begin is None else _settings_of(begin),
        {
            "start": _start(begin, at),
            "method": {"name": method} if method is not None else None,
            "seed": seed,
            "rounds": rounds,
            **shared_options(name, data_dir, workers, engine, track),
        },
        sets,
    )
    from fedtailor import runs
    from fedtailor.runs.tracking import add_files
    from fedtailor.views.progress import progress

    settings = _fresh(settings, out, overwrite or name is not None)
    folder = out / settings.name
    with interruptible(folder), progress(quiet=quiet) as callbacks:
        done = runs.run(settings, folder=folder, callbacks=callbacks, overwrite=overwrite)
    from fedtailor.views.results import show_run  # not before the first round

    show_run(done, as_json)
    add_files(folder, settings.track)


@commands.command(epilog="Example: fedtailor resume runs/experiment --rounds 3")
def resume(
    run: RunFolder,
    episodes: Annotated[
        int | None, typer.Option(min=1, help="Total number of episodes to train to; for a pre-training.")
    ] = None,
    rounds: Annotated[
        int | None, typer.Option(min=1, help="Total number of rounds to train to, as if the run had begun with it.")
    ] = None,
    workers: Workers = None,
    engine: EngineKind = None,
    track: Track = None,
    as_json: Json = False,
    quiet: Quiet = False,
) -> None:
    """Resume a run or a comparison from its last complete round, or give a run more rounds."""
    from fedtailor import runs
    from fedtailor.runs.folders import PLAN
    from fedtailor.runs.tracking import add_files
    from fedtailor.views.progress import progress
    from fedtailor.views.results import show_policy, show_run

    if is_comparison(run):
        if episodes is not None:
            raise UserError(f"{run} is a comparison: only a pre-training has episodes")
        if rounds is not None:
            raise UserError(f"{run} is a comparison: only a single run can get more rounds")
        settings = settings_from(run / PLAN, shared_options(workers=workers, engine=engine, track=track))
        compare_in(run, settings, as_json, quiet)
        return
    given = {"kind": engine, "workers": workers}
    changed = {key: value for key, value in given.items() if value is not None}
    with interruptible(run), progress(quiet=quiet) as callbacks:
        trackers = split_list(track)
        done = runs.resume(run, callbacks=callbacks, engine=changed, episodes=episodes, rounds=rounds, track=trackers)
    used = done.experiment.track if track is None else split_list(track)
    show_policy(done, as_json) if done.pretrains else show_run(done, as_json)
    add_files(run, used or ())


@commands.command(epilog="Example: fedtailor pretrain bwa experiment.toml --episodes 3")
def pretrain(
    method: Annotated[str, typer.Argument(metavar="METHOD", help="A method with an agent.")],
    scenario: Annotated[
        Path | None,
        typer.Argument(metavar="SCENARIO.toml", help="The experiment to train the agent on; default: digits."),
    ] = None,
    sets: Sets = None,
    name: Name = None,
    episodes: Annotated[int | None, typer.Option(help="Number of episodes; each is a whole federation.")] = None,
    seed: Seed = None,
    rounds: Rounds = None,
    data_dir: DataDir = None,
    workers: Workers = None,
    engine: EngineKind = None,
    track: Track = None,
    out: Annotated[Path, typer.Option(help="Parent of the policy's folder.")] = Path("policies"),
    overwrite: Overwrite = False,
    as_json: Json = False,
    quiet: Quiet = False,
) -> None:
    """Train a method's agent on a scenario, and store its policy for other runs.

    The command uses the scenario's method settings if the scenario is about the same method. Ctrl-C stops at a
    round boundary; 'fedtailor resume' continues.
    """
    from fedtailor.methods import spec

    same_method = spec(settings_from(scenario).method) == method
    settings = settings_from(
        scenario,
        {
            "method": None if same_method else {"name": method},
            "seed": seed,
            "rounds": rounds,
            "pretrain.episodes": episodes,
            **shared_options(name, data_dir, workers, engine, track),
        },
        sets,
    )
    from fedtailor import runs
    from fedtailor.runs.tracking import add_files
    from fedtailor.views.progress import progress
    from fedtailor.views.results import show_policy

    settings = _fresh(settings, out, overwrite or name is not None)
    folder = out / settings.name
    with interruptible(folder), progress(quiet=quiet) as callbacks:
        done = runs.pretrain(settings, folder=folder, callbacks=callbacks, overwrite=overwrite)
    show_policy(done, as_json, scenario)
    add_files(folder, settings.track)


def _settings_of(begin: Path) -> "Experiment | None":
    """The settings of the run to start from; None for a file."""
    from fedtailor.runs.starting import start_settings

    return start_settings(begin)


def _start(begin: Path | None, at: str | None) -> dict[str, str | int] | None:
    """The table start of the settings."""
    if begin is None:
        if at is not None:
            raise typer.BadParameter("it belongs to --from RUN.", param_hint="--at")
        return None
    if at is None:
        return {"path": str(begin)}
    if at not in ("last", "best") and not (at.isascii() and at.isdecimal()):
        raise typer.BadParameter("write last, best or the number of a round.", param_hint="--at")
    return {"path": str(begin), "round": at if at in ("last", "best") else int(at)}


def _fresh(settings: "Experiment", out: Path, chosen: bool) -> "Experiment":
    """Give the run a name that has no folder yet, unless the user chose its name."""
    from fedtailor.runs.folders import fresh_name
    from fedtailor.views.console import messages

    name = settings.name if chosen else fresh_name(out, settings.name)
    if name != settings.name:
        messages().print(f"{out / settings.name} exists; this run is {out / name}")
    return settings.model_copy(update={"name": name})
