"""The command track."""

from pathlib import Path
from typing import Annotated

import typer

from fedtailor.cli.settings import split_list

commands = typer.Typer()


@commands.command(epilog="Example: fedtailor track runs/experiment --to tensorboard")
def track(
    run: Annotated[Path, typer.Argument(metavar="RUN", help="The folder of a run or a comparison.")],
    to: Annotated[
        str | None, typer.Option(metavar="A,B", help="tensorboard, mlflow, wandb; default: those of the run.")
    ] = None,
) -> None:
    """Copy a run or a comparison into trackers. What they have already is not sent again."""
    from fedtailor import runs
    from fedtailor.views import console

    console.show(f"{run} is in {', '.join(runs.track(run, split_list(to)))}")
