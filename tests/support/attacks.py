"""What an attacker on the machine does: find the ways to Flower, and submit an app that leaves traces."""

import sys
from pathlib import Path

import httpx
from flwr.cli.build import build_fab_from_files
from flwr.common.serde import fab_to_proto
from flwr.proto.control_pb2 import StartRunRequest
from flwr.supercore.control import ControlHttpClient
from flwr.supercore.fab import Fab
from flwr.supercore.interceptors import RuntimeVersionHttpInterceptor

from fedtailor.flower import sockets

PROJECT = """
[project]
name = "evil"
version = "1.0.0"
license = "Apache-2.0"
dependencies = []
[tool.flwr.app]
publisher = "evil"
[tool.flwr.app.components]
serverapp = "evil.server:app"
clientapp = "evil.client:app"
[tool.flwr.app.config]
"""
SERVER = """
import time
from pathlib import Path
from flwr.app import Message, RecordDict
from flwr.serverapp import ServerApp
folder = Path({folder!r})
(folder / "ran-on-the-coordinator").touch()
app = ServerApp()

@app.main()
def main(grid, context):
    while not (nodes := list(grid.get_node_ids())):
        time.sleep(0.1)
    (reply,) = grid.send_and_receive([Message(RecordDict(), dst_node_id=nodes[0], message_type="query")], timeout=300)
    (folder / "draft").write_text(reply.error.reason if reply.has_error() else "accepted")
    (folder / "draft").rename(folder / "reply")
"""
CLIENT = """
from pathlib import Path
from flwr.app import Message, RecordDict
from flwr.clientapp import ClientApp
(Path({folder!r}) / "ran-on-the-node").touch()
app = ClientApp()

@app.query()
def query(message, context):
    return Message(RecordDict(), reply_to=message)
"""


def evil_app(folder: Path) -> bytes:
    """An app whose code leaves files in a folder wherever it runs."""
    files = {"pyproject.toml": PROJECT, "evil/__init__.py": "", "evil/server.py": SERVER, "evil/client.py": CLIENT}
    where = repr(str(folder))
    return build_fab_from_files({name: text.replace("{folder!r}", where).encode() for name, text in files.items()})[0]


def submit(app: bytes, *, port: int = 0, path: Path | None = None, authority: Path | None = None) -> bool:
    """Submit an app to Flower's control interface at a port or socket; return whether it was accepted."""
    certificates = None if authority is None else authority.read_bytes()
    version = RuntimeVersionHttpInterceptor(component_name="flwr")
    address = f"127.0.0.1:{port}"
    control = ControlHttpClient.from_server_address(address, authority is None, certificates, [version])
    if path is not None:
        sockets.redirect(control, path)
    try:
        return bool(control.StartRun(StartRunRequest(fab=fab_to_proto(Fab("", app, {})))).run_id)
    except httpx.HTTPError:
        return False
    finally:
        control.close()


def as_nobody(code: str) -> list[str]:
    """The command that runs Python code as another account."""
    return ["setpriv", "--reuid", "65534", "--regid", "65534", "--clear-groups", sys.executable, "-c", code]
