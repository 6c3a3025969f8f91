"""A node: one client with its data, its states and a warm worker, behind a socket that only this machine reaches."""

import socket
import time
from collections.abc import Callable, Mapping
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

from safetensors import SafetensorError

from fedtailor import imports
from fedtailor.data import DataSettings, Federation
from fedtailor.data.federation import one_client
from fedtailor.data.newcomers import prepared_alike, relabelled
from fedtailor.data.readers import Roles
from fedtailor.data.roster import Entry
from fedtailor.engines import Job, Result, Task
from fedtailor.engines.codec import job_from, result_message, tasks_from
from fedtailor.engines.worker import Worker
from fedtailor.errors import UserError, one_line
from fedtailor.flower.node.policy import Policy
from fedtailor.flower.node.sources import load_data
from fedtailor.flower.node.states import StateStore, keyed
from fedtailor.learning.precision import native_bf16
from fedtailor.messages.digests import digest
from fedtailor.messages.frames import Closed, decode, encode, receive, send
from fedtailor.methods import Payload, catalogue
from fedtailor.runs.environment import environment
from fedtailor.runs.exporting import ClientData, Deployable, write_model


class Node:
    """Answers the coordinator's messages, one at a time.

    Parameters
    ----------
    name : str
        The node's name; it must be unique in the federation.
    data : str
        The client's data, as `load_data` takes them.
    folder : Path
        Where states and the personal model are kept, in a folder for each run.
    device : str
        The torch device to train on.
    allowed : tuple of str
        Methods and networks (``module:Class``) that the coordinator may have this node import.
    roles : Roles
        What the columns of a CSV file are for.
    policy : Policy
        What this node's owner permits.
    say : callable
        Receives a sentence for each training and for the end of a run.
    """

    def __init__(
        self,
        name: str,
        data: str,
        folder: Path,
        *,
        device: str = "cpu",
        allowed: tuple[str, ...] = (),
        roles: Roles = Roles(),
        policy: Policy = Policy(),
        say: Callable[[str], None] = lambda sentence: None,
    ):
        self.name, self.folder, self.device, self.allowed, self.say = name, folder, device, allowed, say
        self.policy = policy
        self.samples, self.rows = load_data(data, roles)
        self.finished = False  # whether the coordinator has announced the end of the run
        self._federation: tuple[str, Federation, str] | None = None  # with the key of its split and its digest
        self._worker: tuple[str, Worker] | None = None  # with the key of its job

    def answer(self, request: bytes) -> bytes:
        """Return the reply to a message; anything that goes wrong becomes a refusal."""
        try:
            header, blobs = decode(request)
            if header["kind"] == "hello":
                return self._describe(header)
            if header["kind"] == "finished":
                return self._finish(header)
            if header["kind"] == "turned away":
                return self._refused(header)
            with imports.foreign(self.allowed, "this node's owner can allow it with --allow {name}"):
                return self._execute_all(header, blobs)
        except UserError as refusal:
            self.say(f"refused: {one_line(refusal)}")
            return encode({"kind": "refusal", "reason": str(refusal)})
        except Exception as error:
            return encode({"kind": "refusal", "reason": f"{type(error).__name__}: {error}"[:500]})

    # Messages

    def _describe(self, header: Mapping[str, Any]) -> bytes:
        self.finished = False
        data = header["data"]
        preprocess = DataSettings.model_validate(data["settings"]).preprocess
        bf16 = "native" if native_bf16(self.device) else "emulated"
        entry = Entry.of(self.name, self._split(data), {**environment(), "bf16": bf16}, preprocess)
        assert self._federation is not None
        return encode({"kind": "hello", "entry": asdict(replace(entry, digest=self._federation[2]))})

    def _finish(self, header: Mapping[str, Any]) -> bytes:
        self.finished = True
        self.say(f"the run {header['run']} is finished; the model of this node is in {self._run_folder(header)}")
        return encode({"kind": "finished"})

    def _refused(self, header: Mapping[str, Any]) -> bytes:
        self.say(f"the coordinator turned this node away: {one_line(header['reason'])}")
        return encode({"kind": "turned away"})

    def _execute_all(self, header: dict[str, Any], blobs: list[bytes]) -> bytes:
        tasks = tasks_from(header, blobs)
        if any(task.client not in (-1, header["client"]) for task in tasks):
            raise UserError("this is a task for another client")
        self._check_method(header["job"]["method"][0])
        self.policy.check(header, tasks, self.folder)
        worker = self._worker_for(header)
        states = StateStore(self._run_folder(header) / "states")
        results = [self._execute(task, worker, states, header) for task in tasks]
        assert self._federation is not None
        self.policy.charge(header, results, len(self._federation[1].train[0]), self.folder)
        answer, data = result_message(results)
        reply = encode({**answer, "digest": self._federation[2]}, data)
        if len(reply) > header["limit"]:
            raise UserError(f"its answer has {len(reply):,} bytes; the limit is {header['limit']:,}")
        return reply

    # Tasks

    def _execute(self, task: Task, worker: Worker, states: StateStore, header: Mapping[str, Any]) -> Result:
        """Execute a task; the state is read from and written to this node's disk."""
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
        try:
            if task.kind == "final":
                result = self._keep_model(result, worker.job, header)
            if result.state is not None:
                result = replace(result, state=states.save(result.state, task.moment).encode())
        except (OSError, SafetensorError) as error:
            trouble = getattr(error, "strerror", None) or error
            result = Result(task.index, task.client, failure=f"it cannot write to {self.folder.name} ({trouble})")
        if task.kind in ("fit", "ask", "final") and (result.failure or task.kind != "final"):
            outcome = result.failure or f"{time.perf_counter() - begin:.1f} s"
            self.say(f"round {task.moment.round} of {task.moment.rounds}: {task.question or task.kind}, {outcome}")
        return replace(result, details="")  # a traceback may show data

    def _keep_model(self, result: Result, job: Job, header: Mapping[str, Any]) -> Result:
        """Write the personal model here and remove it from the result: the coordinator receives only its score."""
        if result.reply is not None:
            model = Payload.unpack(result.reply)
            facts = {"node": self.name, "client": header["client"], "run": header["run"], "rounds": header["rounds"]}
            place = self._run_folder(header) / "model"
            data = ClientData.of(job.federation, header["client"])
            deployable = Deployable(job, model.config["network"], model["model"], facts, data)
            write_model(place, deployable, again=True)
        return replace(result, reply=None)

    # What stays in memory between messages

    def _split(self, data: Mapping[str, Any]) -> Federation:
        """Return this client's data, split as the coordinator says."""
        key = repr(sorted(data.items()))
        if self._federation is None or self._federation[0] != key:
            settings = DataSettings.model_validate(data["settings"])
            made = one_client(self.samples, self.rows, settings, data["seed"], data["validation"])
            self._federation = (key, made, keyed(self.folder, made.digest()))
        return self._federation[1]

    def _worker_for(self, header: Mapping[str, Any]) -> Worker:
        """Return a worker for the job of a message: the last one if the job is the same."""
        key = digest(encode({name: header[name] for name in ("job", "client", "clients", "outline", "data")}))
        if self._worker is None or self._worker[0] != key:
            here = self._split(header["data"])
            samples = prepared_alike(relabelled(here.samples, header["outline"]), header["outline"], here.train[0])
            federation = Federation(samples, here.train, here.val, here.test, (self.name,))
            job = job_from(header["job"], federation.placed(header["client"], header["clients"]))
            self._worker = (key, Worker(replace(job, device=self.device)))
        return self._worker[1]

    def _check_method(self, name: str) -> None:
        if ":" not in name and name not in catalogue():
            raise UserError(f"this node has no method {name!r}: is its fedtailor older?")

    def _run_folder(self, header: Mapping[str, Any]) -> Path:
        """Return the folder of a run; the name comes from the coordinator, so only safe characters are used."""
        name = "".join(letter for letter in str(header["run"]) if letter.isalnum() or letter in "-_")[:80]
        return self.folder / (name or "run")


def listen(node: Node, path: Path, until: Callable[[], bool]) -> None:
    """Answer messages on a Unix socket at ``path`` until ``until()`` is true."""
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(path))
        path.chmod(0o600)
        listener.listen(8)
        listener.settimeout(0.5)
        while not until():
            try:
                connection, _ = listener.accept()
            except TimeoutError:
                continue
            with connection:
                connection.setblocking(True)
                try:
                    _, (request,) = receive(connection)
                    send(connection, {}, [node.answer(request)])
                except (Closed, ValueError):
                    continue
