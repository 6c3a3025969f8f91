"""The command dashboard."""

import os
import signal
from pathlib import Path
from typing import Annotated

import typer

from fedtailor.cli.interrupts import sigterm_as_ctrl_c

commands = typer.Typer()


@commands.command(epilog="Example: fedtailor dashboard runs --port 8600")
def dashboard(
    runs_dir: Annotated[Path, typer.Argument(metavar="RUNS_DIR", help="Folder with runs.")] = Path("runs"),
    port: Annotated[int, typer.Option(min=0, max=65535, help="The port; 0 takes a free one.")] = 8600,
    host: Annotated[
        str, typer.Option(help="Where to listen; other machines need the password in FEDTAILOR_PASSWORD.")
    ] = "127.0.0.1",
    keys: Annotated[
        Path | None, typer.Option(help="A coordinator's folder of keys: show its nodes' keys and its audit log.")
    ] = None,
    control: Annotated[bool, typer.Option("--control", help="Also start, stop and resume runs from the page.")] = False,
) -> None:
    """Show the runs below a folder in the browser, live. It only reads, unless --control is given; Ctrl-C ends it.

    With --control, Ctrl-C also stops the runs that were started from the page, at their next round boundary.
    """
    from fedtailor.views import console
    from fedtailor.views.dashboard.access import LOOPBACK, Access
    from fedtailor.views.dashboard.server import Dashboard

    server = Dashboard(runs_dir, Access(host, os.environ.get("FEDTAILOR_PASSWORD") or None), port, control, keys)
    if host not in LOOPBACK:
        console.messages().print("what is sent is not encrypted: on a network that you do not trust, use an SSH tunnel")
    console.show(f"dashboard: {server.address} (Ctrl-C ends it)")
    # Also where a shell lets a command in the background ignore Ctrl-C: runs that are started here must obey it.
    signal.signal(signal.SIGINT, signal.default_int_handler)
    with sigterm_as_ctrl_c():
        try:
            server.serve_forever()
        except KeyboardInterrupt:
            pass
        finally:
            if running := server.running():
                console.messages().print(f"waiting until {running} run{'s' * (running > 1)} reach a round boundary")
            stopped = server.close()
    for folder in stopped:
        console.show(f"stopped at a round boundary; resume with: fedtailor resume {folder}")
