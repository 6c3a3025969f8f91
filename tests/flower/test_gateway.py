"""The gateway of a coordinator: what it forwards, and how it refuses the rest."""

import http.client
import json
import socket
import ssl
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("flwr", reason="needs the extra 'flower'")

from fedtailor.flower import keys
from tests.support.waiting import PATIENCE

LIMIT = 10_000


class Echo(BaseHTTPRequestHandler):
    """Stands for the SuperLink: gives back what it got."""

    protocol_version = "HTTP/1.1"

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers["content-length"]))
        seen = json.dumps({"path": self.path, "body": body.decode(), "key": self.headers.get("flwr-public-key")})
        self.send_response(401 if self.path.endswith("activate-node") else 200)
        self.send_header("content-length", str(len(seen)))
        self.end_headers()
        self.wfile.write(seen.encode())

    def log_message(self, *_: Any) -> None: ...


class RunningGateway:
    """A gateway with TLS before an echo."""

    def __init__(self, folder: Path):
        self.authority = folder / "ca.pem"
        keys.init(folder, [], ["anna"])
        self.echo = ThreadingHTTPServer(("127.0.0.1", 0), Echo)
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(folder / "server.pem", folder / "server.key")
        self.echo.socket = context.wrap_socket(self.echo.socket, server_side=True)
        threading.Thread(target=self.echo.serve_forever, daemon=True).start()
        self.process = subprocess.Popen(
            [sys.executable, "-m", "fedtailor.flower.coordinator.gateway"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        facts: dict[str, Any] = {
            "host": "127.0.0.1",
            "port": 0,
            "upstream": self.echo.server_address[1],
            "limit": LIMIT,
        }
        files = {"certificate": "server.pem", "key": "server.key", "authority": "ca.pem"}
        assert self.process.stdin is not None
        facts["known"] = ["mine"]
        self.process.stdin.write(json.dumps({**facts, **{k: str(folder / v) for k, v in files.items()}}) + "\n")
        self.process.stdin.flush()
        self.port = self.heard()["listening"]

    def heard(self) -> dict[str, Any]:
        assert self.process.stdout is not None
        found: dict[str, Any] = json.loads(self.process.stdout.readline())
        return found

    def ask(self, path: str, body: bytes = b"", method: str = "POST", key: str = "mine") -> tuple[int, str]:
        context = ssl.create_default_context(cafile=str(self.authority))
        connection = http.client.HTTPSConnection("127.0.0.1", self.port, context=context, timeout=PATIENCE)
        try:
            connection.request(method, path, body, {"flwr-public-key": key, "cookie": "x"})
            answer = connection.getresponse()
            return answer.status, answer.read().decode()
        finally:
            connection.close()

    def close(self) -> None:
        self.process.kill()
        self.process.wait()
        for stream in (self.process.stdin, self.process.stdout):
            if stream is not None:
                stream.close()
        self.echo.shutdown()
        self.echo.server_close()


@pytest.fixture
def gateway(tmp_path: Path) -> Iterator[RunningGateway]:
    made = RunningGateway(tmp_path / "keys")
    yield made
    made.close()


def test_a_call_of_the_fleet_passes_with_its_body_and_flower_s_headers(gateway: RunningGateway) -> None:
    status, answer = gateway.ask("/v1/fleet/pull-messages", b"hello")
    assert status == 200
    assert json.loads(answer) == {"path": "/v1/fleet/pull-messages", "body": "hello", "key": "mine"}


@pytest.mark.parametrize(
    "path",
    ["/v1/control/start-run", "/v1/runtime/acquire-task", "/v1/fleet/../control/list-runs", "/docs"],
)
def test_nothing_else_passes(gateway: RunningGateway, path: str) -> None:
    status, answer = gateway.ask(path, b"hello")
    assert status == 403
    assert "which nodes may not use" in json.loads(answer)["message"]
    assert "which nodes may not use" in gateway.heard()["reason"]


def test_other_methods_of_http_do_not_pass(gateway: RunningGateway) -> None:
    assert gateway.ask("/v1/fleet/pull-messages", method="GET")[0] == 405


def test_a_key_that_is_not_registered_does_not_pass(gateway: RunningGateway) -> None:
    assert gateway.ask("/v1/fleet/pull-messages", b"hello", key="another")[0] == 407
    assert gateway.heard()["reason"] == "has a key that is not registered"


def test_with_keys_nobody_registers_itself(gateway: RunningGateway) -> None:
    assert gateway.ask("/v1/fleet/register-node")[0] == 403


def test_a_message_over_the_limit_is_refused_unread(gateway: RunningGateway) -> None:
    status, answer = gateway.ask("/v1/fleet/push-object", b"x" * (LIMIT + 1))
    assert status == 413
    assert "the limit is 10,000" in answer
    assert gateway.ask("/v1/fleet/push-object", b"x" * LIMIT)[0] == 200


def test_a_refusal_of_flower_is_told_to_both_sides(gateway: RunningGateway) -> None:
    assert gateway.ask("/v1/fleet/activate-node")[0] == 401
    assert "Flower refused it" in gateway.heard()["reason"]


def test_a_client_without_tls_is_refused(gateway: RunningGateway) -> None:
    with socket.create_connection(("127.0.0.1", gateway.port), PATIENCE) as plain:
        plain.sendall(b"POST /v1/fleet/pull-messages HTTP/1.1\r\nContent-Length: 0\r\n\r\n")
        with suppress(ConnectionResetError):
            assert b"200" not in plain.recv(1000)
    assert gateway.heard()["reason"] == "it does not speak TLS"


def test_a_client_that_knows_another_authority_goes_away(gateway: RunningGateway, tmp_path: Path) -> None:
    keys.init(tmp_path / "others", [], [])
    context = ssl.create_default_context(cafile=str(tmp_path / "others" / "ca.pem"))
    with (
        socket.create_connection(("127.0.0.1", gateway.port), PATIENCE) as plain,
        pytest.raises(ssl.SSLCertVerificationError),
    ):
        context.wrap_socket(plain, server_hostname="127.0.0.1")
    assert "authority" in gateway.heard()["reason"]


def test_it_ends_with_the_coordinator(gateway: RunningGateway) -> None:
    assert gateway.process.stdin is not None
    gateway.process.stdin.close()
    assert gateway.process.wait(PATIENCE) == 0
