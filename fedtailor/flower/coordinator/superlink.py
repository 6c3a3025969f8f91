"""Flower's SuperLink on a Unix socket, and a run of our app on it.

``python -m fedtailor.flower.coordinator.superlink SOCKET`` is the SuperLink itself. It serves what nodes and our server
app need, and of Flower's control interface the calls that register keys and, for our app only, start a run.
"""

import sys
from collections.abc import Awaitable, Callable, MutableMapping
from pathlib import Path
from typing import Any

from fedtailor.flower import app, programs, sockets
from fedtailor.flower.keys import ServerKeys
from fedtailor.flower.protocol import FLEET_PATH

START_RUN = "/v1/control/start-run"
ALLOWED = (FLEET_PATH, "/v1/runtime/", "/v1/control/register-node", "/v1/control/unregister-node")
LARGEST_START = 2**20  # bytes of a request to start a run; ours has less than a thousand

Asgi = Callable[..., Awaitable[None]]


def start_superlink(home: Path, authenticated: bool) -> tuple[programs.Program, Path]:
    """Start a SuperLink; return the program and its socket. The caller waits for the socket and ends the program."""
    path = home / "superlink.sock"
    command = [sys.executable, "-m", "fedtailor.flower.coordinator.superlink", str(path)]
    more = ["authenticated"] if authenticated else []
    return programs.Program("Flower's SuperLink", [*command, *more], home, home / "superlink.log"), path


def start_run(path: Path, keys: ServerKeys | None) -> tuple[int, dict[int, str]]:
    """Register the nodes' keys with a SuperLink and start our app.

    Returns the id of the run, and the name that belongs to each node's id; no names without keys.
    """
    from flwr.common.serde import fab_to_proto
    from flwr.proto.control_pb2 import RegisterNodeRequest, StartRunRequest
    from flwr.supercore.control import ControlHttpClient
    from flwr.supercore.fab import Fab
    from flwr.supercore.interceptors import RuntimeVersionHttpInterceptor

    version = RuntimeVersionHttpInterceptor(component_name="flwr")
    control = ControlHttpClient.from_server_address("superlink", True, None, [version])
    sockets.redirect(control, path)
    try:
        names: dict[int, str] = {}
        for name, key in ({} if keys is None else keys.public_keys()).items():
            names[control.RegisterNode(RegisterNodeRequest(public_key=key, name=name)).node_id] = name
        ours = Fab(app.digest(), app.content(), {})
        return control.StartRun(StartRunRequest(fab=fab_to_proto(ours))).run_id, names
    finally:
        control.close()


def guarded(served: Asgi) -> Asgi:
    """Return the SuperLink's app with all calls refused that a federation of ours does not use."""

    async def call(scope: MutableMapping[str, Any], receive: Any, send: Any) -> None:
        if scope["type"] == "http" and scope["path"] == START_RUN:
            body = await _body(receive)
            if body is None or not _starts_our_app(body):
                await _refuse(send)
            else:
                await served(scope, _replay(body), send)
        elif scope["type"] == "http" and not scope["path"].startswith(ALLOWED):
            await _refuse(send)
        else:
            await served(scope, receive, send)

    return call


async def _body(receive: Any) -> bytes | None:
    """Return the body of a request, None if it is too large."""
    body = b""
    while len(body) <= LARGEST_START:
        event = await receive()
        body += event.get("body", b"")
        if not event.get("more_body"):
            return body if event["type"] == "http.request" else None
    return None


def _replay(body: bytes) -> Callable[[], Awaitable[dict[str, Any]]]:
    async def receive() -> dict[str, Any]:
        return {"type": "http.request", "body": body, "more_body": False}

    return receive


def _starts_our_app(body: bytes) -> bool:
    """Return whether a request starts our app from the bytes it brings, not another one from Flower's hub."""
    from flwr.proto.control_pb2 import StartRunRequest

    try:
        request = StartRunRequest.FromString(body)
    except Exception:  # protobuf's DecodeError, or whatever else the bytes cause
        return False
    return not request.app_spec and app.is_ours(request.fab.content)


async def _refuse(send: Any) -> None:
    await send({"type": "http.response.start", "status": 403, "headers": [(b"content-type", b"text/plain")]})
    await send({"type": "http.response.body", "body": b"this SuperLink runs the app of FedTailor only"})


def main(path: Path, authenticated: bool) -> None:
    """Run a SuperLink until this process is told to end."""
    from flwr.superlink.cli.flower_superlink import SuperLinkLifespan, _parse_superlink_lifespan_config
    from flwr.superlink.main import create_app

    # Flower demands TLS for keys of nodes, which the gateway provides, and starts apps itself without "process".
    sys.argv = ["flower-superlink", "--insecure", "--isolation", "process"]
    config = _parse_superlink_lifespan_config()
    config.enable_supernode_auth = authenticated
    sockets.serve(guarded(create_app(config, SuperLinkLifespan)), path)


if __name__ == "__main__":
    main(Path(sys.argv[1]), "authenticated" in sys.argv[2:])
