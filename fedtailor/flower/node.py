"""A node: one client with its data, its states and a warm worker, behind a socket that only this machine reaches."""

import os
import socket
import time
from collections.abc import Callable, Mapping
from dataclasses import asdict, replace
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np

from fedtailor.data import DataSettings, Federation, Samples
from fedtailor.data.federation import one_client
from fedtailor.data.folder import client_of_arrays
from fedtailor.data.folder import one_client as read_client
from fedtailor.data.roster import Entry
from fedtailor.engines import Job, Result, Task
from fedtailor.engines.codec import job_from, result_message, tasks_from
from fedtailor.engines.worker import Worker
from fedtailor.errors import UserError
from fedtailor.flower.states import States
from fedtailor.messages.frames import Closed, decode, encode, receive, send
from fedtailor.messages.trees import digest
from fedtailor.methods import Payload, catalogue
from fedtailor.runs.environment import environment
from fedtailor.runs.exporting import write_model

Rows = dict[str, np.ndarray]


class Node:
    """Answers the coordinator's messages, one at a time."""

    def __init__(
        self,
        name: str,
        data: str,
        folder: Path,
        *,
        device: str = "cpu",
        allowed: tuple[str, ...] = (),
        say: Callable[[str], None] = lambda sentence: None,
    ):
        self.name, self.folder, self.device, self.say = name, folder, device, say
        self.allowed = allowed  # modules of the coordinator's choice that may be imported here
        self.samples, self.rows = load(data)
        self.finished = False  # whether the last run said that it was over
        self._federation: tuple[str, Federation, str] | None = None  # by the settings of its split, with its digest
        self._worker: tuple[str, Worker] | None = None  # by its job

    def answer(self, request: bytes) -> bytes:
        """The reply to a message, whatever it is."""
        try:
            header, blobs = decode(request)
            kind = header["kind"]
            if kind == "hello":
                self.finished = False
                return encode({"kind": "hello", "entry": asdict(self._describe(header))})
            if kind == "bye":
                self.finished = True
                self.say(f"the run {header['run']} is finished; the model of this node is in {self._place(header)}")
                return encode({"kind": "bye"})
            return self._tasks(header, blobs)
        except UserError as refusal:
            return encode({"kind": "refusal", "reason": str(refusal)})
        except Exception as error:
            return encode({"kind": "refusal", "reason": f"{type(error).__name__}: {error}"[:500]})

    # What it does

    def _describe(self, header: Mapping[str, Any]) -> Entry:
        return Entry.of(self.name, self._split(header["data"]), environment())

    def _tasks(self, header: dict[str, Any], blobs: list[bytes]) -> bytes:
        tasks = tasks_from(header, blobs)
        if any(task.client not in (-1, header["client"]) for task in tasks):
            raise UserError("this is a task for another client")
        worker = self._warm(header)
        states = States(self._place(header) / "states")
        results = [self._execute(task, worker, states, header) for task in tasks]
        answer, data = result_message(results)
        assert self._federation is not None
        reply = encode({**answer, "digest": self._federation[2]}, data)
        if len(reply) > header["limit"]:
            raise UserError(f"its answer has {len(reply):,} bytes; the limit is {header['limit']:,}")
        return reply

    def _execute(self, task: Task, worker: Worker, states: States, header: Mapping[str, Any]) -> Result:
        if task.kind != "score":
            state = None
            if task.state:
                state = states.load(task.state.decode(), task.moment)
                if state is None:
                    reason = f"its state of an earlier round is not in {self.folder.name}; was the folder replaced?"
                    return Result(task.index, task.client, failure=reason)
            else:
                states.start_over(task.moment)
            task = replace(task, state=state, want_model=task.kind == "final")
        begin = time.perf_counter()
        result = worker.execute(task)
        doing = task.question or task.kind
        if task.kind in ("fit", "ask"):
            outcome = result.failure or f"{time.perf_counter() - begin:.1f} s"
            self.say(f"round {task.moment.round} of {task.moment.rounds}: {doing}, {outcome}")
        if task.kind == "final":
            result = self._deploy(result, worker.job, header)
        if result.state is not None:
            result = replace(result, state=states.save(result.state, task.moment).encode())
        return replace(result, details="")  # a traceback may show data

    def _deploy(self, result: Result, job: Job, header: Mapping[str, Any]) -> Result:
        """Keep the personal model here; only its score goes to the coordinator."""
        if result.reply is not None:
            model = Payload.unpack(result.reply)
            facts = {"node": self.name, "client": header["client"], "run": header["run"], "rounds": header["rounds"]}
            write_model(self._place(header) / "model", job, model.config["network"], model["model"], facts, again=True)
        return replace(result, reply=None)

    # What it keeps warm

    def _split(self, data: Mapping[str, Any]) -> Federation:
        key = repr(sorted(data.items()))
        if self._federation is None or self._federation[0] != key:
            settings = DataSettings.model_validate(data["settings"])
            made = one_client(self.samples, self.rows, settings, data["seed"], data["validation"])
            self._federation = (key, made, made.digest())
        return self._federation[1]

    def _warm(self, header: Mapping[str, Any]) -> Worker:
        key = digest(encode({name: header[name] for name in ("job", "client", "clients", "outline", "data")}))
        if self._worker is None or self._worker[0] != key:
            self._check_code(header["job"])
            here = self._split(header["data"])
            federation = Federation(_relabelled(here.samples, header["outline"]), here.train, here.val, here.test)
            job = job_from(header["job"], federation.placed(header["client"], header["clients"]))
            self._worker = (key, Worker(replace(job, device=self.device)))
        return self._worker[1]

    def _check_code(self, job: Mapping[str, Any]) -> None:
        """Import nothing that the owner of this node did not allow."""
        for name in (job["method"][0], job["model"]["name"]):
            if ":" in name and name not in self.allowed:
                raise UserError(f"this node does not run {name!r}: its owner can allow it with --allow {name}")
        if ":" not in job["method"][0] and job["method"][0] not in catalogue():
            raise UserError(f"this node has no method {job['method'][0]!r}: is its fedtailor older?")

    def _place(self, header: Mapping[str, Any]) -> Path:
        """The folder of a run; its name comes from outside."""
        name = "".join(letter for letter in str(header["run"]) if letter.isalnum() or letter in "-_")[:80]
        return self.folder / (name or "run")


def load(data: str) -> tuple[Samples, Rows]:
    """A client's own data: a folder, a file, or module:function that returns them.

    The function gives a mapping of arrays named as in a file, or a pair (x, y), or a data set with a length whose
    items are such pairs.
    """
    module, colon, function = data.partition(":")
    if not colon or Path(data).exists() or os.sep in module:
        return read_client(Path(data))
    try:
        found = getattr(import_module(module), function)()
    except Exception as error:
        raise UserError(f"--data {data} cannot be called ({type(error).__name__}: {error})") from None
    if isinstance(found, tuple) and len(found) == 2:
        found = {"x": found[0], "y": found[1]}
    elif not isinstance(found, Mapping):
        try:
            pairs = [found[index] for index in range(len(found))]
            found = {
                "x": np.stack([np.asarray(x) for x, _ in pairs]),
                "y": np.asarray([np.asarray(y) for _, y in pairs]),
            }
        except Exception as error:
            raise UserError(f"--data {data} gives no data set ({type(error).__name__}: {error})") from None
    return client_of_arrays(found, data)


def listen(node: Node, path: Path, until: Callable[[], bool]) -> None:
    """Answer on a socket in the file system until told to stop."""
    with socket.socket(socket.AF_UNIX) as door:
        door.bind(str(path))
        path.chmod(0o600)
        door.listen(8)
        door.settimeout(0.5)
        while not until():
            try:
                connection, _ = door.accept()
            except TimeoutError:
                continue
            with connection:
                connection.setblocking(True)
                try:
                    _, (request,) = receive(connection)
                    send(connection, {}, [node.answer(request)])
                except (Closed, ValueError):
                    continue


def _relabelled(samples: Samples, outline: Mapping[str, Any]) -> Samples:
    """The samples with the labels of the whole federation, which may know more classes than this client."""
    classes = tuple(outline["classes"])
    if classes == samples.classes:
        return samples
    missing = set(samples.classes) - set(classes)
    if missing:
        raise UserError(f"the coordinator does not know the class {min(missing)!r}")
    places = np.array([classes.index(name) for name in samples.classes], np.int64)
    return replace(samples, classes=classes, y=places[samples.y])
