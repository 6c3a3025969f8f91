"""The engine of a federation: a task travels to the node of its client, the result comes back.

A client's state never travels: its digest does, both ways. The engine checks everything that a node sends.
"""

import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar

from fedtailor.data.roster import Entry
from fedtailor.engines import Engine, Job, Result, Task
from fedtailor.engines.codec import job_header, task_message
from fedtailor.errors import UserError, one_line
from fedtailor.flower.coordinator.checking import client_of, failed_results, read_results
from fedtailor.flower.coordinator.link import Link, Reply
from fedtailor.flower.coordinator.nodes import POLL, Nodes
from fedtailor.learning.measures import check_measured
from fedtailor.learning.tensors import inputs_of
from fedtailor.messages.admission import admitted
from fedtailor.messages.frames import encode
from fedtailor.methods import AgentMethod

GRACE = 30.0  # seconds after the deadline for which Flower keeps a message, so that our deadline comes first
END_TIMEOUT = 15.0  # seconds to wait for the nodes to acknowledge the end of a run


@dataclass(frozen=True)
class PendingMessage:
    """A message with tasks that waits for its reply."""

    client: int
    tasks: list[Task]
    sent: float  # by time.monotonic


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
        while pending:
            self.nodes.update()
            for results in self._collect(pending):
                yield from results
            for identity in [i for i, message in pending.items() if time.monotonic() - message.sent > self.deadline]:
                yield from failed_results(pending.pop(identity).tasks, f"no answer within {self.deadline:g} s")
            time.sleep(POLL)

    def end_run(self) -> None:
        """Tell the nodes that the run is finished; a node that does not hear it waits for the next run."""
        message = encode({"kind": "finished", "run": self.run_name})
        ids = self.link.push([(node, message) for node in self.nodes.connected.values()], 4 * END_TIMEOUT, "finished")
        waiting, end = set(ids), time.monotonic() + END_TIMEOUT
        while waiting and time.monotonic() < end:
            waiting -= {reply.id for reply in self.link.pull(waiting)}
            time.sleep(POLL)

    def close(self) -> None:
        self.link.close()

    def _send(self, by_client: Mapping[int, list[Task]]) -> dict[str, PendingMessage]:
        """Send its tasks to every client that is connected; return the pending messages by id."""
        names, connected = [member.name for member in self.nodes.members], self.nodes.connected
        clients = [client for client in by_client if names[client] in connected]
        if not clients:
            return {}
        messages = [
            (connected[names[client]], self._message(client, by_client[client], len(clients))) for client in clients
        ]
        group = f"round {by_client[clients[0]][0].moment.round}"
        ids = self.link.push(messages, self.deadline + GRACE, group)
        return {
            identity: PendingMessage(client, by_client[client], time.monotonic())
            for identity, client in zip(ids, clients, strict=True)
            if identity
        }

    def _message(self, client: int, tasks: list[Task], cohort: int) -> bytes:
        header, blobs = task_message(tasks)
        message = encode({**header, **self._setting(client), "cohort": cohort}, blobs)
        if len(message) > self.limit:
            raise UserError(
                f"a message to {self.nodes.members[client].name!r} has {len(message):,} bytes, the limit is "
                f"{self.limit:,}: raise engine.limit"
            )
        return message

    def _setting(self, client: int) -> dict[str, Any]:
        """What a node must know besides its tasks. It is in every message, because a node may have restarted."""
        assert self._job is not None, "start comes first"
        job, federation = self._job, self._job.federation
        if isinstance(job.method, AgentMethod):
            job = replace(job, method=job.method.model_copy(update={"policy": None}))  # a path on this machine
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

    def _collect(self, pending: dict[str, PendingMessage]) -> list[list[Result]]:
        """Remove the messages that were answered; the results of each."""
        answered = [(pending.pop(reply.id), reply) for reply in self.link.pull(pending) if reply.id in pending]
        return [self._results(message, reply) for message, reply in answered]

    def _results(self, message: PendingMessage, reply: Reply) -> list[Result]:
        """Read a reply; whatever is wrong with it becomes the failure of its tasks."""
        passed, entry = time.monotonic() - message.sent, self.nodes.members[message.client]
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
