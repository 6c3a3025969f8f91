"""The gateway of a coordinator: what it forwards, and how it refuses the rest."""

import http.client
import json
import socket
import ssl
import subprocess
import sys
import threading
from base64 import b64encode
from collections.abc import Iterator
from contextlib import suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("flwr", reason="needs the extra 'flower'")

from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import ec
from flwr.supercore.primitives.asymmetric import public_key_to_bytes, sign_message

from fedtailor.flower import keys
from fedtailor.flower.coordinator.gateway import MAX_PER_KEY, MAX_UNPROVEN
from tests.support.waiting import PATIENCE, wait_until

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


class EchoServer(ThreadingHTTPServer):
    """Listens on a Unix socket."""

    address_family = socket.AF_UNIX
    daemon_threads = True

    def server_bind(self) -> None:
        self.socket.bind(self.server_address)

    def get_request(self) -> tuple[socket.socket, Any]:
        return self.socket.accept()[0], ("echo", 0)


class RunningGateway:
    """A gateway with TLS before an echo."""

    def __init__(self, folder: Path, limit: int = LIMIT):
        self.authority = folder / "ca.pem"
        keys.init(folder, [], ["anna"])
        self.private = serialization.load_ssh_private_key((folder / "nodes/anna/node.key").read_bytes(), None)
        assert isinstance(self.private, ec.EllipticCurvePrivateKey)
        self.mine = b64encode(public_key_to_bytes(self.private.public_key())).decode()
        self.echo = EchoServer(str(folder / "echo.sock"), Echo)  # type: ignore[arg-type]
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
            "upstream": str(folder / "echo.sock"),
            "limit": limit,
        }
        files = {"certificate": "server.pem", "key": "server.key"}
        assert self.process.stdin is not None
        facts["known"] = [self.mine]
        self.process.stdin.write(json.dumps({**facts, **{k: str(folder / v) for k, v in files.items()}}) + "\n")
        self.process.stdin.flush()
        self.port = self.heard()["listening"]

    def heard(self) -> dict[str, Any]:
        assert self.process.stdout is not None
        found: dict[str, Any] = json.loads(self.process.stdout.readline())
        return found

    def connect(self) -> http.client.HTTPSConnection:
        context = ssl.create_default_context(cafile=str(self.authority))
        return http.client.HTTPSConnection("127.0.0.1", self.port, context=context, timeout=PATIENCE)

    def headers(self, key: str | None = None, signed: str = "now") -> dict[str, str]:
        assert isinstance(self.private, ec.EllipticCurvePrivateKey)
        signature = b64encode(sign_message(self.private, b"now")).decode()
        return {
            "flwr-public-key": key or self.mine,
            "flwr-timestamp": signed,
            "flwr-signature": signature,
            "cookie": "x",
        }

    def ask(self, path: str, body: bytes = b"", method: str = "POST", **more: str) -> tuple[int, str]:
        connection = self.connect()
        try:
            connection.request(method, path, body, self.headers(**more))
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
    assert json.loads(answer) == {"path": "/v1/fleet/pull-messages", "body": "hello", "key": gateway.mine}


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


def test_a_known_key_is_not_enough(gateway: RunningGateway) -> None:
    assert gateway.ask("/v1/fleet/pull-messages", b"hello", signed="tomorrow")[0] == 401
    assert gateway.heard()["reason"] == "has no valid signature"


def test_a_body_without_a_known_key_is_not_read(gateway: RunningGateway) -> None:
    connection = gateway.connect()
    connection.putrequest("POST", "/v1/fleet/push-object")
    for name, value in {**gateway.headers(signed="never"), "content-length": str(LIMIT)}.items():
        connection.putheader(name, value)
    connection.endheaders()  # and not one byte of the body
    assert connection.getresponse().status == 401
    connection.close()


def test_connections_without_a_key_do_not_keep_nodes_out(gateway: RunningGateway) -> None:
    idle = [socket.create_connection(("127.0.0.1", gateway.port), PATIENCE) for _ in range(MAX_UNPROVEN + 8)]
    assert gateway.ask("/v1/fleet/pull-messages", b"hello")[0] == 200
    with suppress(ConnectionResetError):
        assert idle[0].recv(1) == b""  # the oldest had to go
    for connection in idle:
        connection.close()


def test_a_node_has_few_connections(gateway: RunningGateway) -> None:
    opened = [gateway.connect() for _ in range(MAX_PER_KEY + 1)]
    statuses = []
    for connection in opened:
        connection.request("POST", "/v1/fleet/pull-messages", b"", gateway.headers())
        answer = connection.getresponse()
        answer.read()
        statuses.append(answer.status)
    assert statuses == [200] * MAX_PER_KEY + [429]
    for connection in opened:
        connection.close()
    wait_until(lambda: gateway.ask("/v1/fleet/pull-messages")[0] == 200, "a free place")


def test_a_large_message_passes_piece_by_piece(tmp_path: Path) -> None:
    made = RunningGateway(tmp_path / "keys", limit=2**23)
    try:
        body = b"x" * 2**23
        status, answer = made.ask("/v1/fleet/push-object", body)
        assert status == 200
        assert json.loads(answer)["body"] == body.decode()
    finally:
        made.close()


def test_with_keys_no_node_registers_itself(gateway: RunningGateway) -> None:
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


def test_a_client_with_another_authority_disconnects(gateway: RunningGateway, tmp_path: Path) -> None:
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
