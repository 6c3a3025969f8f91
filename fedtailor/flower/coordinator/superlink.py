"""Flower's SuperLink on the loopback, and a run of our app on it."""

from hashlib import sha256
from pathlib import Path

from fedtailor.flower import programs
from fedtailor.flower.keys import ServerKeys

# Flower sends this file alone to the nodes as the app: both components are in the installed package.
APP = """
[project]
name = "fedtailor-federation"
version = "1.0.0"
license = "Apache-2.0"
dependencies = []

[tool.flwr.app]
publisher = "fedtailor"

[tool.flwr.app.components]
serverapp = "fedtailor.flower.coordinator.server_app:app"
clientapp = "fedtailor.flower.node.client_app:app"

[tool.flwr.app.config]
socket = ""
token = ""
"""


def superlink_command(port: int, keys: ServerKeys | None) -> list[str]:
    """Return the command that starts a SuperLink on this port of the loopback."""
    command = ["flower-superlink", "--host", "127.0.0.1", "--port", str(port)]
    if keys is None:
        return [*command, "--insecure"]
    command += ["--ssl-ca-certfile", str(keys.authority.resolve()), "--enable-supernode-auth"]
    command += ["--ssl-certfile", str(keys.certificate.resolve())]
    return [*command, "--ssl-keyfile", str(keys.key.resolve())]


def start_superlink(keys: ServerKeys | None, home: Path) -> tuple[programs.Program, int]:
    """Start a SuperLink; return the program and its port. The caller waits for the port and ends the program."""
    port = programs.free_port()
    return programs.Program(superlink_command(port, keys), home, home / "superlink.log"), port


def start_run(port: int, keys: ServerKeys | None, socket: Path, token: str) -> None:
    """Register the nodes' keys with a SuperLink and start our app, which then connects to ``socket``."""
    from flwr.app.user_config import UserConfig
    from flwr.cli.build import build_fab_from_files
    from flwr.common.serde import fab_to_proto, user_config_to_proto
    from flwr.proto.control_pb2 import RegisterNodeRequest, StartRunRequest
    from flwr.supercore.control import ControlHttpClient
    from flwr.supercore.fab import Fab
    from flwr.supercore.interceptors import RuntimeVersionHttpInterceptor

    content, _ = build_fab_from_files({"pyproject.toml": APP.encode()})
    fab = Fab(sha256(content).hexdigest(), content, {})
    config: UserConfig = {"socket": str(socket), "token": token}
    control = ControlHttpClient.from_server_address(
        f"127.0.0.1:{port}",
        keys is None,
        None if keys is None else keys.authority.read_bytes(),
        [RuntimeVersionHttpInterceptor(component_name="flwr")],
    )
    try:
        for name, key in ({} if keys is None else keys.public_keys()).items():
            control.RegisterNode(RegisterNodeRequest(public_key=key, name=name))
        control.StartRun(StartRunRequest(fab=fab_to_proto(fab), override_config=user_config_to_proto(config)))
    finally:
        control.close()
