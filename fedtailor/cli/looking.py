"""The command dashboard."""

import os
from pathlib import Path
from typing import Annotated

import typer

commands = typer.Typer()


@commands.command(epilog="Example: fedtailor dashboard runs --port 8600")
def dashboard(
    runs_dir: Annotated[Path, typer.Argument(metavar="RUNS_DIR", help="Folder with runs.")] = Path("runs"),
    port: Annotated[int, typer.Option(min=0, max=65535, help="The port; 0 takes a free one.")] = 8600,
    host: Annotated[
        str, typer.Option(help="Where to listen; other machines need the password in FEDTAILOR_PASSWORD.")
    ] = "127.0.0.1",
) -> None:
    """Show the runs below a folder in the browser, live. It only reads; Ctrl-C ends it."""
    from fedtailor.views import console
    from fedtailor.views.dashboard.gate import LOOPBACK, Gate
    from fedtailor.views.dashboard.server import Dashboard

    server = Dashboard(runs_dir, Gate(host, os.environ.get("FEDTAILOR_PASSWORD") or None), port)
    if host not in LOOPBACK:
        console.messages().print("what is sent is not encrypted: on a network that you do not trust, use an SSH tunnel")
    console.show(f"dashboard: {server.address} (Ctrl-C ends it)")
    try:
        server.serve_forever()
    except KeyboardInterrupt:
        server.stopping.set()
    finally:
        server.server_close()
