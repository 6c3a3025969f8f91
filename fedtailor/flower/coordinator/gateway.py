"""The gateway of a coordinator: nodes can reach Flower's fleet calls through it, and nothing else.

``python -m fedtailor.flower.coordinator.gateway`` reads a JSON object from stdin: host, port, upstream (a port on the
loopback), limit (bytes of a request), and for TLS certificate, key, authority and known (the public keys of the
nodes); these are empty without TLS.

Flower serves nodes, runs and control on one port, and its control has no authentication. So the SuperLink listens on
the loopback only, behind this program. The gateway forwards ``/v1/fleet/...`` and refuses other paths and bodies over
the limit. It writes JSON objects to stdout, one per line: first where it listens, then each refusal and its reason.
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

from fedtailor.flower.protocol import FLEET_PATH, UNKNOWN_KEY_STATUS

KEY_HEADER = "flwr-public-key"
IDLE_TIMEOUT = 120.0  # seconds that a connection may be silent
DRAIN_LIMIT = 2**26  # bytes of a refused request that are read and discarded
FORWARDED_HEADERS = ("content-type", "accept", "accept-encoding", "user-agent")  # in addition to Flower's own
FLOWER_PREFIXES = ("flwr-", "traceparent")  # of the names of Flower's own headers


class Gateway(ThreadingHTTPServer):
    """The server that nodes connect to: a thread per connection, with TLS if there is a certificate."""

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
        super().__init__((settings["host"], settings["port"]), GatewayHandler)

    def upstream(self) -> http.client.HTTPConnection:
        """Return a new connection to the SuperLink."""
        port = self.settings["upstream"]
        if self.outward is None:
            return http.client.HTTPConnection("127.0.0.1", port, timeout=IDLE_TIMEOUT)
        return http.client.HTTPSConnection("127.0.0.1", port, timeout=IDLE_TIMEOUT, context=self.outward)

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Ignore a broken connection: the node tries again."""


class GatewayHandler(BaseHTTPRequestHandler):
    """Forwards or refuses the requests of one connection."""

    protocol_version = "HTTP/1.1"
    timeout = IDLE_TIMEOUT
    server: Gateway

    def setup(self) -> None:
        self._upstream: http.client.HTTPConnection | None = None
        if self.server.inward is not None:
            self.request.settimeout(IDLE_TIMEOUT)
            try:  # in the connection's own thread: a slow handshake does not delay other nodes
                self.request = self.server.inward.wrap_socket(self.request, server_side=True)
            except (ssl.SSLError, OSError) as error:
                report(refused=self.client_address[0], reason=_handshake_failure(error))
                raise
        super().setup()

    def finish(self) -> None:
        super().finish()
        if self._upstream is not None:
            self._upstream.close()

    def do_POST(self) -> None:
        length = self.headers.get("content-length", "")
        if not self.path.startswith(FLEET_PATH) or "/.." in self.path or "//" in self.path:
            self._refuse(403, f"asked for {self.path[:60]}, which nodes may not use")
        elif self.path == FLEET_PATH + "register-node" and self.server.inward is not None:
            self._refuse(403, "has no key and tried to register itself")
        elif self.server.inward is not None and self.headers.get(KEY_HEADER) not in self.server.known:
            self._refuse(UNKNOWN_KEY_STATUS, "has a key that is not registered")
        elif not length.isdigit():
            self._refuse(411, "does not say how long its message is")
        elif int(length) > self.server.limit:
            self._refuse(413, f"sends {int(length):,} bytes; the limit is {self.server.limit:,}")
        else:
            self._forward(self.rfile.read(int(length)))

    def __getattr__(self, name: str) -> Any:
        if name.startswith("do_"):  # any other HTTP method
            return lambda: self._refuse(405, f"used the method {self.command[:10]}")
        raise AttributeError(name)

    def _forward(self, body: bytes) -> None:
        headers = {name: value for name, value in self.headers.items() if _forwarded(name)}
        try:
            if self._upstream is None:
                self._upstream = self.server.upstream()
            self._upstream.request("POST", self.path, body, headers)
            answer = self._upstream.getresponse()
            data = answer.read()
        except (OSError, http.client.HTTPException):  # Flower tries again by itself
            if self._upstream is not None:
                self._upstream.close()
            self._upstream = None
            self._answer(503, b"", "text/plain")
            return
        if answer.status in (401, 403) or (answer.status >= 400 and self.path == FLEET_PATH + "activate-node"):
            report(refused=self.client_address[0], reason=_flower_reason(data, answer.status))
        kept = {k: v for k, v in answer.getheaders() if k.lower().startswith(FLOWER_PREFIXES)}
        self._answer(answer.status, data, answer.getheader("content-type") or "application/octet-stream", kept)

    def _refuse(self, status: int, reason: str) -> None:
        report(refused=self.client_address[0], reason=reason)
        self.close_connection = True
        self._answer(status, json.dumps({"message": f"refused: this node {reason}"}).encode(), "application/json")
        self._drain()

    def _answer(self, status: int, data: bytes, kind: str, headers: dict[str, str] | None = None) -> None:
        self.send_response(status)
        for name, value in {**(headers or {}), "Content-Type": kind, "Content-Length": str(len(data))}.items():
            self.send_header(name, value)
        if self.close_connection:
            self.send_header("Connection", "close")
        self.end_headers()
        self.wfile.write(data)

    def _drain(self) -> None:
        """Read the rest of the request: a node that is cut off while it sends cannot read the refusal."""
        length = self.headers.get("content-length", "")
        left = min(int(length), DRAIN_LIMIT) if length.isdigit() else 0
        self.connection.settimeout(5.0)
        with suppress(OSError):
            while left > 0 and (data := self.rfile.read(min(left, 1 << 16))):
                left -= len(data)

    def version_string(self) -> str:
        return "fedtailor"

    def log_message(self, *_: Any) -> None:
        """Log nothing: nodes ask every few seconds."""


def report(**facts: Any) -> None:
    """Write a line for the coordinator."""
    sys.stdout.write(json.dumps(facts) + "\n")
    sys.stdout.flush()


def _forwarded(header: str) -> bool:
    return header.lower() in FORWARDED_HEADERS or header.lower().startswith(FLOWER_PREFIXES)


def _handshake_failure(error: Exception) -> str:
    """Say why a TLS handshake failed."""
    reason = getattr(error, "reason", None) or str(error)
    if "HTTP_REQUEST" in reason or "WRONG_VERSION" in reason or "UNEXPECTED_EOF" in reason:
        return "it does not speak TLS"
    if "UNKNOWN_CA" in reason or "CERTIFICATE" in reason:
        return "it does not know this coordinator's authority (another ca.pem?)"
    return f"the TLS handshake failed ({reason})"


def _flower_reason(data: bytes, status: int) -> str:
    """Return the reason in Flower's error message, or its status."""
    try:
        found = json.loads(data)
        found = found.get("detail", found)
        return f"Flower refused it: {found.get('message') or found.get('public_details') or ''}".strip()
    except (ValueError, AttributeError):
        return f"Flower refused it ({status})"


if __name__ == "__main__":
    server = Gateway(json.loads(sys.stdin.readline()))
    report(listening=server.server_address[1])
    threading.Thread(target=server.serve_forever, daemon=True).start()
    sys.stdin.read()  # returns when the coordinator ends
