"""The coordinator's side of Flower: a SuperLink on the loopback, the gateway before it, and a run on it."""

import json
import secrets
import shutil
import socket
import subprocess
import sys
import tempfile
import threading
import time
from base64 import b64encode
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

from fedtailor.errors import UserError
from fedtailor.flower import programs
from fedtailor.flower.keys import ServerKeys, public_key
from fedtailor.messages.frames import Closed, receive, send

STARTING = 60.0  # seconds that Flower's programs get

# The app that Flower sends to the nodes is this file alone: its parts are in the installed package.
APP = """
[project]
name = "fedtailor-federation"
version = "1.0.0"
license = "Apache-2.0"
dependencies = []

[tool.flwr.app]
publisher = "fedtailor"

[tool.flwr.app.components]
serverapp = "fedtailor.flower.server_app:app"
clientapp = "fedtailor.flower.client_app:app"

[tool.flwr.app.config]
socket = ""
token = ""
"""


class LinkLost(UserError):
    """Flower's part of the coordinator has ended."""


@dataclass(frozen=True)
class Reply:
    """What came back for a message: bytes, or the reason why not."""

    id: str
    data: bytes = b""
    error: str | None = None


class Link:
    """Sends messages to nodes and gets their replies. To be closed."""

    def __init__(
        self,
        host: str,
        port: int,
        keys: ServerKeys | None,
        limit: int,
        refused: Callable[[str], None] = lambda sentence: None,
    ):
        self.home = Path(tempfile.mkdtemp(prefix="fedtailor-"))
        self.keys = keys
        self._refused, self._said = refused, ""
        self._programs: list[programs.Program] = []
        self._gateway: subprocess.Popen[str] | None = None
        self._door: socket.socket | None = None
        self._app: socket.socket | None = None
        try:
            self._upstream = self._start_superlink()
            self.port = self._start_gateway(host, port, limit)
            self._start_run()
        except BaseException:
            self.close()
            raise

    def nodes(self) -> list[int]:
        """The ids of the nodes that are connected."""
        found: list[int] = self._ask({"kind": "nodes"})[0]["nodes"]
        return found

    def push(self, messages: Sequence[tuple[int, bytes]], seconds: float, group: str) -> list[str]:
        """Send every node its bytes, which are of no use to it after so many seconds; the ids of the messages."""
        blobs = list({id(data): data for _, data in messages}.values())
        places = {id(data): place for place, data in enumerate(blobs)}
        rows = [{"node": n, "blob": places[id(d)], "seconds": seconds, "group": group} for n, d in messages]
        ids: list[str] = self._ask({"kind": "push", "messages": rows}, blobs)[0]["ids"]
        return ids

    def pull(self, ids: Iterable[str]) -> list[Reply]:
        """The replies to these messages that are there."""
        header, blobs = self._ask({"kind": "pull", "ids": list(ids)})
        data = iter(blobs)
        return [
            Reply(row["id"], error=row["error"]) if "error" in row else Reply(row["id"], next(data))
            for row in header["replies"]
        ]

    def __enter__(self) -> "Link":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """End everything that was started."""
        for connection in (self._app, self._door):
            if connection is not None:
                connection.close()
        if self._gateway is not None:
            self._gateway.kill()
            self._gateway.wait()
            for stream in (self._gateway.stdin, self._gateway.stdout, self._gateway.stderr):
                if stream is not None:
                    stream.close()
        for program in reversed(self._programs):
            program.stop()
        shutil.rmtree(self.home, ignore_errors=True)

    # Starting

    def _start_superlink(self) -> int:
        port = programs.free_port()
        command = ["flower-superlink", "--host", "127.0.0.1", "--port", str(port)]
        if self.keys is None:
            command.append("--insecure")
        else:
            command += ["--ssl-ca-certfile", str(self.keys.authority.resolve()), "--enable-supernode-auth"]
            command += ["--ssl-certfile", str(self.keys.certificate.resolve())]
            command += ["--ssl-keyfile", str(self.keys.key.resolve())]
        program = programs.Program(command, self.home, self.home / "superlink.log")
        self._programs.append(program)
        programs.wait_for_port(port, program, STARTING)
        return port

    def _start_gateway(self, host: str, port: int, limit: int) -> int:
        settings: dict[str, Any] = {"host": host, "port": port, "upstream": self._upstream, "limit": limit}
        settings["known"] = [b64encode(key).decode() for key in self._public_keys().values()]
        for name in ("certificate", "key", "authority"):
            settings[name] = "" if self.keys is None else str(getattr(self.keys, name).resolve())
        self._gateway = subprocess.Popen(
            [sys.executable, "-m", "fedtailor.flower.gateway"],
            env=programs.environment(self.home),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            start_new_session=True,
        )
        assert self._gateway.stdin is not None
        assert self._gateway.stdout is not None
        self._gateway.stdin.write(json.dumps(settings) + "\n")
        self._gateway.stdin.flush()
        first = self._gateway.stdout.readline()
        if not first:
            assert self._gateway.stderr is not None
            reason = (self._gateway.stderr.read().strip().splitlines() or ["no reason given"])[-1]
            raise UserError(f"cannot listen on {host}:{port} ({reason}): choose another --host or --port")
        threading.Thread(target=self._listen, args=[self._gateway.stdout], daemon=True).start()
        found: int = json.loads(first)["listening"]
        return found

    def _listen(self, lines: IO[str]) -> None:
        """Tell of refusals; the same one again and again is told once."""
        for line in iter(lines.readline, ""):
            facts = json.loads(line)
            sentence = f"refused {facts['refused']}: {facts['reason']}"
            if sentence != self._said:
                self._said = sentence
                self._refused(sentence)

    def _start_run(self) -> None:
        from hashlib import sha256

        from flwr.app.user_config import UserConfig
        from flwr.cli.build import build_fab_from_files
        from flwr.common.serde import fab_to_proto, user_config_to_proto
        from flwr.proto.control_pb2 import RegisterNodeRequest, StartRunRequest
        from flwr.supercore.control import ControlHttpClient
        from flwr.supercore.fab import Fab
        from flwr.supercore.interceptors import RuntimeVersionHttpInterceptor

        path, token = self.home / "app.sock", secrets.token_hex(16)
        self._door = socket.socket(socket.AF_UNIX)
        self._door.bind(str(path))
        self._door.listen(1)
        self._door.settimeout(1.0)
        bytes_of_app, _ = build_fab_from_files({"pyproject.toml": APP.encode()})
        fab = Fab(sha256(bytes_of_app).hexdigest(), bytes_of_app, {})
        config: UserConfig = {"socket": str(path), "token": token}
        control = ControlHttpClient.from_server_address(
            f"127.0.0.1:{self._upstream}",
            self.keys is None,
            None if self.keys is None else self.keys.authority.read_bytes(),
            [RuntimeVersionHttpInterceptor(component_name="flwr")],
        )
        try:
            for name, key in self._public_keys().items():
                control.RegisterNode(RegisterNodeRequest(public_key=key, name=name))
            control.StartRun(StartRunRequest(fab=fab_to_proto(fab), override_config=user_config_to_proto(config)))
        finally:
            control.close()
        self._app = self._accept(token)

    def _public_keys(self) -> dict[str, bytes]:
        return {name: public_key(file) for name, file in self.keys.nodes.items()} if self.keys else {}

    def _accept(self, token: str) -> socket.socket:
        assert self._door is not None
        end = time.monotonic() + STARTING
        while time.monotonic() < end and not self._programs[0].ended:
            try:
                connection, _ = self._door.accept()
            except TimeoutError:
                continue
            connection.setblocking(True)
            header, _ = receive(connection)
            if secrets.compare_digest(str(header.get("token")), token):
                return connection
            connection.close()
        raise UserError(f"Flower did not start the run: {self._programs[0].said(3)}")

    def _ask(self, header: dict[str, Any], blobs: Sequence[bytes] = ()) -> tuple[dict[str, Any], list[bytes]]:
        assert self._app is not None
        try:
            send(self._app, header, blobs)
            answer, data = receive(self._app)
        except Closed:
            raise LinkLost(f"Flower's SuperLink has ended: {self._programs[0].said(3)}") from None
        if "failure" in answer:
            raise LinkLost(f"Flower's SuperLink does not answer ({answer['failure']})")
        return answer, data
