"""The Typer app: all commands, in the order of ``fedtailor --help``."""

from typing import Annotated

import typer

from fedtailor.cli import (
    adapting,
    advising,
    comparing,
    dashboard,
    data,
    differing,
    exporting,
    federation,
    preparing,
    pruning,
    reproducing,
    running,
    showing,
    tracking,
)
from fedtailor.version import __version__

app = typer.Typer(
    help="FedTailor: personalised federated learning. Every client ends with a model that fits its data.",
    epilog="Example: fedtailor run --rounds 5, then: fedtailor compare --methods local,fedavg,fedper",
    pretty_exceptions_enable=False,
    add_completion=False,
    rich_markup_mode="rich",
)
for group in (
    running,
    comparing,
    advising,
    reproducing,
    showing,
    dashboard,
    federation,
    preparing,
    exporting,
    adapting,
    differing,
    pruning,
    tracking,
):
    app.add_typer(group.commands)
app.add_typer(data.commands, name="data")
app.add_typer(federation.keys_commands, name="keys")


@app.callback(invoke_without_command=True)
def start(
    context: typer.Context,
    version: Annotated[bool, typer.Option("--version", help="Show the version.")] = False,
) -> None:
    if version:
        typer.echo(f"fedtailor {__version__}")
        raise typer.Exit
    help_without_command(context)


@data.commands.callback(invoke_without_command=True)
@federation.keys_commands.callback(invoke_without_command=True)
def help_without_command(context: typer.Context) -> None:
    """Print the help of a group that is called without a command."""
    if context.invoked_subcommand is None:
        typer.echo(context.get_help())
