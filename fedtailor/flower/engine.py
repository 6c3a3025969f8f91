"""The engine of a federation: a task travels to the node of its client, the result comes back.

A client's state never travels: its digest does, both ways. What a node sends may be anything and is checked here.
"""

import json
import math
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar

from fedtailor.data.roster import Entry
from fedtailor.engines import Engine, Job, Result, Task
from fedtailor.engines.codec import job_header, results_from, task_message
from fedtailor.errors import UserError
from fedtailor.flower.link import Link, Reply
from fedtailor.learning import Score
from fedtailor.messages.frames import decode, encode
from fedtailor.methods import AgentMethod

POLL = 0.2  # seconds between two looks for replies
LOOK = 2.0  # seconds between two looks for nodes that came or went
GRACE = 30.0  # seconds after the deadline in which Flower keeps a message: our own deadline comes first
HELLO = 60.0  # seconds a node has to describe itself
LONGEST = 300  # letters of a reason that a node gives


@dataclass
class _Letter:
    """A message that waits for its reply."""

    name: str  # of the node
    tasks: list[Task]
    sent: float
    answered: Callable[[Reply], None] | None = None  # of a hello


@dataclass
class Flower(Engine):
    """Executes tasks on the nodes of a federation."""

    remote: ClassVar[bool] = True

    link: Link
    run_name: str
    rounds: int
    data: dict[str, Any]  # how nodes split their data: settings, seed, validation
    deadline: float
    limit: int
    say: Callable[[str], None] = lambda sentence: None
    entries: list[Entry] = field(default_factory=list)  # the clients, in the order of their ids
    _ids: dict[str, int] = field(default_factory=dict)  # the node of each name that is connected
    _strangers: dict[int, float] = field(default_factory=dict)  # ids that were asked, and when
    _letters: dict[str, _Letter] = field(default_factory=dict)
    _seen: dict[str, Entry] = field(default_factory=dict)
    _looked: float = -math.inf
    _job: Job | None = None

    # Who is there

    def gather(self, clients: int, progress: Callable[[list[str]], None]) -> list[Entry]:
        """Wait until so many nodes have described themselves; the order of their names gives the ids."""
        shown: list[str] = []
        while len(self._seen) < clients:
            self._look()
            self._collect()
            if sorted(self._seen) != shown:
                shown = sorted(self._seen)
                progress(shown)
            time.sleep(POLL)
        self.entries = [self._seen[name] for name in sorted(self._seen)][:clients]
        return self.entries

    def meet(self, entries: list[Entry], seconds: float, progress: Callable[[list[str]], None]) -> None:
        """Wait for the nodes of an earlier part of the run, but not longer than this, if at least one is there."""
        self.entries = entries
        end = time.monotonic() + seconds
        shown: list[str] = []
        while len(self._ids) < len(entries) and (time.monotonic() < end or not self._ids):
            self._look()
            self._collect()
            if sorted(self._ids) != shown:
                shown = sorted(self._ids)
                progress(shown)
            time.sleep(POLL)

    def farewell(self) -> None:
        """Tell the nodes that the run is over; those that do not hear it wait for the next."""
        message = encode({"kind": "bye", "run": self.run_name})
        ids = self.link.push([(node, message) for node in self._ids.values()], HELLO, "bye")
        waiting, end = set(ids), time.monotonic() + 15
        while waiting and time.monotonic() < end:
            waiting -= {reply.id for reply in self.link.pull(waiting)}
            time.sleep(POLL)

    # Tasks

    def start(self, job: Job) -> None:
        self._job = job

    def run(self, tasks: Iterable[Task]) -> Iterator[Result]:
        of_client: dict[int, list[Task]] = {}
        for task in tasks:
            of_client.setdefault(_client_of(task), []).append(task)
        self._await_somebody()
        open_letters = self._post(of_client)
        absent = [client for client in of_client if client not in open_letters.values()]
        for client in absent:
            yield from _failed(of_client[client], "its node is not connected")
        while open_letters:
            self._look()
            for identity, results in self._collect():
                if open_letters.pop(identity, None) is not None:
                    yield from results
            for identity in [i for i in open_letters if time.monotonic() - self._letters[i].sent > self.deadline]:
                letter = self._letters.pop(identity)
                del open_letters[identity]
                yield from _failed(letter.tasks, f"no answer within {self.deadline:g} s")
            time.sleep(POLL)

    def close(self) -> None:
        self.link.close()

    def _post(self, of_client: Mapping[int, list[Task]]) -> dict[str, int]:
        """Send every client that is connected its tasks; the letters that wait, and whom they are for."""
        posted: list[tuple[int, int, list[Task]]] = []
        messages: list[tuple[int, bytes]] = []
        for client, tasks in of_client.items():
            node = self._ids.get(self.entries[client].name)
            if node is None:
                continue
            header, blobs = task_message(tasks)
            message = encode({**header, **self._frame(client)}, blobs)
            if len(message) > self.limit:
                raise UserError(
                    f"a message to {self.entries[client].name!r} has {len(message):,} bytes, the limit is "
                    f"{self.limit:,}: raise engine.limit"
                )
            posted.append((client, node, tasks))
            messages.append((node, message))
        group = f"round {next(iter(of_client.values()))[0].moment.round}" if of_client else ""
        ids = self.link.push(messages, self.deadline + GRACE, group) if messages else []
        waiting = {}
        for identity, (client, _, tasks) in zip(ids, posted, strict=True):
            if identity:
                self._letters[identity] = _Letter(self.entries[client].name, tasks, time.monotonic())
                waiting[identity] = client
        return waiting

    def _frame(self, client: int) -> dict[str, Any]:
        """What a node must know besides its tasks, with every message: a node may have been restarted."""
        assert self._job is not None, "start comes first"
        job, federation = self._job, self._job.federation
        if isinstance(job.method, AgentMethod):
            job = replace(job, method=job.method.model_copy(update={"policy": None}))  # a path of this machine
        return {
            "run": self.run_name,
            "rounds": self.rounds,
            "client": client,
            "clients": federation.clients,
            "job": job_header(job, None),
            "outline": federation.outline(),
            "data": self.data,
            "limit": self.limit,
        }

    # Replies

    def _collect(self) -> list[tuple[str, list[Result]]]:
        """The replies that are there: hellos are noted, results are returned with their letter's id."""
        found = []
        for reply in self.link.pull(self._letters) if self._letters else []:
            letter = self._letters.pop(reply.id, None)
            if letter is None:
                continue
            if letter.answered is not None:
                letter.answered(reply)
                continue
            found.append((reply.id, self._results(letter, reply)))
        return found

    def _results(self, letter: _Letter, reply: Reply) -> list[Result]:
        passed = time.monotonic() - letter.sent
        if reply.error is not None:
            return _failed(letter.tasks, f"its node failed: {_short(reply.error)}")
        entry = next(entry for entry in self.entries if entry.name == letter.name)
        try:
            header, blobs = decode(reply.data)
            if header["kind"] == "refusal":
                return _failed(letter.tasks, f"its node refused: {_short(header['reason'])}")
            if header["digest"] != entry.digest:
                return _failed(letter.tasks, "its data are no longer those it began with")
            given = {result.index: result for result in results_from(header, blobs)}
            results = [_checked(given[task.index], task, entry) for task in letter.tasks]
        except (KeyError, TypeError, ValueError, IndexError, AttributeError) as error:
            return _failed(letter.tasks, f"its answer cannot be read ({_short(str(error))})")
        busy = sum(result.seconds for result in results)
        return [replace(result, transfer=max(0.0, passed - busy) / len(results)) for result in results]

    def _look(self) -> None:
        """Notice nodes that came and went, and ask those that are new who they are."""
        now = time.monotonic()
        if now - self._looked < LOOK:
            return
        self._looked = now
        there = set(self.link.nodes())
        for name in [name for name, node in self._ids.items() if node not in there]:
            self.say(f"{name} is gone")
            del self._ids[name]
        known = set(self._ids.values())
        self._strangers = {n: when for n, when in self._strangers.items() if n in there and now - when < HELLO}
        for node in sorted(there - known - self._strangers.keys()):
            self._strangers[node] = now
            message = encode({"kind": "hello", "data": self.data})
            (identity,) = self.link.push([(node, message)], HELLO, "hello")
            self._letters[identity] = _Letter("", [], now, lambda reply, node=node: self._welcome(node, reply))  # type: ignore[misc]

    def _welcome(self, node: int, reply: Reply) -> None:
        """Take in a node that has described itself, if it may take part."""
        try:
            if reply.error is not None:
                raise ValueError(_short(reply.error))
            header, _ = decode(reply.data)
            if header["kind"] == "refusal":
                raise ValueError(_short(header["reason"]))
            entry = Entry.read(header["entry"])
            self._check_known(entry)
        except (KeyError, TypeError, ValueError) as error:
            self.say(f"a node was turned away: {error}")
            return
        self._strangers.pop(node, None)
        self._ids[entry.name] = node
        self._seen[entry.name] = entry

    def _check_known(self, entry: Entry) -> None:
        if entry.name in self._ids:
            raise ValueError(f"there is a node {entry.name!r} already")
        if not self.entries:
            return
        before = next((known for known in self.entries if known.name == entry.name), None)
        if before is None:
            raise ValueError(f"{entry.name!r} does not belong to this run, which has begun")
        if before.digest != entry.digest:
            raise ValueError(f"the data of {entry.name!r} are not those it began with")

    def _await_somebody(self) -> None:
        """Rounds without a single client would be wasted."""
        told = False
        while not self._ids:
            if not told:
                self.say("no node is connected: waiting")
                told = True
            self._look()
            self._collect()
            time.sleep(POLL)


def _client_of(task: Task) -> int:
    if task.kind != "score":
        return task.client
    (client,) = task.clients  # evaluation.together is off in a federation
    return client


def _failed(tasks: Iterable[Task], reason: str) -> list[Result]:
    return [Result(task.index, _client_of(task), failure=reason) for task in tasks]


def _checked(result: Result, task: Task, entry: Entry) -> Result:
    """A result whose parts are of the kind they should be; whose they are is known from the letter."""
    if result.failure is not None:
        return Result(task.index, _client_of(task), failure=_short(str(result.failure)))
    numbers = [result.seconds, result.work, result.trace.loss, result.trace.steps, result.trace.samples]
    for score in result.scores.values():
        numbers += [score.correct, score.loss, score.samples]
        if not (type(score.correct) is int and 0 <= score.correct <= score.samples == entry.test):
            raise ValueError("a score does not fit its test set")
    if not all(isinstance(number, int | float) and math.isfinite(number) for number in numbers):
        raise ValueError("a number is not finite")
    if min(result.seconds, result.work, result.trace.steps, result.trace.samples) < 0:
        raise ValueError("a number is negative")
    if result.state is not None and not (len(result.state) == 32 and result.state.isalnum()):
        raise ValueError("its state has no digest")
    if task.kind in ("fit", "ask") and result.reply is None:
        raise ValueError("a reply is missing")
    wanted = {str(_client_of(task))} if task.kind == "score" else {"received", "held", "final"}
    scores: dict[str, Score] = {name: score for name, score in result.scores.items() if name in wanted}
    return replace(result, index=task.index, client=_client_of(task), scores=scores, details="")


def _short(reason: str) -> str:
    return json.dumps(" ".join(str(reason).split())[:LONGEST])[1:-1]
