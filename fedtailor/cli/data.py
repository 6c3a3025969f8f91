"""Commands about data sets: data list, get, show, deal."""

from pathlib import Path
from typing import Annotated

import typer

from fedtailor.cli.options import DataDir, ExperimentFile, Json, Quiet, Sets
from fedtailor.cli.settings import settings_from, shared_options
from fedtailor.errors import UserError

commands = typer.Typer(
    help="Data sets: list them, download them, show which client has which samples.",
    epilog="Example: fedtailor data show --set data.partition=iid",
)


@commands.command("list", epilog="Example: fedtailor data list --data-dir data")
def list_command(data_dir: DataDir = None, as_json: Json = False) -> None:
    """List the known data sets and whether their files are on disk."""
    from fedtailor.data import SOURCES
    from fedtailor.data.settings import data_directory
    from fedtailor.views import console, datasets

    lines = datasets.source_lines(SOURCES, data_directory(data_dir))
    if as_json:
        console.show_json(lines)
    else:
        console.show(datasets.sources_page(lines, data_directory(data_dir)))


@commands.command(epilog="Example: fedtailor data get mnist --data-dir data")
def get(
    name: Annotated[str, typer.Argument(metavar="NAME", help="A name from 'fedtailor data list'.")],
    data_dir: DataDir = None,
    addresses: Annotated[
        list[str] | None,
        typer.Option("--from", metavar="ADDRESS", help="A mirror that has the files; may be repeated."),
    ] = None,
    as_json: Json = False,
    quiet: Quiet = False,
) -> None:
    """Download a data set, or continue a download that was interrupted."""
    from fedtailor.data import downloads
    from fedtailor.data.settings import data_directory
    from fedtailor.views import console
    from fedtailor.views.downloads import downloading

    with downloading(quiet=quiet) as progress:
        files = downloads.get(name, data_directory(data_dir), progress, addresses or None)
    if as_json:
        console.show_json({"name": name, "files": [str(file) for file in files]})
    elif files:
        console.show(*(str(file) for file in files), f"next: fedtailor data show --set data.source={name}")
    else:
        console.show(f"{name} comes with FedTailor: nothing to download")


@commands.command(epilog="Example: fedtailor data show experiment.toml --set data.clients=50 --out p.png")
def show(
    experiment: ExperimentFile = None,
    sets: Sets = None,
    data_dir: DataDir = None,
    out: Annotated[Path, typer.Option(help="The picture: a png, svg or pdf file.")] = Path("partition.png"),
    as_json: Json = False,
) -> None:
    """Show how many samples of each class every client has."""
    if out.suffix not in (".png", ".svg", ".pdf"):
        raise typer.BadParameter(f"{out} does not end in .png, .svg or .pdf.", param_hint="--out")
    settings = settings_from(experiment, shared_options(data_dir=data_dir), sets)
    from fedtailor.data import resolve, statistics
    from fedtailor.data.federation import dealt_anew
    from fedtailor.runs import Resources
    from fedtailor.views import console, datasets, partition
    from fedtailor.views.files import writing

    federation = Resources().federation(settings)
    with writing(out):
        partition.draw(federation, out)
    summary = {**statistics.summary(federation), **statistics.duplicates(federation)}
    if (prepared := federation.samples.preprocessing) is not None:
        summary["preprocessing"] = {**prepared.settings.model_dump(), "inputs": list(prepared.names)}
    rows = statistics.table(federation)
    doubt = dealt_anew(resolve(settings.data, federation.samples), federation.samples)
    if as_json:
        console.show_json({**summary, "warning": doubt, "table": rows, "picture": str(out)})
    else:
        notes = [f"warning: {doubt}"] if doubt else []
        if federation.new:
            notes.append(f"new clients, which take no part (the last rows): {federation.new}")
        console.show(datasets.federation_page(summary, rows), *notes, f"picture: {out}")


@commands.command(epilog="Example: fedtailor data deal experiment.toml --out clients")
def deal(
    experiment: ExperimentFile = None,
    sets: Sets = None,
    data_dir: DataDir = None,
    out: Annotated[Path, typer.Option(help="The folder to write.")] = Path("clients"),
    as_json: Json = False,
) -> None:
    """Write each client's samples to a file that 'fedtailor join' can read."""
    settings = settings_from(experiment, shared_options(data_dir=data_dir), sets)
    from fedtailor.data.folder import write_clients
    from fedtailor.runs import Resources
    from fedtailor.views import console
    from fedtailor.views.files import writing

    if out.exists():
        raise UserError(f"{out} exists: name another folder with --out")
    federation = Resources().federation(settings)
    with writing(out):
        written = [str(path) for path in write_clients(federation, out)]
    if as_json:
        console.show_json({"written": written})
    else:
        console.show(f"written: {written[0]} to {written[-1]}", f"next: fedtailor join --data {written[0]} ...")
