"""Worker processes on this machine: one per core, one torch thread each, the data in shared memory.

Workers are plain programs connected by a socket, so a script that uses the library needs no
``if __name__ == "__main__"`` and nothing is pickled. A worker that dies is replaced and its tasks,
which are pure, are done again.
"""

import os
import selectors
import socket
import subprocess
import sys
from collections import Counter, deque
from collections.abc import Iterable, Iterator

from fedtailor.data import Federation
from fedtailor.engines.base import Engine, Job, Result, Task
from fedtailor.engines.codec import SharedFederation, results_from, send_job, task_message
from fedtailor.errors import UserError
from fedtailor.messages.frames import Closed, receive, send

LIGHT = 16  # previews in one message, so that the payload they share travels once
TRIES = 3


class Processes(Engine):
    def __init__(self, workers: int | None = None) -> None:
        self.workers = workers or cores()
        self._pool: list[_Process] = []
        self._job: Job | None = None
        self._shared: SharedFederation | None = None
        self._federation: Federation | None = None

    def start(self, job: Job) -> None:
        if self._federation is not job.federation:
            if self._shared is not None:
                self._shared.close()
            self._shared, self._federation = SharedFederation(job.federation), job.federation
            fresh = True
        else:
            fresh = False
        self._job = job
        while len(self._pool) < self.workers:
            self._pool.append(_Process())
        for worker in self._pool:
            try:
                worker.hand(job, self._shared if fresh or not worker.has_data else None)
            except Closed:  # it died while it had nothing to do
                worker.restart()
                worker.hand(job, self._shared)
        for worker in self._pool:
            worker.wait_ready()

    def run(self, tasks: Iterable[Task]) -> Iterator[Result]:
        self._fill_pool()
        waiting = messages(tasks)
        again: deque[list[Task]] = deque()
        deaths: Counter[int] = Counter()
        with selectors.DefaultSelector() as selector:
            try:
                while True:
                    for worker in self._pool:
                        while worker.busy is None and (message := again.popleft() if again else next(waiting, None)):
                            worker.busy = message
                            try:
                                send(worker.connection, *task_message(message))
                            except Closed:
                                self._replace(worker, again, deaths)
                                continue
                            selector.register(worker.connection, selectors.EVENT_READ, worker)
                    if not selector.get_map():
                        return
                    for key, _ in selector.select():
                        worker = key.data
                        selector.unregister(worker.connection)
                        try:
                            results = results_from(*receive(worker.connection))
                        except Closed:
                            self._replace(worker, again, deaths)
                            continue
                        worker.busy = None
                        yield from results
            finally:
                self._dismiss_busy()

    def close(self) -> None:
        for worker in self._pool:
            worker.stop()
        self._pool = []
        if self._shared is not None:
            self._shared.close()
        self._shared = self._federation = None

    def _dismiss_busy(self) -> None:
        """End the workers that were interrupted in the middle of a task; new ones come when they are needed."""
        for worker in [worker for worker in self._pool if worker.busy is not None]:
            worker.stop()
            self._pool.remove(worker)

    def _fill_pool(self) -> None:
        fresh = [_Process() for _ in range(self.workers - len(self._pool))]
        for worker in fresh:
            assert self._job is not None, "start comes first"
            worker.hand(self._job, self._shared)
        for worker in fresh:
            worker.wait_ready()
        self._pool += fresh

    def _replace(self, worker: "_Process", again: deque[list[Task]], deaths: Counter[int]) -> None:
        message = worker.busy or []
        worker.restart()
        self._welcome(worker)
        again.append(message)
        for task in message:
            deaths[task.index] += 1
            if deaths[task.index] >= TRIES:
                raise UserError(
                    f"a worker process died {TRIES} times on client {task.client} "
                    "(is there enough memory? fewer workers need less: --set engine.workers=1)"
                )

    def _welcome(self, worker: "_Process") -> None:
        assert self._job is not None
        worker.hand(self._job, self._shared)
        worker.wait_ready()


class _Process:
    """One worker process and what it is doing."""

    def __init__(self) -> None:
        self.busy: list[Task] | None = None
        self.has_data = False
        self._open()

    def hand(self, job: Job, shared: SharedFederation | None) -> None:
        send_job(self.connection, job, shared)
        self.has_data = True

    def wait_ready(self) -> None:
        try:
            header, _ = receive(self.connection)
            if "refusal" in header:
                raise UserError(header["refusal"])
        except Closed:
            raise UserError(
                f"a worker process ended while it started (exit code {self.process.wait()}); its message is above"
            ) from None

    def restart(self) -> None:
        self.stop()
        self.busy, self.has_data = None, False
        self._open()

    def stop(self) -> None:
        self.connection.close()
        self.process.kill()
        self.process.wait()

    def _open(self) -> None:
        self.connection, theirs = socket.socketpair()
        self.process = subprocess.Popen(
            [sys.executable, "-m", "fedtailor.engines.process_worker", str(theirs.fileno())],
            pass_fds=[theirs.fileno()],
            stdin=subprocess.DEVNULL,
            env={**os.environ, **ENVIRONMENT, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))},
        )
        theirs.close()


# Large blocks stay with the process instead of going back to the system after every batch (1.1x).
ENVIRONMENT = {
    "OMP_NUM_THREADS": "1",
    "MKL_NUM_THREADS": "1",
    "MALLOC_MMAP_THRESHOLD_": str(2**30),
    "MALLOC_TRIM_THRESHOLD_": str(2**30),
}


def cores() -> int:
    """Cores this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def messages(tasks: Iterable[Task]) -> Iterator[list[Task]]:
    """One task each, except that previews, which are short, go together."""
    together: list[Task] = []
    for task in tasks:
        if task.kind != "preview":
            yield [task]
            continue
        together.append(task)
        if len(together) == LIGHT:
            yield together
            together = []
    if together:
        yield together
