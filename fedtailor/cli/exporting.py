"""The command export."""

from pathlib import Path
from typing import Annotated

import typer

from fedtailor.cli.options import Json, RunFolder

commands = typer.Typer()


@commands.command(epilog="Example: fedtailor export runs/experiment --client 3 --out client-3")
def export(
    run: RunFolder,
    client: Annotated[str | None, typer.Option(help="Export the model of this client: its name or number.")] = None,
    of_server: Annotated[bool, typer.Option("--global", help="Export the server's model.")] = False,
    model: Annotated[str, typer.Option(help="With --global: the name of the server's model.")] = "global",
    out: Annotated[Path | None, typer.Option(help="The folder to write; default: in the run's folder.")] = None,
    as_json: Json = False,
) -> None:
    """Write a trained model as safetensors weights and a JSON card."""
    if (client is None) == (not of_server):
        raise typer.BadParameter("name either --client NAME or --global.", param_hint="export")
    from fedtailor.runs import Run, export_client, export_global
    from fedtailor.views import console

    what = model
    if client is not None:
        with Run(run) as found:
            number = found.client(client)
            what = _folder_name(found.label(number)) if found.names else f"client-{number}"
    folder = out or run / "exports" / what
    written = export_global(run, folder, model) if client is None else export_client(run, client, folder)
    lines = ["import fedtailor", f"model = fedtailor.load_model({str(written)!r})"]
    if as_json:
        console.show_json({"folder": str(written), "load": lines})
    else:
        console.show(f"written to {written}; load it in Python with:", *(f"    {line}" for line in lines))


def _folder_name(name: str) -> str:
    """The name of a client as that of a folder."""
    return "".join(letter if letter.isalnum() or letter in "-_.=" else "_" for letter in name).strip(".") or "client"
