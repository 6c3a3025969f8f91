"""A Ray cluster: workers on this machine or on many, the data once per machine in Ray's object store.

A worker is an actor with one CPU and one torch thread. Ray is given bytes and arrays, nothing of ours to pickle. A
worker that dies, with its machine or without, is replaced and its tasks, which are pure, are done again.
"""

import logging
import os
import signal
import socket
import subprocess
import sys
import threading
import warnings
from collections import Counter, deque
from collections.abc import Iterable, Iterator
from typing import Any
from urllib.parse import urlsplit

import numpy as np
import ray
import torch

from fedtailor.data import Federation
from fedtailor.engines import codec
from fedtailor.engines.base import Engine, Job, Result, Task
from fedtailor.engines.processes import ENVIRONMENT, TRIES, cores, messages
from fedtailor.engines.worker import Worker
from fedtailor.errors import UserError
from fedtailor.messages.frames import decode, encode
from fedtailor.version import __version__

ANSWER = 15.0  # seconds that a cluster has to answer
PATIENCE = 180.0  # seconds that the first worker has to get a CPU and start, perhaps on a busy machine
LARGE = 100 * 1024  # bytes; Ray sends less along with a call

# No statistics are sent, no advice about other versions is given, no failure told twice; and the workers of a local Ray
# are processes like others, where Ray would have them wait for all others.
ENVIRONMENT_OF_RAY = {
    "RAY_USAGE_STATS_ENABLED": "0",
    "RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO": "0",
    "RAY_IGNORE_UNHANDLED_ERRORS": "1",
    "RAY_worker_niceness": "0",
}


class Ray(Engine):
    """Workers of the cluster at ``address``, one per CPU unless said otherwise; without one, of a local Ray."""

    def __init__(self, workers: int | None = None, address: str = "") -> None:
        self._owns_ray = _connect(address, workers or cores())
        self.workers = workers or _cpus()
        self._pool: list[_Actor] = []
        self._stillborn = 0  # workers in a row that ended while they started
        self._job = b""
        self._federation: Federation | None = None
        self._arrays: Any = None  # the place of the federation's in the store

    def start(self, job: Job) -> None:
        if self._federation is not job.federation:
            arrays = {name: np.ascontiguousarray(array) for name, array in job.federation.arrays().items()}
            self._arrays, self._federation = ray.put(arrays), job.federation
        more = {"path": [os.path.abspath(place) for place in sys.path], "versions": _versions()}
        self._job = encode({**codec.job_header(job, job.federation.outline()), **more})
        for worker in self._pool:
            worker.start(self._job, self._arrays)
        self._fill_pool()
        while all(worker.answer is not None for worker in self._pool):  # the others join when they are ready
            self._answers(deque(), Counter())

    def run(self, tasks: Iterable[Task]) -> Iterator[Result]:
        self._fill_pool()
        waiting = messages(tasks)
        again: deque[list[Task]] = deque()
        deaths: Counter[int] = Counter()
        placed = _Placed()
        try:
            while True:
                idle = [worker for worker in self._pool if worker.answer is None]
                while idle and (message := again.popleft() if again else next(waiting, None)):
                    idle.pop().execute(message, placed)
                if idle and not any(worker.busy for worker in self._pool):
                    return
                yield from self._answers(again, deaths)
        finally:
            self._dismiss_busy()

    def close(self) -> None:
        if ray.is_initialized():
            for worker in self._pool:
                worker.stop()
            if self._owns_ray:
                ray.shutdown()
        self._pool, self._arrays, self._federation = [], None, None

    def _fill_pool(self) -> None:
        for _ in range(self.workers - len(self._pool)):
            worker = _Actor()
            worker.start(self._job, self._arrays)
            self._pool.append(worker)

    def _dismiss_busy(self) -> None:
        """End the workers that were interrupted in the middle of a task; new ones come when they are needed."""
        for worker in [worker for worker in self._pool if worker.busy]:
            worker.stop()
            self._pool.remove(worker)

    def _answers(self, again: deque[list[Task]], deaths: Counter[int]) -> Iterator[Result]:
        """Wait until a worker is ready, done or dead; give the results it brings."""
        asked = {worker.answer: worker for worker in self._pool if worker.answer is not None}
        at_work = any(worker.busy for worker in asked.values())
        ready, _ = ray.wait(list(asked), timeout=None if at_work else PATIENCE)
        if not ready:
            raise UserError(
                f"no worker of the Ray cluster got a CPU and was ready within {PATIENCE:.0f} s ('ray status' shows "
                "who uses the CPUs); the run can go on later: fedtailor resume"
            )
        results: list[Result] = []
        for answer in ready:
            worker = asked[answer]
            try:
                header, blobs = decode(ray.get(answer))
            except ray.exceptions.RayError as error:
                if worker.busy and isinstance(error, ray.exceptions.RayTaskError):
                    raise  # a worker reports what goes wrong in a task, so this is a mistake of its own
                self._replace(worker, error, again, deaths)
                continue
            if header["kind"] == "ready":
                self._welcome(worker, header)
            else:
                results += codec.results_from(header, blobs)
            worker.answer, worker.busy = None, []
        return iter(results)

    def _welcome(self, worker: "_Actor", header: dict[str, Any]) -> None:
        if "refusal" in header:
            raise UserError(header["refusal"])
        self._stillborn, worker.pid = 0, header["pid"]
        if header["different"]:
            warnings.warn(f"{header['different']}: the last digits of results may differ from run to run", stacklevel=2)

    def _replace(self, worker: "_Actor", error: Exception, again: deque[list[Task]], deaths: Counter[int]) -> None:
        message = worker.busy
        worker.stop()
        self._pool[self._pool.index(worker)] = fresh = _Actor()
        fresh.start(self._job, self._arrays)
        if not message:
            self._stillborn += 1
            if self._stillborn >= TRIES:
                reason = str(error).strip().splitlines()[-1]
                raise UserError(f"Ray workers end while they start ({reason}): has every machine fedtailor installed?")
            return
        again.append(message)
        for task in message:
            deaths[task.index] += 1
            if deaths[task.index] >= TRIES:
                raise UserError(
                    f"a Ray worker died {TRIES} times on client {task.client} "
                    "(is there enough memory? fewer workers need less: --set engine.workers=1)"
                )


class _Actor:
    """One worker of the cluster as the coordinator sees it, and what it is doing."""

    def __init__(self) -> None:
        self.busy: list[Task] = []
        self.answer: Any = None  # where what it was asked last will be
        self.pid = 0
        self._remote = _REMOTE.remote()

    def start(self, job: bytes, arrays: Any) -> None:
        self.answer = self._remote.start.remote(job, arrays)

    def execute(self, tasks: list[Task], placed: "_Placed") -> None:
        header, blobs = codec.task_message(tasks)
        self.busy = tasks
        self.answer = self._remote.execute.remote(encode(header), *map(placed.of, blobs))

    def stop(self) -> None:
        ray.kill(self._remote)


class _Remote:
    """A worker where it lives. Its versions are those of its machine: Ray sends these lines, not what they call."""

    def start(self, job: bytes, arrays: dict[str, np.ndarray]) -> bytes:
        header, _ = decode(job)
        sys.path += [place for place in header["path"] if place not in sys.path]  # a method beside the experiment
        ours, theirs = header["versions"], _versions()
        different = ", ".join(f"{name} {theirs[name]}, not {ours[name]}" for name in ours if ours[name] != theirs[name])
        about = f"{socket.gethostname()} of the Ray cluster has {different}" if different else ""
        answer = {"kind": "ready", "pid": os.getpid(), "different": about}
        try:
            if ours["fedtailor"] != theirs["fedtailor"]:
                raise UserError(f"{about}: install the same")
            self.worker = Worker(codec.job_from(header, Federation.from_arrays(arrays, header["federation"])))
        except UserError as refusal:
            answer["refusal"] = str(refusal)
        return encode(answer)

    def execute(self, header: bytes, *blobs: bytes) -> bytes:
        tasks = codec.tasks_from(decode(header)[0], list(blobs))
        return encode(*codec.result_message([self.worker.execute(task) for task in tasks]))


_REMOTE: Any = ray.remote(num_cpus=1, max_restarts=0, runtime_env={"env_vars": ENVIRONMENT})(_Remote)


class _Placed:
    """Byte strings as Ray gets them: a large one goes into the store, and from there to each machine once.

    Of those that several tasks share, only the last few are known, as only they are likely to come again.
    """

    KEPT = 4

    def __init__(self) -> None:
        self._known: dict[int, tuple[bytes, Any]] = {}

    def of(self, blob: bytes) -> Any:
        if len(blob) < LARGE:
            return blob
        found = self._known.pop(id(blob), None) or (blob, ray.put(blob))
        self._known[id(blob)] = found  # keeps the bytes too, so that their id stays their own
        if len(self._known) > self.KEPT:
            self._known.pop(next(iter(self._known)))
        return found[1]


def _cpus() -> int:
    resources: dict[str, float] = ray.cluster_resources()  # type: ignore[no-untyped-call]
    return max(1, int(resources.get("CPU", 1)))


def _versions() -> dict[str, str]:
    """What has to be the same on every machine for results that are the same to the bit."""
    return {
        "fedtailor": __version__,
        "torch": torch.__version__,
        "numpy": np.__version__,
        "cpu": torch.backends.cpu.get_cpu_capability(),
    }


def _connect(address: str, cpus: int) -> bool:
    """Join a cluster or begin a local one, quietly; whether it is ours to leave."""
    if ray.is_initialized():
        return False
    os.environ.update(ENVIRONMENT_OF_RAY)
    # Ray would tell of a worker that died on stdout, where a document of ours may be going.
    ray._private.worker._worker_logs_enabled = False
    target = os.environ.get("RAY_ADDRESS") or address if address == "auto" else address
    if ":" in target:
        _knock(target)
    quiet: dict[str, Any] = {"logging_level": logging.ERROR, "log_to_driver": False}
    local: dict[str, Any] = {"num_cpus": cpus, "include_dashboard": False} if not target else {}
    before = signal.getsignal(signal.SIGTERM)
    try:
        with warnings.catch_warnings(action="ignore"):
            ray.init(target or "local", **quiet, **local)
    except (OSError, RuntimeError, ValueError, ImportError) as error:
        raise UserError(f"Ray cannot be used at {target or 'this machine'}: {' '.join(str(error).split())}") from None
    finally:
        if threading.current_thread() is threading.main_thread():
            signal.signal(signal.SIGTERM, before)
    return True


def _knock(address: str) -> None:
    """Refuse an address where no Ray is; Ray itself would try for minutes, and at times end the process."""
    place = urlsplit(address if "://" in address else f"//{address}")
    try:
        socket.create_connection((place.hostname, place.port), timeout=ANSWER / 3).close()
        if not place.scheme:
            check = [sys.executable, "-m", "ray.deciders.scripts", "health-check", "--skip-version-check"]
            subprocess.run([*check, "--address", address], check=True, capture_output=True, timeout=ANSWER)
    except (OSError, subprocess.SubprocessError):
        raise UserError(
            f"no Ray cluster answers at engine.address = {address!r}: is it started there (ray start --head), and is "
            "this its port (6379 for host:port, 10001 for ray://host:port, unless it was started with others)?"
        ) from None
