"""Processes that carry out whole trials in parallel. Their readings come back in the order of the trials."""

import os
import selectors
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from pathlib import Path

from fedtailor.data import Federation
from fedtailor.engines.processes import ENVIRONMENT
from fedtailor.engines.shared_memory import SharedFederation
from fedtailor.engines.task_queue import MAX_DEATHS
from fedtailor.errors import UserError
from fedtailor.messages.frames import Closed, receive, send
from fedtailor.runs.loop import MethodFailed
from fedtailor.runs.trials.trial import Reading, Trial


class TrialProcesses:
    """Processes for trials. They stay between calls; `close` ends them.

    Parameters
    ----------
    folder : Path
        Where the folders of the trials are.
    data : callable
        The federation of a seed.
    """

    def __init__(self, folder: Path, data: Callable[[int], Federation]):
        self.folder, self._data = folder, data
        self._processes: list[_Process] = []
        self._shared: dict[int, SharedFederation] = {}

    def carry_out(self, trials: Sequence[Trial], workers: int, after_round: Callable[[], None]) -> Iterator[Reading]:
        """Carry out trials in ``workers`` processes, yield readings in order, and call ``after_round`` every round."""
        while len(self._processes) < workers:
            self._processes.append(_Process())
        waiting, deaths = list(enumerate(trials)), dict.fromkeys(range(len(trials)), 0)
        early: dict[int, Reading] = {}
        given = 0
        try:
            while given < len(trials):
                for worker in self._processes[:workers]:
                    if worker.busy is None and waiting:
                        self._send(worker, *waiting.pop(0))
                for worker in _ready(self._processes):
                    assert worker.busy is not None
                    number = worker.busy
                    try:
                        header, _ = receive(worker.connection)
                    except Closed:
                        deaths[number] += 1
                        _check_deaths(trials[number].key, deaths[number], worker.process.wait())
                        worker.restart()
                        waiting.insert(0, (number, trials[number]))
                        continue
                    if header["kind"] == "round":
                        after_round()
                    else:
                        worker.busy = None
                        early[number] = _reading(header)
                while given in early:
                    yield early.pop(given)
                    given += 1
        finally:
            for worker in [worker for worker in self._processes if worker.busy is not None]:  # the caller leaves early
                worker.stop()
                self._processes.remove(worker)

    def close(self) -> None:
        for worker in self._processes:
            worker.stop()
        for shared in self._shared.values():
            shared.close()
        self._processes, self._shared = [], {}

    def _send(self, worker: "_Process", number: int, trial: Trial) -> None:
        seed = trial.settings.seed
        if seed not in self._shared:
            self._shared[seed] = SharedFederation(self._data(seed))
        worker.busy = number
        with suppress(Closed):  # it died while it was idle, which the next receive notices
            worker.send(trial, self.folder / trial.key, self._shared[seed])


class _Process:
    """A worker process and the number of the trial that it carries out."""

    busy: int | None
    connection: socket.socket
    _seed: int | None  # whose data it has

    def __init__(self) -> None:
        self._start()

    def send(self, trial: Trial, folder: Path, shared: SharedFederation) -> None:
        seed = trial.settings.seed
        header = {"settings": trial.settings.as_dict(), "key": trial.key, "until": trial.until, "folder": str(folder)}
        send(self.connection, {**header, "federation": None if self._seed == seed else shared.outline})
        if self._seed != seed:
            try:
                socket.send_fds(self.connection, [b"f"], [shared.file])
            except OSError as error:
                raise Closed from error
        self._seed = seed

    def restart(self) -> None:
        self.stop()
        self._start()

    def stop(self) -> None:
        self.connection.close()
        self.process.kill()
        self.process.wait()

    def _start(self) -> None:
        self.busy = self._seed = None
        self.connection, theirs = socket.socketpair()
        self.process = subprocess.Popen(
            [sys.executable, "-m", "fedtailor.runs.trials.process_worker", str(theirs.fileno())],
            pass_fds=[theirs.fileno()],
            stdin=subprocess.DEVNULL,
            env={**os.environ, **ENVIRONMENT, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))},
        )
        theirs.close()


def _ready(workers: Sequence[_Process]) -> list[_Process]:
    """Wait until a busy worker has sent a message; return the workers that have."""
    with selectors.DefaultSelector() as selector:
        for worker in workers:
            if worker.busy is not None:
                selector.register(worker.connection, selectors.EVENT_READ, worker)
        return [key.data for key, _ in selector.select()] if selector.get_map() else []


def _check_deaths(key: str, deaths: int, code: int) -> None:
    if deaths >= MAX_DEATHS:
        raise UserError(f"the process of trial {key} ended {deaths} times (exit code {code}); its message is above")


def _reading(header: Mapping[str, object]) -> Reading:
    if header["kind"] == "error":
        if header["details"]:
            raise MethodFailed(str(header["sentence"]), str(header["details"]))
        raise UserError(str(header["sentence"]))
    found = header["reading"]
    assert isinstance(found, dict)
    return Reading.from_dict(found)
