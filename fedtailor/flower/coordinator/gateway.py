"""The gateway of a coordinator: nodes can reach Flower's fleet calls through it, and nothing else.

``python -m fedtailor.flower.coordinator.gateway`` reads a JSON object from stdin: host, port, upstream (the SuperLink's
socket), limit (bytes of a request), and for TLS certificate, key and known (the public keys of the nodes); these are
empty without TLS.

Flower serves nodes, runs and control in one place, and its control has no authentication. So the SuperLink listens on a
Unix socket, behind this program. The gateway forwards ``/v1/fleet/...`` and refuses other paths and bodies over the
limit. It verifies a node's signature before it reads a body, forwards bodies piece by piece, and bounds the
connections: those without a proven key are few and short. It writes JSON objects to stdout, one per line: first where
it listens, then each refusal and its reason.
"""

import http.client
import json
import socket
import ssl
import sys
import threading
import time
from base64 import b64decode
from collections import Counter
from contextlib import suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from io import BufferedIOBase
from typing import Any

from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec

from fedtailor.flower.protocol import FLEET_PATH, UNKNOWN_KEY_STATUS

KEY_HEADER, SIGNATURE_HEADER, SIGNED_HEADER = "flwr-public-key", "flwr-signature", "flwr-timestamp"
IDLE_TIMEOUT = 120.0  # seconds that a connection may be silent
PROOF_TIMEOUT = 20.0  # seconds in which a new connection has to prove a key
MAX_UNPROVEN = 64  # connections without a proven key; the oldest makes place for a new one
MAX_PER_KEY = 16  # connections of one node; Flower opens one or two
MAX_CONNECTIONS = 1024
DRAIN_LIMIT = 2**26  # bytes of a refused request of a known node that are read and discarded
PIECE = 1 << 16  # bytes that are forwarded at a time
LARGEST_KEY = 1000  # characters of a refused key that are reported
LARGEST_REASON = 1 << 16  # bytes of an answer in which Flower gives the reason of a refusal
FORWARDED_HEADERS = ("content-type", "accept", "accept-encoding", "user-agent")  # in addition to Flower's own
FLOWER_PREFIXES = ("flwr-", "traceparent")  # of the names of Flower's own headers


class Gateway(ThreadingHTTPServer):
    """The server that nodes connect to: a thread per connection, with TLS if there is a certificate."""

    daemon_threads = True
    request_queue_size = 128

    def __init__(self, settings: dict[str, Any]):
        self.upstream: str = settings["upstream"]
        self.limit: int = settings["limit"]
        self.known = {name: _public_key(name) for name in settings["known"]}
        self.inward: ssl.SSLContext | None = None
        self._lock = threading.Lock()
        self._open = 0  # connections
        self._unproven: dict[GatewayHandler, float] = {}  # the deadline of connections without a proven key
        self._of_key: Counter[str] = Counter()
        self._proven: set[GatewayHandler] = set()  # connections with a proven key
        if settings["certificate"]:
            self.inward = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
            self.inward.minimum_version = ssl.TLSVersion.TLSv1_2
            self.inward.load_cert_chain(settings["certificate"], settings["key"])
        if ":" in settings["host"]:
            self.address_family = socket.AF_INET6
        super().__init__((settings["host"], settings["port"]), GatewayHandler)

    def process_request(self, request: Any, client_address: Any) -> None:
        with self._lock:
            full = self._open >= MAX_CONNECTIONS
            self._open += not full
        if full:
            self.shutdown_request(request)
        else:
            super().process_request(request, client_address)

    def process_request_thread(self, request: Any, client_address: Any) -> None:
        try:
            super().process_request_thread(request, client_address)
        finally:
            with self._lock:
                self._open -= 1

    def begin(self, handler: "GatewayHandler") -> None:
        """Register a new connection, which has to prove a key soon."""
        with self._lock:
            self._unproven[handler] = time.monotonic() + PROOF_TIMEOUT
            if len(self._unproven) > MAX_UNPROVEN:
                oldest = next(iter(self._unproven))
                del self._unproven[oldest]
                _cut(oldest)

    def prove(self, handler: "GatewayHandler", key: str) -> bool:
        """Register the key of a connection; return whether the node may have another connection."""
        with self._lock:
            if handler.key != key:
                if self._of_key[key] >= MAX_PER_KEY:
                    return False
                self._forget(handler)
                self._of_key[key] += 1
                self._proven.add(handler)
                handler.key = key
            return True

    def set_keys(self, keys: list[str]) -> None:
        """Admit exactly these keys from now on; cut all other connections."""
        with self._lock:
            self.known = {name: _public_key(name) for name in keys}
            for handler in [handler for handler in self._proven if handler.key not in self.known]:
                _cut(handler)

    def end(self, handler: "GatewayHandler") -> None:
        """Forget a connection."""
        with self._lock:
            self._forget(handler)

    def service_actions(self) -> None:
        """Cut connections that did not prove a key in time; the server calls this twice a second."""
        now = time.monotonic()
        with self._lock:
            for handler in [handler for handler, deadline in self._unproven.items() if deadline < now]:
                _cut(handler)

    def _forget(self, handler: "GatewayHandler") -> None:
        self._unproven.pop(handler, None)
        self._proven.discard(handler)
        if handler.key:
            self._of_key[handler.key] -= 1
            handler.key = ""

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Ignore a broken connection: the node tries again."""


class GatewayHandler(BaseHTTPRequestHandler):
    """Forwards or refuses the requests of one connection."""

    protocol_version = "HTTP/1.1"
    timeout = IDLE_TIMEOUT
    server: Gateway
    key = ""  # that the connection has proved

    def setup(self) -> None:
        self.request.settimeout(IDLE_TIMEOUT)
        inward = self.server.inward
        if inward is not None:
            self.request = inward.wrap_socket(self.request, server_side=True, do_handshake_on_connect=False)
            self.server.begin(self)
            try:  # in the connection's own thread: a slow handshake does not delay other nodes
                self.request.do_handshake()
            except (ssl.SSLError, OSError) as error:
                self.server.end(self)
                report(refused=self.client_address[0], reason=_handshake_failure(error))
                raise
        super().setup()

    def finish(self) -> None:
        self.server.end(self)
        super().finish()
        if isinstance(self.request, ssl.SSLSocket):  # the server closes only the socket that it accepted
            self.request.close()

    def do_POST(self) -> None:
        length = self.headers.get("content-length", "")
        secured = self.server.inward is not None
        if not self.path.startswith(FLEET_PATH) or "/.." in self.path or "//" in self.path:
            self._refuse(403, f"asked for {self.path[:60]}, which nodes may not use")
        elif self.path == FLEET_PATH + "register-node" and secured:
            self._refuse(403, "has no key and tried to register itself")
        elif secured and self.headers.get(KEY_HEADER) not in self.server.known:
            self._refuse(UNKNOWN_KEY_STATUS, "has a key that is not registered")
        elif secured and not self._signed():
            self._refuse(401, "has no valid signature")
        elif secured and not self.server.prove(self, self.headers[KEY_HEADER]):
            self._refuse(429, f"has more than {MAX_PER_KEY} connections")
        elif not length.isdigit():
            self._refuse(411, "does not say how long its message is")
        elif int(length) > self.server.limit:
            self._refuse(413, f"sends {int(length):,} bytes; the limit is {self.server.limit:,}")
        else:
            self._forward(int(length))

    def __getattr__(self, name: str) -> Any:
        if name.startswith("do_"):  # any other HTTP method
            return lambda: self._refuse(405, f"used the method {self.command[:10]}")
        raise AttributeError(name)

    def _signed(self) -> bool:
        """Return whether the sender has the private key of its public key; Flower checks the time that it signed."""
        try:
            signature = b64decode(self.headers[SIGNATURE_HEADER], validate=True)
            signed = self.headers[SIGNED_HEADER].encode("ascii")
            self.server.known[self.headers[KEY_HEADER]].verify(signature, signed, ec.ECDSA(hashes.SHA256()))
            return True
        except (AttributeError, TypeError, ValueError, InvalidSignature):
            return False

    def _forward(self, length: int) -> None:
        headers = {name: value for name, value in self.headers.items() if _forwarded(name)}
        body = _Body(self.rfile, length)
        upstream = _Upstream(self.server.upstream)
        try:
            try:
                upstream.request("POST", self.path, body, {**headers, "Content-Length": str(length)})
                answer = upstream.getresponse()
            except (OSError, http.client.HTTPException):  # Flower tries again by itself
                self.close_connection = body.left > 0
                self._answer(503, b"", "text/plain")
                return
            self._return(answer)
        finally:
            upstream.close()

    def _return(self, answer: http.client.HTTPResponse) -> None:
        """Send Flower's answer to the node."""
        if answer.status in (401, 403) or (answer.status >= 400 and self.path == FLEET_PATH + "activate-node"):
            data = answer.read(LARGEST_REASON)
            report(refused=self.client_address[0], reason=_flower_reason(data, answer.status))
        else:
            data = answer.read(PIECE) if answer.length is not None else answer.read()
        kept = {k: v for k, v in answer.getheaders() if k.lower().startswith(FLOWER_PREFIXES)}
        kind = answer.getheader("content-type") or "application/octet-stream"
        self._answer(answer.status, data, kind, kept, len(data) + (answer.length or 0))
        while piece := answer.read(PIECE):
            self.wfile.write(piece)

    def _refuse(self, status: int, reason: str) -> None:
        report(refused=self.client_address[0], reason=reason, key=self.headers.get(KEY_HEADER, "")[:LARGEST_KEY])
        self.close_connection = True
        self._answer(status, json.dumps({"message": f"refused: this node {reason}"}).encode(), "application/json")
        self._drain()

    def _answer(
        self, status: int, data: bytes, kind: str, headers: dict[str, str] | None = None, length: int | None = None
    ) -> None:
        """Send an answer that begins with ``data`` and has ``length`` bytes; by default only those."""
        self.send_response(status)
        size = str(len(data) if length is None else length)
        for name, value in {**(headers or {}), "Content-Type": kind, "Content-Length": size}.items():
            self.send_header(name, value)
        if self.close_connection:
            self.send_header("Connection", "close")
        self.end_headers()
        self.wfile.write(data)

    def _drain(self) -> None:
        """Read the rest of the request: a node that is cut off while it sends cannot read the refusal."""
        length = self.headers.get("content-length", "")
        limit = DRAIN_LIMIT if self.key or self.server.inward is None else PIECE
        left = min(int(length), limit) if length.isdigit() else 0
        self.connection.settimeout(5.0)
        with suppress(OSError):
            while left > 0 and (data := self.rfile.read(min(left, 1 << 16))):
                left -= len(data)

    def version_string(self) -> str:
        return "fedtailor"

    def log_message(self, *_: Any) -> None:
        """Log nothing: nodes ask every few seconds."""


class _Body:
    """The body of a request, to be read piece by piece."""

    def __init__(self, source: BufferedIOBase, length: int):
        self.left, self._source = length, source

    def read(self, size: int = PIECE) -> bytes:
        data = self._source.read(min(size, self.left)) if self.left else b""
        if self.left and not data:
            raise ConnectionError("the node stopped in the middle of its message")
        self.left -= len(data)
        return data


class _Upstream(http.client.HTTPConnection):
    """A connection to the SuperLink."""

    def __init__(self, path: str):
        super().__init__("superlink", timeout=IDLE_TIMEOUT, blocksize=PIECE)
        self._path = path

    def connect(self) -> None:
        self.sock = socket.socket(socket.AF_UNIX)
        self.sock.settimeout(IDLE_TIMEOUT)
        self.sock.connect(self._path)


def _cut(handler: GatewayHandler) -> None:
    """End a connection from another thread; its own thread then fails to read."""
    with suppress(OSError):
        socket.socket.shutdown(handler.request, socket.SHUT_RDWR)


def _public_key(encoded: str) -> ec.EllipticCurvePublicKey:
    key = serialization.load_pem_public_key(b64decode(encoded))
    assert isinstance(key, ec.EllipticCurvePublicKey)
    return key


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
    for line in sys.stdin:  # until the coordinator ends
        server.set_keys(json.loads(line)["known"])
