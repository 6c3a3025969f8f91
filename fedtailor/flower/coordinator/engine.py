"""The engine of a federation: a task travels to the node of its client, the result comes back.

A client's state never travels: its digest does, both ways. The engine checks everything that a node sends.
"""

import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from math import inf
from typing import Any, ClassVar

from fedtailor.data.roster import Entry
from fedtailor.engines import Engine, Job, Result, Task
from fedtailor.engines.codec import job_header, task_message
from fedtailor.errors import UserError, one_line
from fedtailor.flower.coordinator.checking import client_of, failed_results, read_results
from fedtailor.flower.coordinator.link import Link, Reply
from fedtailor.flower.coordinator.nodes import Nodes
from fedtailor.learning.measures import check_measured
from fedtailor.learning.tensors import inputs_of
from fedtailor.messages.admission import admitted
from fedtailor.messages.frames import encode
from fedtailor.methods import BUILT_IN, AgentMethod

GRACE = 30.0  # seconds after the deadline for which Flower keeps a message, so that our deadline comes first
END_TIMEOUT = 15.0  # seconds to wait for the nodes to acknowledge the end of a run
RETURN_TIMEOUT = 60.0  # seconds that a lost node has to come back, so that it gets its tasks again

REVOKED = "its key is not valid any more"


@dataclass(frozen=True)
class PendingMessage:
    """A message with tasks that waits for its reply; times are those of time.monotonic."""

    client: int
    tasks: list[Task]
    cohort: int  # the number of clients that have tasks now
    sent: float
    end: float  # by when its node must have answered
    lost: float = 0.0  # when its node was lost, the last time
    back: float = inf  # by when its node must have come back


@dataclass
class FlowerEngine(Engine):
    """Executes tasks on the nodes of a federation.

    Parameters
    ----------
    link : Link
        The connection to Flower.
    nodes : Nodes
        The connected nodes; its members are the clients of the run.
    run_name : str
        The run's name; a node keeps states and model in a folder of this name.
    rounds : int
        The number of rounds of the run.
    deadline : float
        Seconds that a node has to answer a message.
    limit : int
        The largest message, in bytes.
    privacy : mapping
        The privacy of the run's clients, which owners of nodes may insist on.
    """

    remote: ClassVar[bool] = True

    link: Link
    nodes: Nodes
    run_name: str
    rounds: int
    deadline: float
    limit: int
    privacy: Mapping[str, Any] = field(default_factory=dict)
    _job: Job | None = None

    def start(self, job: Job) -> None:
        # Without a virtual clock, which counts work, the time that tasks take is measured on the nodes.
        self._job = replace(job, measured=not job.counts_work)

    def run(self, tasks: Iterable[Task]) -> Iterator[Result]:
        by_client: dict[int, list[Task]] = {}
        for task in tasks:
            by_client.setdefault(client_of(task), []).append(task)
        self.nodes.wait_for_any(self.stop)
        pending = self._send(by_client)
        reached = {message.client for message in pending.values()}
        for client in [client for client in by_client if client not in reached]:
            yield from failed_results(by_client[client], "its node is not connected")
        lost: list[PendingMessage] = []
        while pending or lost:
            self.nodes.update()
            for results in self._collect(pending, lost):
                yield from results
            self._send_again(lost, pending)
            for message, reason in self._left_out(pending, lost):
                yield from failed_results(message.tasks, reason)
            time.sleep(self.link.poll)

    def end_run(self) -> None:
        """Tell the nodes that the run is finished; a node that does not hear it waits for the next run."""
        message = encode({"kind": "finished", "run": self.run_name})
        ids = self.link.push([(node, message) for node in self.nodes.connected.values()], 4 * END_TIMEOUT, "finished")
        waiting, end = set(ids), time.monotonic() + END_TIMEOUT
        while waiting and time.monotonic() < end:
            waiting -= {reply.id for reply in self.link.pull(waiting)}
            time.sleep(self.link.poll)

    def close(self) -> None:
        self.link.close()

    def _send(self, by_client: Mapping[int, list[Task]]) -> dict[str, PendingMessage]:
        """Send its tasks to every client that is connected; return the pending messages by id."""
        names, sent = [member.name for member in self.nodes.members], time.monotonic()
        clients = [client for client in by_client if names[client] in self.nodes.connected]
        end, cohort = sent + self.deadline, len(clients)
        return self._push([PendingMessage(client, by_client[client], cohort, sent, end) for client in clients])

    def _push(self, messages: Sequence[PendingMessage]) -> dict[str, PendingMessage]:
        """Send messages to their nodes, which are connected; return those that Flower accepted, by id."""
        if not messages:
            return {}
        parcels = [(self.nodes.connected[self._name(message)], self._message(message)) for message in messages]
        ids = self.link.push(parcels, self.deadline + GRACE, f"round {messages[0].tasks[0].moment.round}")
        return {identity: message for identity, message in zip(ids, messages, strict=True) if identity}

    def _message(self, message: PendingMessage) -> bytes:
        header, blobs = task_message(message.tasks)
        data = encode({**header, **self._setting(message.client), "cohort": message.cohort}, blobs)
        if len(data) > self.limit:
            raise UserError(
                f"a message to {self._name(message)!r} has {len(data):,} bytes, the limit is "
                f"{self.limit:,}: raise engine.limit"
            )
        return data

    def _setting(self, client: int) -> dict[str, Any]:
        """What a node must know besides its tasks. It is in every message, because a node may have restarted."""
        assert self._job is not None, "start comes first"
        job, federation = self._job, self._job.federation
        if isinstance(job.method, AgentMethod) and job.method.own_policy is not None:  # a path on this machine
            job = replace(job, method=job.method.model_copy(update={"policy": BUILT_IN}))  # which also is a policy
        return {
            "run": self.run_name,
            "rounds": self.rounds,
            "client": client,
            "clients": federation.clients,
            "job": {**job_header(job, None), "imports": None},  # a node has rules of its own
            "outline": {**federation.outline(), "names": []},  # a node need not know the others' names
            "data": self.nodes.data,
            "limit": self.limit,
            "privacy": dict(self.privacy),
        }

    def _collect(self, pending: dict[str, PendingMessage], lost: list[PendingMessage]) -> list[list[Result]]:
        """Remove the messages that were answered; the results of each. Messages of lost nodes are put aside."""
        found = []
        for reply in self.link.pull(pending) if pending else ():
            message = pending.pop(reply.id, None)
            if message is None:
                continue
            if reply.lost and not self.nodes.revoked(self._name(message)):
                now = time.monotonic()
                back = min(message.back, message.end, now + RETURN_TIMEOUT)
                self.nodes.say(
                    f"{self._name(message)} was lost while it worked: it has {back - now:.0f} s to come back"
                )
                lost.append(replace(message, lost=now, back=back))
            else:
                found.append(self._results(message, reply))
        return found

    def _send_again(self, lost: list[PendingMessage], pending: dict[str, PendingMessage]) -> None:
        """Send their tasks again to lost nodes that came back. A task is a pure function: its result is the same."""
        connected, discovered = self.nodes.connected, self.nodes.discovered
        back = [message for message in lost if discovered > message.lost and self._name(message) in connected]
        for identity, message in self._push([replace(message, sent=time.monotonic()) for message in back]).items():
            self.nodes.say(f"{self._name(message)} is back and receives its tasks again")
            pending[identity] = message
            lost[:] = [other for other in lost if other.client != message.client]

    def _left_out(
        self, pending: dict[str, PendingMessage], lost: list[PendingMessage]
    ) -> list[tuple[PendingMessage, str]]:
        """Remove the messages whose nodes are left out of the round; each with the reason."""
        now, found = time.monotonic(), list[tuple[PendingMessage, str]]()
        for identity in [identity for identity, message in pending.items() if now > message.end]:
            found.append((pending.pop(identity), f"no answer within {self.deadline:g} s"))
        for message in list(lost):
            revoked = self.nodes.revoked(self._name(message))
            if revoked or now > message.back:
                lost.remove(message)
                found.append((message, REVOKED if revoked else "it was lost while it worked and did not come back"))
        return found

    def _name(self, message: PendingMessage) -> str:
        return self.nodes.members[message.client].name

    def _results(self, message: PendingMessage, reply: Reply) -> list[Result]:
        """Read a reply; whatever is wrong with it becomes the failure of its tasks."""
        passed, entry = time.monotonic() - message.sent, self.nodes.members[message.client]
        if self.nodes.revoked(entry.name):
            return failed_results(message.tasks, REVOKED)
        if reply.error is not None:
            return failed_results(message.tasks, f"its node failed: {one_line(reply.error)}")
        read = admitted(lambda: self._read(reply.data, message.tasks, entry, passed))
        if read.value is None:
            return failed_results(message.tasks, f"its answer cannot be read ({read.reason})")
        results = read.value
        busy = sum(result.seconds for result in results)
        return [replace(result, transfer=max(0.0, passed - busy) / len(results)) for result in results]

    def _read(self, data: bytes, tasks: Sequence[Task], entry: Entry, passed: float) -> list[Result]:
        """Read an answer; its scores must have the measures of the run."""
        assert self._job is not None
        results = read_results(data, tasks, entry, passed)
        outputs = inputs_of(self._job.federation.samples).outputs
        for score in (score for result in results for score in result.scores.values() if score.samples):
            check_measured(self._job.measures, outputs, score.values, score.sums)
        return results
