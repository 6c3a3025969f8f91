"""Commands that search on validation data: advise and tune."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from fedtailor.cli.interrupts import interruptible
from fedtailor.cli.options import (
    DataDir,
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
    options_of,
)
from fedtailor.cli.settings import settings_from, shared_options, split_list, whole_numbers

if TYPE_CHECKING:
    from fedtailor.runs import Experiment
    from fedtailor.runs.trials import SearchCallback

commands = typer.Typer()


@dataclass(frozen=True)
class Search:
    """The options of both commands."""

    minutes: Annotated[
        float | None, typer.Option(metavar="M", help="Start nothing that would end after this time.")
    ] = None
    sets: Sets = None
    name: Name = None
    seed: Seed = None
    rounds: Rounds = None
    data_dir: DataDir = None
    workers: Workers = None
    engine: EngineKind = None
    out: RunsFolder = Path("runs")
    as_json: Json = False
    quiet: Quiet = False

    def settings(self, source: Path | None) -> "Experiment":
        shared = shared_options(None, self.data_dir, self.workers, self.engine)
        return settings_from(source, {"seed": self.seed, "rounds": self.rounds, **shared}, self.sets)

    def folder(self, default: Path) -> Path:
        return self.out / self.name if self.name else default

    @contextmanager
    def progress(self, folder: Path) -> "Iterator[SearchCallback]":
        """Show the progress, and end with a sentence after Ctrl-C."""
        from fedtailor.views.search_progress import search_progress

        with interruptible(folder, "the same command"), search_progress(quiet=self.quiet) as callback:
            yield callback


@commands.command(epilog="Example: fedtailor advise experiment.toml --methods fedavg,local,fedper --rounds 3")
@options_of(Search)
def advise(
    search: Search,
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
    seeds: Annotated[
        str | None, typer.Option(metavar="N,N,...", help="Seeds of the last trials; other seeds choose. Default: 3.")
    ] = None,
) -> None:
    """Which method for my federation? Short paired trials on validation data rank the methods that fit.

    Test samples are removed first. The answer comes with its uncertainty, its reasons, the cost of every method, and
    settings to run. The same command resumes a search that was stopped, with the same answer.
    """
    settings = search.settings(experiment)
    chosen = whole_numbers("--seeds", split_list(seeds)) or ()
    from fedtailor.runs.advice import advise, default_folder
    from fedtailor.views.advice import show_advice

    folder = search.folder(default_folder(settings, search.out))
    with search.progress(folder) as callback:
        done = advise(
            settings,
            methods=split_list(methods) or (),
            only_sums=only_sums,
            no_peers=no_peers,
            minutes=search.minutes,
            seeds=chosen,
            folder=folder,
            callback=callback,
        )
    show_advice(done, search.as_json)


@commands.command(epilog="Example: fedtailor tune experiment.toml --over training.lr=0.01:0.5:log --trials 9")
@options_of(Search)
def tune(
    search: Search,
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
    methods: Annotated[
        str | None, typer.Option(metavar="A,B,...", help="Tune several methods, each with the same number of trials.")
    ] = None,
    seeds: Annotated[
        str | None, typer.Option(metavar="N,N,...", help="A trial is the mean over these seeds; default: one.")
    ] = None,
) -> None:
    """Search for good settings on validation data, and write them as a TOML file.

    Test samples are removed first. The same command resumes a search that was stopped, and gives the same trials with
    any number of workers; with more --trials it continues. Needs the extra 'bo' (Optuna).
    """
    settings = search.settings(experiment)
    chosen = whole_numbers("--seeds", split_list(seeds)) or ()
    from fedtailor.runs.tuning import default_folder, tune
    from fedtailor.views.tuning import show_tuning

    folder = search.folder(default_folder(settings, search.out))
    with search.progress(folder) as callback:
        done = tune(
            settings,
            over=over or (),
            methods=split_list(methods) or (),
            trials=trials,
            minutes=search.minutes,
            seeds=chosen,
            folder=folder,
            callback=callback,
        )
    show_tuning(done, search.as_json)
