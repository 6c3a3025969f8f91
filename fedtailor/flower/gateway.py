"""The only door of a coordinator: it lets nodes reach Flower's fleet calls, and nothing else.

``python -m fedtailor.flower.gateway`` with a JSON object on stdin: host, port, upstream (a port of the loopback),
certificate, key, authority and known, the keys of the nodes (empty without TLS), limit (bytes of a request).

Flower serves nodes, runs and control on one port, and its control has no authentication. So the SuperLink stays on
the loopback and this program stands before it. It passes on ``/v1/fleet/...`` and refuses other paths and bodies over
the limit. On stdout it says, one JSON object a line, where it listens and whom it refused, and why.
"""

import http.client
import json
import socket
import ssl
import sys
import threading
from contextlib import suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

FLEET = "/v1/fleet/"
KEY = "flwr-public-key"
UNKNOWN_KEY = 407  # a status that Flower itself does not use: a node tells it from all other refusals
IDLE = 120.0  # seconds that a connection may be silent
LINGER = 2**26  # bytes that are read, and thrown away, of one who is refused
PASSED = ("content-type", "accept", "accept-encoding", "user-agent")  # besides Flower's own, which begin as follows
OWN = ("flwr-", "traceparent")


class Gateway(ThreadingHTTPServer):
    daemon_threads = True
    request_queue_size = 128

    def __init__(self, settings: dict[str, Any]):
        self.settings = settings
        self.limit: int = settings["limit"]
        self.known = frozenset(settings["known"])
        self.inward: ssl.SSLContext | None = None
        self.outward: ssl.SSLContext | None = None
        if settings["certificate"]:
            self.inward = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
            self.inward.minimum_version = ssl.TLSVersion.TLSv1_2
            self.inward.load_cert_chain(settings["certificate"], settings["key"])
            self.outward = ssl.create_default_context(cafile=settings["authority"])
        if ":" in settings["host"]:
            self.address_family = socket.AF_INET6
        super().__init__((settings["host"], settings["port"]), Door)

    def upstream(self) -> http.client.HTTPConnection:
        port = self.settings["upstream"]
        if self.outward is None:
            return http.client.HTTPConnection("127.0.0.1", port, timeout=IDLE)
        return http.client.HTTPSConnection("127.0.0.1", port, timeout=IDLE, context=self.outward)

    def handle_error(self, request: Any, client_address: Any) -> None:
        """A connection that broke: the node tries again."""


class Door(BaseHTTPRequestHandler):
    """One connection of a node."""

    protocol_version = "HTTP/1.1"
    timeout = IDLE
    server: Gateway

    def setup(self) -> None:
        self._behind: http.client.HTTPConnection | None = None
        if self.server.inward is not None:
            self.request.settimeout(IDLE)
            try:  # in the connection's own thread: a slow handshake keeps nobody waiting
                self.request = self.server.inward.wrap_socket(self.request, server_side=True)
            except (ssl.SSLError, OSError) as error:
                say(refused=self.client_address[0], reason=_handshake(error))
                raise
        super().setup()

    def finish(self) -> None:
        super().finish()
        if self._behind is not None:
            self._behind.close()

    def do_POST(self) -> None:
        length = self.headers.get("content-length", "")
        if not self.path.startswith(FLEET) or "/.." in self.path or "//" in self.path:
            self._refuse(403, f"asked for {self.path[:60]}, which is not open to nodes")
        elif self.path == FLEET + "register-node" and self.server.inward is not None:
            self._refuse(403, "has no key of its own and wanted to register itself")
        elif self.server.inward is not None and self.headers.get(KEY) not in self.server.known:
            self._refuse(UNKNOWN_KEY, "has a key that is not registered")
        elif not length.isdigit():
            self._refuse(411, "does not say how long its message is")
        elif int(length) > self.server.limit:
            self._refuse(413, f"sends {int(length):,} bytes; the limit is {self.server.limit:,}")
        else:
            self._pass_on(self.rfile.read(int(length)))

    def __getattr__(self, name: str) -> Any:
        if name.startswith("do_"):  # any other HTTP method
            return lambda: self._refuse(405, f"used the method {self.command[:10]}")
        raise AttributeError(name)

    def _pass_on(self, body: bytes) -> None:
        headers = {k: v for k, v in self.headers.items() if k.lower() in PASSED or k.lower().startswith(OWN)}
        try:
            if self._behind is None:
                self._behind = self.server.upstream()
            self._behind.request("POST", self.path, body, headers)
            answer = self._behind.getresponse()
            data = answer.read()
        except (OSError, http.client.HTTPException):  # Flower tries again by itself
            if self._behind is not None:
                self._behind.close()
            self._behind = None
            self._answer(503, b"", "text/plain")
            return
        if answer.status in (401, 403) or (answer.status >= 400 and self.path == FLEET + "activate-node"):
            say(refused=self.client_address[0], reason=_flower(data) or f"Flower refused it ({answer.status})")
        kept = {k: v for k, v in answer.getheaders() if k.lower().startswith(OWN)}
        self._answer(answer.status, data, answer.getheader("content-type") or "application/octet-stream", kept)

    def _refuse(self, status: int, reason: str) -> None:
        say(refused=self.client_address[0], reason=reason)
        self.close_connection = True
        self._answer(status, json.dumps({"message": f"refused: this node {reason}"}).encode(), "application/json")
        self._let_finish()

    def _answer(self, status: int, data: bytes, kind: str, headers: dict[str, str] | None = None) -> None:
        self.send_response(status)
        for name, value in {**(headers or {}), "Content-Type": kind, "Content-Length": str(len(data))}.items():
            self.send_header(name, value)
        if self.close_connection:
            self.send_header("Connection", "close")
        self.end_headers()
        self.wfile.write(data)

    def _let_finish(self) -> None:
        """Read on a little: who is cut off while it sends does not get to read why."""
        length = self.headers.get("content-length", "")
        left = min(int(length), LINGER) if length.isdigit() else 0
        self.connection.settimeout(5.0)
        with suppress(OSError):
            while left > 0 and (data := self.rfile.read(min(left, 1 << 16))):
                left -= len(data)

    def version_string(self) -> str:
        return "fedtailor"

    def log_message(self, *_: Any) -> None:
        """Nothing: nodes ask every few seconds."""


def say(**facts: Any) -> None:
    sys.stdout.write(json.dumps(facts) + "\n")
    sys.stdout.flush()


def _handshake(error: Exception) -> str:
    reason = getattr(error, "reason", None) or str(error)
    if "HTTP_REQUEST" in reason or "WRONG_VERSION" in reason or "UNEXPECTED_EOF" in reason:
        return "it does not speak TLS"
    if "UNKNOWN_CA" in reason or "CERTIFICATE" in reason:
        return "it does not know this coordinator's authority (another ca.pem?)"
    return f"no TLS connection came about ({reason})"


def _flower(data: bytes) -> str:
    """Flower's reason in its error message."""
    try:
        found = json.loads(data)
        found = found.get("detail", found)
        return f"Flower refused it: {found.get('message') or found.get('public_details') or ''}".strip()
    except (ValueError, AttributeError):
        return ""


if __name__ == "__main__":
    server = Gateway(json.loads(sys.stdin.readline()))
    say(listening=server.server_address[1])
    threading.Thread(target=server.serve_forever, daemon=True).start()
    sys.stdin.read()  # ends with the coordinator
