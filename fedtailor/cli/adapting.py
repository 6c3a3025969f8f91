"""The command adapt."""

from pathlib import Path
from typing import Annotated

import typer

from fedtailor.cli.options import Formats, Json, Licence, RunFolder
from fedtailor.cli.settings import split_list

commands = typer.Typer()


@commands.command(epilog="Example: fedtailor adapt runs/experiment --data clients/client-0.npz --passes 3")
def adapt(
    run: RunFolder,
    data: Annotated[
        Path, typer.Option(metavar="PATH", help="The new client's data: a .npz or .csv file, or a folder.")
    ],
    name: Annotated[str | None, typer.Option(help="The new client's name; default: that of the file.")] = None,
    passes: Annotated[
        int | None,
        typer.Option(min=0, max=10_000, help="Passes over the client's training samples; default: the run's epochs."),
    ] = None,
    label: Annotated[
        str | None, typer.Option(help="The column of a CSV file to predict; default: the run's, or the last one.")
    ] = None,
    speed: Annotated[
        float | None,
        typer.Option(help="Speed of the client's device as in [devices]; default: the median of the run's devices."),
    ] = None,
    formats: Formats = "safetensors",
    licence: Licence = None,
    out: Annotated[Path | None, typer.Option(help="The folder to write; default: exports/NAME.")] = None,
    as_json: Json = False,
) -> None:
    """Give a client that never took part a personal model. The run does not change.

    The client's test samples only score the model; without some of its own, its samples are split as in the run.
    """
    if speed is not None and not speed > 0:
        raise typer.BadParameter("should be above 0.", param_hint="--speed")
    from fedtailor import runs
    from fedtailor.views.adaptation import show_adapted

    chosen = split_list(formats) or []
    done = runs.adapt(
        run, data, out, name=name, passes=passes, speed=speed, label=label, formats=chosen, licence=licence
    )
    show_adapted(done, as_json)
