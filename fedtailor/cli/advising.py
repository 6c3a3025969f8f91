"""Commands that search on validation data: advise and tune."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from fedtailor.cli.interrupts import interruptible
from fedtailor.cli.options import (
    DataDir,
    Engine,
    EngineKind,
    ExperimentFile,
    Json,
    Name,
    Quiet,
    Rounds,
    RunsFolder,
    Seed,
    Sets,
    Workers,
)
from fedtailor.cli.settings import settings_from, shared_options, split_list, whole_numbers

if TYPE_CHECKING:
    from fedtailor.runs import Experiment

commands = typer.Typer()

Minutes = Annotated[float | None, typer.Option(metavar="M", help="Start nothing that would end after this time.")]


@commands.command(epilog="Example: fedtailor advise experiment.toml --methods fedavg,local,fedper --rounds 3")
def advise(
    experiment: ExperimentFile = None,
    methods: Annotated[
        str | None, typer.Option(metavar="A,B,...", help="The candidates; default: all methods that fit.")
    ] = None,
    only_sums: Annotated[
        bool, typer.Option("--only-sums", help="Leave out methods that secure aggregation does not fit.")
    ] = False,
    no_peers: Annotated[
        bool, typer.Option("--no-peers", help="Leave out methods that show clients the models of other clients.")
    ] = False,
    minutes: Minutes = None,
    seeds: Annotated[
        str | None, typer.Option(metavar="N,N,...", help="Seeds of the last trials; as many others choose. Default: 3.")
    ] = None,
    sets: Sets = None,
    name: Name = None,
    seed: Seed = None,
    rounds: Rounds = None,
    data_dir: DataDir = None,
    workers: Workers = None,
    engine: EngineKind = None,
    out: RunsFolder = Path("runs"),
    as_json: Json = False,
    quiet: Quiet = False,
) -> None:
    """Which method for my federation? Short paired trials on validation data rank the methods that fit.

    Test samples are removed first. The answer comes with its uncertainty, its reasons, the cost of every method, and
    settings to run. The same command resumes a search that was stopped, with the same answer.
    """
    settings = _settings(experiment, seed, rounds, data_dir, workers, engine, sets)
    chosen = whole_numbers("--seeds", split_list(seeds)) or ()
    from fedtailor.runs.advice import advise, default_folder
    from fedtailor.views.advice import show_advice
    from fedtailor.views.search_progress import search_progress

    folder = out / name if name else default_folder(settings, out)
    with interruptible(folder, "the same command"), search_progress(quiet=quiet) as watcher:
        done = advise(
            settings,
            methods=split_list(methods) or (),
            only_sums=only_sums,
            no_peers=no_peers,
            minutes=minutes,
            seeds=chosen,
            folder=folder,
            watcher=watcher,
        )
    show_advice(done, as_json)


@commands.command(epilog="Example: fedtailor tune experiment.toml --over training.lr=0.01:0.5:log --trials 9")
def tune(
    experiment: ExperimentFile = None,
    over: Annotated[
        list[str] | None,
        typer.Option(
            metavar="KEY[=RANGE]",
            help="A setting to search, with a range (method.mu=0.001:1:log) or choices (training.batch_size=10,32), or "
            "in the range that its limits suggest; may be repeated. Default: the learning rate and the method's own.",
        ),
    ] = None,
    trials: Annotated[int, typer.Option(help="Number of trials of each method.")] = 25,
    minutes: Minutes = None,
    methods: Annotated[
        str | None, typer.Option(metavar="A,B,...", help="Tune several methods, each with the same number of trials.")
    ] = None,
    seeds: Annotated[
        str | None, typer.Option(metavar="N,N,...", help="A trial is the mean over these seeds; default: one.")
    ] = None,
    sets: Sets = None,
    name: Name = None,
    seed: Seed = None,
    rounds: Rounds = None,
    data_dir: DataDir = None,
    workers: Workers = None,
    engine: EngineKind = None,
    out: RunsFolder = Path("runs"),
    as_json: Json = False,
    quiet: Quiet = False,
) -> None:
    """Search for good settings on validation data, and write them as a TOML file.

    Test samples are removed first. The same command resumes a search that was stopped, and gives the same trials with
    any number of workers; with more --trials it continues. Needs the extra 'bo' (Optuna).
    """
    settings = _settings(experiment, seed, rounds, data_dir, workers, engine, sets)
    chosen = whole_numbers("--seeds", split_list(seeds)) or ()
    from fedtailor.runs.tuning import default_folder, tune
    from fedtailor.views.search_progress import search_progress
    from fedtailor.views.tuning import show_tuning

    folder = out / name if name else default_folder(settings, out)
    with interruptible(folder, "the same command"), search_progress(quiet=quiet) as watcher:
        done = tune(
            settings,
            over=over or (),
            methods=split_list(methods) or (),
            trials=trials,
            minutes=minutes,
            seeds=chosen,
            folder=folder,
            watcher=watcher,
        )
    show_tuning(done, as_json)


def _settings(
    source: Path | None,
    seed: int | None,
    rounds: int | None,
    data_dir: Path | None,
    workers: int | None,
    engine: Engine | None,
    sets: list[str] | None,
) -> "Experiment":
    """The experiment of a search, with the options that all searches share."""
    options = {"seed": seed, "rounds": rounds, **shared_options(None, data_dir, workers, engine)}
    return settings_from(source, options, sets)
