"""The nodes that are connected to a coordinator, by name: discovery, admission and waiting."""

import math
import time
from collections.abc import Callable
from dataclasses import replace
from typing import Any

from fedtailor.data.roster import Entry, misfit
from fedtailor.flower.coordinator.checking import read_hello
from fedtailor.flower.coordinator.link import Link, Reply
from fedtailor.messages.admission import admitted
from fedtailor.messages.frames import encode

HELLO_TIMEOUT = 60.0  # seconds a node has to describe itself
MAX_REPORTED = 100  # sentences that are not repeated


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
        self._said: set[str] = set()  # the latest sentences about nodes that were turned away
        self.discovered = -math.inf  # time of the last discovery

    def gather(self, clients: int, progress: Callable[[list[str]], None]) -> list[Entry]:
        """Wait for ``clients`` nodes whose data fit together; the order of their names gives the client ids.

        Nodes are grouped by the form of their data, so that one node with another shape cannot decide for the others.
        The nodes that are left over are turned away.
        """

        def missing() -> bool:
            group = self._largest_group()
            if len(group) < clients <= len(self.connected):
                self._report_misfits({entry.name for entry in group})
            return len(group) < clients

        self._wait_while(missing, lambda: [entry.name for entry in self._largest_group()], progress)
        self.members = self._largest_group()[:clients]
        for name, node in list(self.connected.items()):
            try:
                self._check_member(self._described[name])
            except ValueError as reason:
                del self.connected[name]
                self._refuse(node, name, str(reason))
        return self.members

    def _report_misfits(self, fitting: set[str]) -> None:
        """Say once which nodes do not count, although enough nodes are there."""
        for name in sorted(self.connected.keys() - fitting):
            sentence = f"{name} does not count: its data have another form than those of {', '.join(sorted(fitting))}"
            if sentence not in self._said:
                self._said.add(sentence)
                self.say(sentence)

    def reconnect(self, members: list[Entry], seconds: float, progress: Callable[[list[str]], None]) -> None:
        """Wait for the nodes of a run that is resumed: at most ``seconds``, but until one node is connected."""
        self.members = members
        end = time.monotonic() + seconds
        self._wait_while(
            lambda: len(self.connected) < len(members) and (time.monotonic() < end or not self.connected),
            lambda: sorted(self.connected),
            progress,
        )

    def wait_for_any(self, stop: Callable[[], bool] = lambda: False) -> None:
        """Wait until a node is connected: a round without a client would be wasted.

        Raises KeyboardInterrupt if the user asks to ``stop`` meanwhile: there may never be a round boundary.
        """
        if not self.connected:
            self.say("no node is connected: waiting")
            self._wait_while(lambda: not self.connected and not stop())
            if not self.connected:
                raise KeyboardInterrupt

    def revoked(self, name: str) -> bool:
        """Return whether the key of a node is not registered any more."""
        return bool(self.link.names) and name not in self.link.names.values()

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
            time.sleep(self.link.poll)

    def _discover(self) -> None:
        """Forget nodes that left, and ask new ones for their description."""
        now = time.monotonic()
        if now - self.discovered < self.link.discovery:
            return
        self.discovered = now
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

    def _largest_group(self) -> list[Entry]:
        """The largest group of described nodes whose data fit together, by name; of several the one that came first."""
        groups: list[list[Entry]] = []
        for entry in self._described.values():
            group = next((group for group in groups if _fits(entry, group)), None)
            groups.append([entry]) if group is None else group.append(entry)
        largest = max((len(group) for group in groups), default=0)
        found = next((group for group in groups if len(group) == largest), [])
        return sorted(found, key=lambda entry: entry.name)

    def _admit(self, node: int, reply: Reply) -> None:
        """Register a node that described itself, if it may take part."""
        registered = self.link.names.get(node)
        read = admitted(lambda: self._read(registered, reply))
        if read.value is None:
            self._refuse(node, registered, read.reason or "")
            return
        entry = read.value
        self._asked.pop(node, None)
        self.connected[entry.name] = node
        self._described[entry.name] = entry
        group = self._largest_group()
        if not self.members and (part := misfit(entry, group[0])):
            most, its = group[0].form[part], entry.form[part]
            self._report_once(f"{entry.name} waits: its data have the {part} {its}, those of {group[0].name} {most}")

    def _read(self, registered: str | None, reply: Reply) -> Entry:
        if reply.error is not None:
            raise ValueError(reply.error)
        entry = read_hello(reply.data)
        if registered is not None:  # a node's name is that of its key, whatever it says
            entry = replace(entry, name=registered)
        if entry.name in self.connected:
            raise ValueError(f"a node named {entry.name!r} is already connected")
        self._check_member(entry)
        return entry

    def _refuse(self, node: int, name: str | None, reason: str) -> None:
        """Tell the user and the node why the node does not take part."""
        self._report_once(f"{name or 'a node'} was turned away: {reason}")
        self.link.push([(node, encode({"kind": "turned away", "reason": reason}))], HELLO_TIMEOUT, "turned away")

    def _report_once(self, sentence: str) -> None:
        """Nodes are asked again every minute; their answer is news only once."""
        if sentence not in self._said:
            self._said = {*list(self._said)[-MAX_REPORTED:], sentence}
            self.say(sentence)

    def _check_member(self, entry: Entry) -> None:
        if self.bf16 and entry.environment.get("bf16") != "native":
            raise ValueError(
                f"{entry.name!r} cannot compute in bf16 natively: use another machine, or training.precision = 'fp32'"
            )
        if not self.members:
            return
        before = next((member for member in self.members if member.name == entry.name), None)
        if before is None:
            part = misfit(entry, self.members[0])
            why = f": its data have the {part} {entry.form[part]}, not {self.members[0].form[part]}" if part else ""
            raise ValueError(f"{entry.name!r} does not belong to this run, which has begun{why}")
        if before.digest != entry.digest:
            raise ValueError(
                f"the data of {entry.name!r} changed since the run began, or its --state folder is another"
            )


def _fits(entry: Entry, group: list[Entry]) -> bool:
    """Whether a node fits every node of a group. If it fits a first node that is decided, it fits the others."""
    return all(misfit(entry, other) is None for other in (group if group[0].undecided else group[:1]))
