"""Lanes: processes that carry out whole trials side by side. Their readings come back in the order of the trials."""

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


class Lanes:
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
        self._lanes: list[_Lane] = []
        self._shared: dict[int, SharedFederation] = {}

    def carry_out(self, trials: Sequence[Trial], lanes: int, told: Callable[[], None]) -> Iterator[Reading]:
        """Carry out trials in ``lanes`` processes; yield readings in order. ``told`` is called every round."""
        while len(self._lanes) < lanes:
            self._lanes.append(_Lane())
        waiting, deaths = list(enumerate(trials)), dict.fromkeys(range(len(trials)), 0)
        early: dict[int, Reading] = {}
        given = 0
        try:
            while given < len(trials):
                for lane in self._lanes[:lanes]:
                    if lane.busy is None and waiting:
                        self._send(lane, *waiting.pop(0))
                for lane in _ready(self._lanes):
                    assert lane.busy is not None
                    number = lane.busy
                    try:
                        header, _ = receive(lane.connection)
                    except Closed:
                        deaths[number] += 1
                        _check_deaths(trials[number].key, deaths[number], lane.process.wait())
                        lane.restart()
                        waiting.insert(0, (number, trials[number]))
                        continue
                    if header["kind"] == "round":
                        told()
                    else:
                        lane.busy = None
                        early[number] = _reading(header)
                while given in early:
                    yield early.pop(given)
                    given += 1
        finally:
            for lane in [lane for lane in self._lanes if lane.busy is not None]:  # the caller leaves early
                lane.stop()
                self._lanes.remove(lane)

    def close(self) -> None:
        for lane in self._lanes:
            lane.stop()
        for shared in self._shared.values():
            shared.close()
        self._lanes, self._shared = [], {}

    def _send(self, lane: "_Lane", number: int, trial: Trial) -> None:
        seed = trial.settings.seed
        if seed not in self._shared:
            self._shared[seed] = SharedFederation(self._data(seed))
        lane.busy = number
        with suppress(Closed):  # it died while it was idle, which the next receive notices
            lane.send(trial, self.folder / trial.key, self._shared[seed])


class _Lane:
    """One process, and the number of the trial that it carries out."""

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
            [sys.executable, "-m", "fedtailor.runs.trials.lane", str(theirs.fileno())],
            pass_fds=[theirs.fileno()],
            stdin=subprocess.DEVNULL,
            env={**os.environ, **ENVIRONMENT, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))},
        )
        theirs.close()


def _ready(lanes: Sequence[_Lane]) -> list[_Lane]:
    """Wait until a busy lane has something to say, and return those that have."""
    with selectors.DefaultSelector() as selector:
        for lane in lanes:
            if lane.busy is not None:
                selector.register(lane.connection, selectors.EVENT_READ, lane)
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
