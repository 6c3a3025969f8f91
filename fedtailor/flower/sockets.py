"""Unix sockets between the programs of one coordinator or node.

By itself Flower serves control, runs and messages on ports of the loopback. Every account of a machine reaches those,
and another program may bind a port first. Our programs use sockets in a folder that only this account can open.
"""

import os
import socket
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

from fedtailor.errors import UserError

if TYPE_CHECKING:
    from flwr.supercore.protobuf.client import ProtobufClient

    from fedtailor.flower.programs import Program

BACKLOG = 128


def listening(path: Path) -> socket.socket:
    """Return a socket that listens at ``path``, for this account only."""
    made = socket.socket(socket.AF_UNIX)
    before = os.umask(0o177)
    try:
        made.bind(str(path))
    finally:
        os.umask(before)
    made.listen(BACKLOG)
    return made


def serve(app: Any, path: Path) -> None:
    """Serve an ASGI app at ``path`` until this process is told to end."""
    import uvicorn

    with listening(path) as listener:
        uvicorn.Server(uvicorn.Config(app, log_level="warning", access_log=False)).run(sockets=[listener])


def redirect(client: "ProtobufClient", path: Path) -> None:
    """Have one of Flower's clients talk to the socket at ``path``, whatever its address says."""
    import httpx

    client._client.close()
    transport = httpx.HTTPTransport(uds=str(path))
    client._client = httpx.Client(transport=transport, timeout=client._client.timeout, trust_env=False)


def answers(path: Path) -> bool:
    """Return whether a program accepts connections at ``path``."""
    with socket.socket(socket.AF_UNIX) as probe:
        try:
            probe.connect(str(path))
            return True
        except OSError:
            return False


def wait_for(path: Path, program: "Program", seconds: float = 60.0) -> None:
    """Wait until the program accepts connections at ``path``; raise a `UserError` if it does not."""
    end = time.monotonic() + seconds
    while time.monotonic() < end and not program.ended:
        if answers(path):
            return
        time.sleep(0.1)
    raise UserError(f"{program.name} did not start: {program.last_lines(3)}")
