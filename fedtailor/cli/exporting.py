"""The command export."""

from pathlib import Path
from typing import Annotated

import typer

from fedtailor.cli.options import Json, RunFolder

commands = typer.Typer()


@commands.command(epilog="Example: fedtailor export runs/experiment --client 3 --out client-3")
def export(
    run: RunFolder,
    client: Annotated[int | None, typer.Option(help="Export this client's model.")] = None,
    of_server: Annotated[bool, typer.Option("--global", help="Export the server's model.")] = False,
    model: Annotated[str, typer.Option(help="With --global: the name of the server's model.")] = "global",
    out: Annotated[Path | None, typer.Option(help="The folder to write; default: in the run's folder.")] = None,
    as_json: Json = False,
) -> None:
    """Write a trained model as safetensors weights and a JSON card."""
    if (client is None) == (not of_server):
        raise typer.BadParameter("name either --client N or --global.", param_hint="export")
    from fedtailor.runs import export_client, export_global
    from fedtailor.views import console

    folder = out or run / "exports" / (model if client is None else f"client-{client}")
    written = export_global(run, folder, model) if client is None else export_client(run, client, folder)
    lines = ["import fedtailor", f"model = fedtailor.load_model({str(written)!r})"]
    if as_json:
        console.show_json({"folder": str(written), "load": lines})
    else:
        console.show(f"written to {written}; load it in Python with:", *(f"    {line}" for line in lines))
