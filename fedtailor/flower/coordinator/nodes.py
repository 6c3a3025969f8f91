"""The nodes that are connected to a coordinator, by name: discovery, admission and waiting."""

import math
import time
from collections.abc import Callable
from typing import Any

from fedtailor.data.roster import Entry
from fedtailor.flower.coordinator.checking import shortened
from fedtailor.flower.coordinator.link import Link, Reply
from fedtailor.messages.frames import decode, encode

POLL = 0.2  # seconds between two polls for replies
DISCOVERY = 2.0  # seconds between two polls for connected nodes
HELLO_TIMEOUT = 60.0  # seconds a node has to describe itself


class Nodes:
    """Keeps track of the connected nodes and admits those that may take part.

    Parameters
    ----------
    link : Link
        The connection to Flower.
    data : dict
        How a node splits its data: settings, seed, validation. Every new node receives it.
    say : callable
        Receives one sentence for every node that leaves or is refused.
    bf16 : bool
        Whether the run needs nodes whose device computes in bf16 natively.
    """

    def __init__(self, link: Link, data: dict[str, Any], say: Callable[[str], None], bf16: bool = False):
        self.link, self.data, self.say, self.bf16 = link, data, say, bf16
        self.members: list[Entry] = []  # the clients of the run in the order of their ids; empty until it begins
        self.connected: dict[str, int] = {}  # Flower's id of each connected node, by name
        self._described: dict[str, Entry] = {}  # all nodes that were admitted, by name
        self._asked: dict[int, float] = {}  # when a node without a name was asked for its description
        self._hellos: dict[str, int] = {}  # the node of each hello without a reply, by message id
        self._discovered = -math.inf  # time of the last discovery

    def gather(self, clients: int, progress: Callable[[list[str]], None]) -> list[Entry]:
        """Wait until ``clients`` nodes have described themselves; the order of their names gives the client ids."""
        self._wait_while(lambda: len(self._described) < clients, lambda: sorted(self._described), progress)
        self.members = [self._described[name] for name in sorted(self._described)][:clients]
        return self.members

    def reconnect(self, members: list[Entry], seconds: float, progress: Callable[[list[str]], None]) -> None:
        """Wait for the nodes of a run that is resumed: at most ``seconds``, but until one node is connected."""
        self.members = members
        end = time.monotonic() + seconds
        self._wait_while(
            lambda: len(self.connected) < len(members) and (time.monotonic() < end or not self.connected),
            lambda: sorted(self.connected),
            progress,
        )

    def wait_for_any(self) -> None:
        """Wait until a node is connected: a round without a client would be wasted."""
        if not self.connected:
            self.say("no node is connected: waiting")
            self._wait_while(lambda: not self.connected)

    def update(self) -> None:
        """Notice nodes that connected or left, and read the descriptions that arrived."""
        self._discover()
        for reply in self.link.pull(self._hellos) if self._hellos else []:
            node = self._hellos.pop(reply.id, None)
            if node is not None:
                self._admit(node, reply)

    def _wait_while(
        self,
        missing: Callable[[], bool],
        names: Callable[[], list[str]] = list,
        progress: Callable[[list[str]], None] = lambda names: None,
    ) -> None:
        """Update while nodes are ``missing``; report ``names`` whenever they change."""
        shown: list[str] = []
        while missing():
            self.update()
            if names() != shown:
                shown = names()
                progress(shown)
            time.sleep(POLL)

    def _discover(self) -> None:
        """Forget nodes that left, and ask new ones for their description."""
        now = time.monotonic()
        if now - self._discovered < DISCOVERY:
            return
        self._discovered = now
        present = set(self.link.nodes())
        for name in [name for name, node in self.connected.items() if node not in present]:
            self.say(f"{name} disconnected")
            del self.connected[name]
        self._asked = {n: when for n, when in self._asked.items() if n in present and now - when < HELLO_TIMEOUT}
        for node in sorted(present - set(self.connected.values()) - self._asked.keys()):
            self._asked[node] = now
            message = encode({"kind": "hello", "data": self.data})
            (identity,) = self.link.push([(node, message)], HELLO_TIMEOUT, "hello")
            self._hellos[identity] = node

    def _admit(self, node: int, reply: Reply) -> None:
        """Register a node that described itself, if it may take part."""
        try:
            if reply.error is not None:
                raise ValueError(shortened(reply.error))
            header, _ = decode(reply.data)
            if header["kind"] == "refusal":
                raise ValueError(shortened(header["reason"]))
            entry = Entry.read(header["entry"])
            self._check_member(entry)
        except (KeyError, TypeError, ValueError) as error:
            self.say(f"a node was refused: {error}")
            return
        self._asked.pop(node, None)
        self.connected[entry.name] = node
        self._described[entry.name] = entry

    def _check_member(self, entry: Entry) -> None:
        if self.bf16 and entry.environment.get("bf16") != "native":
            raise ValueError(
                f"{entry.name!r} cannot compute in bf16 natively: use another machine, or training.precision = 'fp32'"
            )
        if entry.name in self.connected:
            raise ValueError(f"a node named {entry.name!r} is already connected")
        if not self.members:
            return
        before = next((member for member in self.members if member.name == entry.name), None)
        if before is None:
            raise ValueError(f"{entry.name!r} does not belong to this run, which has begun")
        if before.digest != entry.digest:
            raise ValueError(f"the data of {entry.name!r} changed since the run began")
