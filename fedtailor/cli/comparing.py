"""The command about several methods: compare."""

import json
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from fedtailor.cli.interrupts import interruptible
from fedtailor.cli.options import (
    DataDir,
    EngineKind,
    ExperimentFile,
    HeadlineModel,
    Json,
    Name,
    Quiet,
    Rounds,
    RunsFolder,
    Sets,
    Track,
    Workers,
)
from fedtailor.cli.settings import parse_set, settings_from, shared_options, split_list, whole_numbers
from fedtailor.errors import UserError

if TYPE_CHECKING:
    from fedtailor.runs import Experiment

commands = typer.Typer()


@commands.command(epilog="Example: fedtailor compare experiment.toml --methods local,fedavg,fedper --seeds 0,1,2")
def compare(
    experiment: ExperimentFile = None,
    methods: Annotated[
        str | None, typer.Option(metavar="A,B,...", help="Methods, or labels of the file, separated by commas.")
    ] = None,
    seeds: Annotated[str | None, typer.Option(metavar="N,N,...", help="Seeds, separated by commas.")] = None,
    sets: Sets = None,
    name: Name = None,
    rounds: Rounds = None,
    model: Annotated[HeadlineModel | None, typer.Option(help="The model of the headline.")] = None,
    baseline: Annotated[
        str | None, typer.Option(metavar="A", help="The method that the others are compared with; default: the first.")
    ] = None,
    pooled: Annotated[bool, typer.Option("--pooled", help="Average over samples, not over clients.")] = False,
    data_dir: DataDir = None,
    workers: Workers = None,
    engine: EngineKind = None,
    track: Track = None,
    out: RunsFolder = Path("runs"),
    as_json: Json = False,
    quiet: Quiet = False,
) -> None:
    """Run every method with every seed and make a table.

    EXPERIMENT.toml may name the methods and seeds. The same command resumes a comparison that was stopped.
    """
    _check_method_settings(experiment, split_list(methods), sets or ())
    settings = settings_from(
        experiment,
        {
            "rounds": rounds,
            "compare.methods": split_list(methods),
            "compare.seeds": whole_numbers("--seeds", split_list(seeds)),
            "compare.model": model,
            "compare.baseline": baseline,
            "compare.pooled": pooled or None,
            **shared_options(name, data_dir, workers, engine, track),
        },
        sets,
    )
    settings = _resolve_labels(settings, experiment)
    from fedtailor.runs.comparing import default_folder

    compare_in(out / settings.name if name else default_folder(settings, out), settings, as_json, quiet)


def compare_in(folder: Path, settings: "Experiment", as_json: bool, quiet: bool) -> None:
    """Make the missing runs of a comparison in a folder, and show its table."""
    from fedtailor import runs
    from fedtailor.runs.tracking import add_files
    from fedtailor.views.progress import progress
    from fedtailor.views.results import show_comparison

    kept = runs.Comparison(folder).finished() if is_comparison(folder) else []
    missing = len(settings.compare.methods) * len(settings.compare.seeds) - len(kept)
    with interruptible(folder), progress(quiet=quiet, runs=missing) as callbacks:
        done = runs.compare(settings, folder=folder, callbacks=callbacks)
    show_comparison(done, as_json)
    add_files(folder, settings.track)


def is_comparison(folder: Path) -> bool:
    from fedtailor.runs.folders import PLAN

    return (folder / PLAN).is_file()


def _resolve_labels(settings: "Experiment", source: Path | None) -> "Experiment":
    """Replace labels among the chosen methods by the tables that have them in the file."""
    tables = [method for method in settings_from(source).compare.methods if isinstance(method, dict)]
    labelled = {label: table for table in tables if isinstance(label := table.get("label"), str)}
    methods = tuple(labelled.get(m, m) if isinstance(m, str) else m for m in settings.compare.methods)
    return settings.model_copy(update={"compare": settings.compare.model_copy(update={"methods": methods})})


def _check_method_settings(source: Path | None, methods: list[str] | None, sets: Iterable[str]) -> None:
    """Raise a `UserError` if ``--set method.KEY`` is about no method that is compared."""
    from fedtailor.methods import catalogue, spec

    given = dict(map(parse_set, sets))
    keys = [key for key in given if key.startswith("method.")]
    if not keys or "method" in given or "method.name" in given:
        return
    settings = settings_from(source)
    names = methods or [one for one in settings.compare.methods if isinstance(one, str)]
    own, field = settings.method, keys[0].split(".")[1].replace("-", "_")
    if spec(own) in names and field in type(own).model_fields:
        return
    having = [name for name in names if name in catalogue() and field in catalogue()[name].model_fields]
    if not having:
        raise UserError(f"--set {keys[0]}: none of the compared methods has a setting {field} ({', '.join(names)})")
    table = f'{{name = "{having[0]}", {keys[0].partition(".")[2]} = {json.dumps(given[keys[0]], default=str)}}}'
    raise UserError(
        f"--set {keys[0]}: [method] is about {spec(own)}; give a compared method a table of its own, as in "
        f"--set 'compare.methods=[{table}]'"
    )
