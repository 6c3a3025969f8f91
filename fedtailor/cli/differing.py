"""The command diff."""

from pathlib import Path
from typing import Annotated

import typer

from fedtailor.cli.comparing import is_comparison
from fedtailor.cli.options import Json
from fedtailor.errors import UserError

commands = typer.Typer()

DIFFERENT = 1  # the exit code, as that of the program diff


@commands.command(epilog="Example: fedtailor diff runs/experiment runs/experiment --clients")
def diff(
    one: Annotated[Path, typer.Argument(metavar="RUN", help="The folder of a run.")],
    other: Annotated[Path, typer.Argument(metavar="RUN", help="The folder of another run.")],
    clients: Annotated[bool, typer.Option("--clients", help="Also show the scores of clients that differ.")] = False,
    as_json: Json = False,
) -> None:
    """Show what differs between two runs: settings, versions, data, results. The exit code is 1 if anything does.

    The name, engine, trackers and checkpoints change no result: two runs are equal if only they differ.
    """
    from fedtailor.runs import diff as compare
    from fedtailor.views import console, differences

    for run in (one, other):
        if is_comparison(run):
            raise UserError(f"{run} is a comparison: name two of its runs")
    found = compare(one, other)
    if as_json:
        console.show_json(found.as_dict())
    else:
        console.show(*differences.differences_page(found, str(one), str(other), clients))
    if not found.equal:
        raise typer.Exit(DIFFERENT)
