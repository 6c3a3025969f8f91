"""The coordinator's connection to Flower: a SuperLink on the loopback, the gateway in front of it, a run on it."""

import socket
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import Any

from fedtailor.errors import UserError
from fedtailor.flower import programs, sockets
from fedtailor.flower.coordinator.gateway_process import GatewayProcess
from fedtailor.flower.coordinator.registry import Registry
from fedtailor.flower.coordinator.superlink import start_run, start_superlink
from fedtailor.flower.folders import TemporaryFolder
from fedtailor.flower.keys import ServerKeys
from fedtailor.flower.protocol import LOST_CODES
from fedtailor.messages.frames import Closed, Message, receive, send

START_TIMEOUT = 60.0  # seconds that Flower's programs have to start


class LinkLost(UserError):
    """Flower's part of the coordinator has ended."""


@dataclass(frozen=True)
class Reply:
    """The reply to a message: bytes, or the reason why there are none. A node that is ``lost`` may come back."""

    id: str
    data: bytes = b""
    error: str | None = None
    lost: bool = False


class Link:
    """Sends messages to nodes and fetches their replies. The caller closes it.

    Parameters
    ----------
    host, port : str, int
        Where nodes connect; port 0 chooses a free one. `port` holds the actual port.
    keys : ServerKeys or None
        Without keys there is no TLS and every node may connect.
    limit : int
        The largest message of a node, in bytes.
    refused : callable
        Receives a sentence for each connection that the gateway refuses.
    """

    poll, discovery = 0.2, 2.0  # seconds between two polls for replies, and for connected nodes
    names: Mapping[int, str] = MappingProxyType({})  # by node id: the name that is registered with its key

    def __init__(
        self,
        host: str,
        port: int,
        keys: ServerKeys | None,
        limit: int,
        refused: Callable[[str], None] = lambda sentence: None,
    ):
        self._folder = TemporaryFolder()
        self.home = self._folder.path
        self._superlink: programs.Program | None = None
        self._server_app: programs.Program | None = None
        self._gateway: GatewayProcess | None = None
        self._app: socket.socket | None = None  # connected to our server app
        self._registry: Registry | None = None
        try:
            self._superlink, upstream = start_superlink(self.home, authenticated=keys is not None)
            sockets.wait_for(upstream, self._superlink, START_TIMEOUT)
            self._gateway = GatewayProcess(host, port, upstream, keys, limit, self.home, refused)
            self.port = self._gateway.port
            self._app = self._connect_app(upstream, keys)
            if keys is not None:
                self._registry = Registry(keys, self._names, upstream, self._gateway, refused)
        except BaseException:
            self.close()
            raise

    def nodes(self) -> list[int]:
        """Return the ids of the connected nodes."""
        found: list[int] = self._request({"kind": "nodes"})[0]["nodes"]
        return found

    def push(self, messages: Sequence[tuple[int, bytes]], seconds: float, group: str) -> list[str]:
        """Send messages to nodes.

        Parameters
        ----------
        messages : sequence of (node id, bytes)
            Bytes that several messages share travel to the server app once.
        seconds : float
            How long Flower keeps a message.
        group : str
            Flower's name for messages that belong together.

        Returns
        -------
        list of str
            The id of each message; empty if Flower did not accept it.
        """
        blobs = list({id(data): data for _, data in messages}.values())
        places = {id(data): place for place, data in enumerate(blobs)}
        rows = [{"node": n, "blob": places[id(d)], "seconds": seconds, "group": group} for n, d in messages]
        ids: list[str] = self._request({"kind": "push", "messages": rows}, blobs)[0]["ids"]
        return ids

    def pull(self, ids: Iterable[str]) -> list[Reply]:
        """Return the replies to these messages that have arrived."""
        header, blobs = self._request({"kind": "pull", "ids": list(ids)})
        data = iter(blobs)
        return [
            Reply(row["id"], error=row["error"], lost=row["code"] in LOST_CODES)
            if "error" in row
            else Reply(row["id"], next(data))
            for row in header["replies"]
        ]

    def __enter__(self) -> "Link":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """End everything that was started."""
        if self._registry is not None:
            self._registry.close()
        if self._app is not None:
            self._app.close()
        if self._gateway is not None:
            self._gateway.close()
        for program in (self._server_app, self._superlink):
            if program is not None:
                program.stop()
        self._folder.close()

    def _connect_app(self, upstream: Path, keys: ServerKeys | None) -> socket.socket:
        """Start the run and wait until its server app has taken it up; the app inherits its connection to us."""
        run, self._names = start_run(upstream, keys)
        self.names = self._names
        ours, theirs = socket.socketpair()
        with theirs:
            module = "fedtailor.flower.coordinator.server_app"
            command = [sys.executable, "-m", module, str(upstream), str(run), str(theirs.fileno())]
            log = self.home / "server_app.log"
            self._server_app = programs.Program("Flower's app", command, self.home, log, [theirs.fileno()])
        ours.settimeout(START_TIMEOUT)
        try:
            receive(ours)
        except (Closed, TimeoutError):
            ours.close()
            raise UserError(f"Flower did not start the run: {self._server_app.last_lines(3)}") from None
        ours.settimeout(None)
        return ours

    def _request(self, header: dict[str, Any], blobs: Sequence[bytes] = ()) -> Message:
        """Have the server app do something, and return its answer."""
        assert self._app is not None
        assert self._superlink is not None
        try:
            send(self._app, header, blobs)
            answer, data = receive(self._app)
        except Closed:
            raise LinkLost(f"Flower's SuperLink has ended: {self._superlink.last_lines(3)}") from None
        if "failure" in answer:
            raise LinkLost(f"Flower's SuperLink does not answer ({answer['failure']})")
        return answer, data
