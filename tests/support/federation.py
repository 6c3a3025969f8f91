"""A real federation for tests: a coordinator in this process or another, nodes in processes of their own."""

import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from fedtailor.data.folder import write_clients
from fedtailor.flower import keys
from fedtailor.flower.coordinator.link import Link, Reply
from fedtailor.flower.coordinator.serving import federated
from fedtailor.flower.node.node import Node
from fedtailor.runs import Experiment, Resources, Run, experiment, run
from fedtailor.runs.store import Store
from tests.support.processes import descendants
from tests.support.waiting import PATIENCE

HOST = "127.0.0.1"


def settings(method: "str | dict[str, Any]" = "fedavg", **more: Any) -> Experiment:
    """Four clients with digits, three rounds."""
    values: dict[str, Any] = {
        "name": "federation",
        "rounds": 3,
        "data": {"source": "digits", "clients": 4, "samples": 400},
        "training": {"epochs": 1, "batch_size": 16},
        "validation": True,
        "method": {"name": method} if isinstance(method, str) else method,
        "evaluation": {"every": 3},
        "engine": {"kind": "inline", "deadline": 120.0},
    }
    for key, value in more.items():
        values[key] = {**values[key], **value} if isinstance(value, dict) and key in values else value
    return experiment(values)


def simulate(made: Experiment, folder: Path) -> Run:
    """The same run in one process, with the tests of a federation, one client at a time, and with its clipping."""
    settled = federated(made)
    changes = {"evaluation": settled.evaluation, "aggregation": settled.aggregation}
    return run(made.model_copy(update=changes), folder=folder)


def outcome(folder: Path) -> dict[str, Any]:
    """What must be the same bit for bit; not the clients' states, which stay with them, and no measured time."""
    queries = {
        "metrics": "SELECT * FROM metrics ORDER BY round, model",
        "scores": "SELECT * FROM scores ORDER BY round, model, client",
        "measures": "SELECT * FROM measures ORDER BY round, model, measure",
        "tasks": "SELECT round, client, steps, samples, loss, bytes_down, bytes_up FROM tasks ORDER BY 1, 2",
        "decisions": "SELECT round, name, observation, action, reward FROM decisions ORDER BY id",
        "state": "SELECT scope, key, data FROM state WHERE scope <> 'client' ORDER BY scope, key",
    }
    with Store(folder) as store:
        return {table: store.rows(query) for table, query in queries.items()}


def write_data(made: Experiment, folder: Path) -> Path:
    """Write every client's data to a file of its own; return their folder."""
    write_clients(Resources().federation(made), folder / "clients")
    return folder / "clients"


def nodes_of(files: Path, folder: Path, clients: int, unusual: Callable[..., Node] = Node) -> dict[int, Node]:
    """Nodes in this process, with their states in a folder; client 1 is an unusual one."""
    return {
        c: (unusual if c == 1 else Node)(f"client-{c}", str(files / f"client-{c}.npz"), folder / f"state-{c}")
        for c in range(clients)
    }


def events(folder: Path) -> list[dict[str, Any]]:
    """What a run recorded about clients that did not take part as they should."""
    with Store(folder) as store:
        return store.rows("SELECT round, client, kind, detail FROM events ORDER BY id")


class Wire(Link):
    """Hands messages to nodes in this process; replies come when they are pulled, the last first."""

    poll = discovery = 0.0

    def __init__(self, nodes: dict[int, Node]):
        self.to, self.waiting = nodes, dict[str, bytes]()

    def nodes(self) -> list[int]:
        return list(self.to)

    def push(self, messages: Sequence[tuple[int, bytes]], seconds: float, group: str) -> list[str]:
        ids = []
        for node, message in messages:
            ids.append(f"{len(self.waiting)}-{group}")
            self.waiting[ids[-1]] = self.to[node].answer(message)
        return ids

    def pull(self, ids: Iterable[str]) -> list[Reply]:
        return [Reply(name, self.waiting[name]) for name in reversed(list(ids))]

    def close(self) -> None: ...


class Place:
    """The files of a federation: keys and every client's data."""

    def __init__(self, folder: Path, made: Experiment):
        self.folder, self.nodes = folder, [f"client-{c}" for c in range(made.data.clients)]
        self.keys = folder / "keys"
        keys.init(self.keys, [HOST], self.nodes)
        write_data(made, folder)
        self._running: list[subprocess.Popen[bytes]] = []

    def fedtailor(
        self, *arguments: str, log: str, program: str = "fedtailor", **environment: str
    ) -> subprocess.Popen[bytes]:
        """A command of ours, in a process group of its own."""
        with (self.folder / log).open("ab") as output:
            process = subprocess.Popen(
                [sys.executable, "-m", program, *arguments],
                cwd=self.folder,
                env={**os.environ, "OMP_NUM_THREADS": "1", "COLUMNS": "300", **environment},
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
        self._running.append(process)
        return process

    def join(self, node: str, port: int, *more: str, **environment: str) -> subprocess.Popen[bytes]:
        """A node with its own keys, data and states; ``program`` is another program than ours."""
        return self.fedtailor(
            *("join", "--coordinator", f"{HOST}:{port}", "--keys", f"keys/nodes/{node}"),
            *("--data", f"clients/{node}.npz", "--state", f"state/{node}", *more),
            log=f"{node}.log",
            **environment,
        )

    def said(self, log: str) -> str:
        file = self.folder / log
        return file.read_text(encoding="utf-8", errors="replace") if file.exists() else ""

    def close(self) -> None:
        for process in self._running:
            end(process)


def end(process: subprocess.Popen[bytes]) -> None:
    """Ask a process to end, then insist."""
    if process.poll() is None:
        process.send_signal(signal.SIGTERM)
        try:
            process.wait(PATIENCE)
        except subprocess.TimeoutExpired:
            kill(process)


def kill(process: subprocess.Popen[bytes]) -> None:
    """SIGKILL for a process and everything it has started, as if the machine had lost its power."""
    for child in [*descendants(process.pid), process.pid]:
        try:
            os.kill(child, signal.SIGKILL)
        except ProcessLookupError:
            continue
    process.wait()


@contextmanager
def place(folder: Path, made: Experiment) -> Iterator[Place]:
    prepared = Place(folder, made)
    try:
        yield prepared
    finally:
        prepared.close()
