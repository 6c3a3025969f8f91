"""The engine of worker processes on this machine: one per core, one torch thread each, the data in shared memory.

Workers are plain programs connected by a socket, so a script that uses the library needs no
``if __name__ == "__main__"`` and nothing is pickled. A worker that dies is replaced and its tasks are repeated.
"""

import os
import selectors
import socket
import subprocess
import sys
from collections.abc import Iterable, Iterator
from contextlib import suppress
from dataclasses import replace

from fedtailor.data import Federation
from fedtailor.engines.base import Engine, Job, Result, Task
from fedtailor.engines.codec import TaskSender, results_from
from fedtailor.engines.shared_memory import Channel, SharedFederation, anonymous_file, send_job
from fedtailor.engines.task_queue import MAX_DEATHS, TaskQueue
from fedtailor.errors import UserError
from fedtailor.messages.frames import Closed, receive


def _tunables(given: str) -> str:
    """The tunables of the C library, with huge pages unless the user has decided about them."""
    return given if "glibc.malloc.hugetlb" in given else ":".join(filter(None, (given, "glibc.malloc.hugetlb=1")))


# Large blocks stay with the process instead of going back to the system after every batch (1.1x), and lie in huge
# pages where Linux has them: activations of a batch touch thousands of small ones (1.1x).
ENVIRONMENT = {
    "OMP_NUM_THREADS": "1",
    "MKL_NUM_THREADS": "1",
    "MALLOC_MMAP_THRESHOLD_": str(2**30),
    "MALLOC_TRIM_THRESHOLD_": str(2**30),
    "GLIBC_TUNABLES": _tunables(os.environ.get("GLIBC_TUNABLES", "")),
}


def cores() -> int:
    """Return the number of cores that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


class Processes(Engine):
    """Executes tasks in worker processes on this machine.

    Parameters
    ----------
    workers : int or None
        The number of processes; by default one per core.
    """

    def __init__(self, workers: int | None = None) -> None:
        self.workers = workers or cores()
        self._pool: list[_Process] = []
        self._job: Job | None = None
        self._shared: SharedFederation | None = None
        self._federation: Federation | None = None  # whose data are in shared memory

    def warm(self) -> None:
        while len(self._pool) < self.workers:
            self._pool.append(_Process())

    def start(self, job: Job) -> None:
        new_data = self._federation is not job.federation
        if new_data:
            if self._shared is not None:
                self._shared.close()
            self._shared, self._federation = SharedFederation(job.federation), job.federation
        self._job = job
        self.warm()
        for worker in self._pool:
            with suppress(Closed):  # it died while it was idle, which `_await` notices
                worker.send_job(job, self._shared if new_data or not worker.has_data else None)
        for worker in self._pool:
            self._await(worker)

    def run(self, tasks: Iterable[Task]) -> Iterator[Result]:
        self._fill_pool()
        assert self._job is not None, "start comes first"
        queue = TaskQueue(tasks, "worker process", self.workers, self._job.together)
        with selectors.DefaultSelector() as selector:
            try:
                while True:
                    self._send_tasks(queue, selector)
                    if not selector.get_map():
                        return
                    queue.prepare()
                    for key, _ in selector.select():
                        worker: _Process = key.data
                        selector.unregister(worker.connection)
                        try:
                            results = results_from(*worker.channel.receive())
                        except Closed:
                            self._replace(worker, queue)
                            continue
                        worker.busy = None
                        self._send_tasks(queue, selector)  # so that the worker is busy while its results are handled
                        number = self._pool.index(worker)
                        yield from (replace(result, worker=number) for result in results)
            finally:
                self._stop_busy()

    def close(self) -> None:
        for worker in self._pool:
            worker.stop()
        self._pool = []
        if self._shared is not None:
            self._shared.close()
        self._shared = self._federation = None

    def _send_tasks(self, queue: TaskQueue, selector: selectors.BaseSelector) -> None:
        """Give every idle worker a batch of tasks, as long as there are any."""
        for worker in self._pool:
            while worker.busy is None and (batch := queue.next()):
                worker.busy = batch
                try:
                    worker.channel.send(*worker.sender.message(batch))
                except Closed:
                    self._replace(worker, queue)
                    continue
                selector.register(worker.connection, selectors.EVENT_READ, worker)

    def _replace(self, worker: "_Process", queue: TaskQueue) -> None:
        """Restart a worker that died, and repeat its tasks."""
        assert self._job is not None
        batch = worker.busy or []
        worker.restart()
        with suppress(Closed):
            worker.send_job(self._job, self._shared)
        self._await(worker)
        queue.repeat(batch)

    def _await(self, worker: "_Process") -> None:
        """Wait until a worker is ready; one that dies meanwhile is started again, a few times."""
        assert self._job is not None
        for _ in range(MAX_DEATHS):
            with suppress(Closed):
                worker.wait_ready()
                return
            code = worker.process.wait()
            worker.restart()
            with suppress(Closed):
                worker.send_job(self._job, self._shared)
        raise UserError(
            f"a worker process ended {MAX_DEATHS} times while it started (exit code {code}); its message is above"
        )

    def _fill_pool(self) -> None:
        """Start the workers that are missing since an earlier run was left."""
        new = [_Process() for _ in range(self.workers - len(self._pool))]
        for worker in new:
            assert self._job is not None, "start comes first"
            with suppress(Closed):
                worker.send_job(self._job, self._shared)
        self._pool += new
        for worker in new:
            self._await(worker)

    def _stop_busy(self) -> None:
        """End the workers that are in the middle of a task when the caller leaves a run."""
        for worker in [worker for worker in self._pool if worker.busy is not None]:
            worker.stop()
            self._pool.remove(worker)


class _Process:
    """One worker process and the tasks it is working on."""

    def __init__(self) -> None:
        self.busy: list[Task] | None = None
        self.has_data = False
        self.sender = TaskSender()
        self._start()

    def send_job(self, job: Job, shared: SharedFederation | None) -> None:
        send_job(self.connection, job, shared)
        self.has_data = True

    def wait_ready(self) -> None:
        header, _ = receive(self.connection)
        if "refusal" in header:
            raise UserError(header["refusal"])

    def restart(self) -> None:
        self.stop()
        self.busy, self.has_data, self.sender = None, False, TaskSender()
        self._start()

    def stop(self) -> None:
        self.channel.close()
        self.process.kill()
        self.process.wait()

    def _start(self) -> None:
        self.connection, theirs = socket.socketpair()
        ours, answers = anonymous_file(), anonymous_file()
        self.channel = Channel(self.connection, ours, answers)
        files = [theirs.fileno(), answers, ours]
        self.process = subprocess.Popen(
            [sys.executable, "-m", "fedtailor.engines.process_worker", *map(str, files)],
            pass_fds=files,
            stdin=subprocess.DEVNULL,
            env={**os.environ, **ENVIRONMENT, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))},
        )
        theirs.close()
