"""The engine of a Ray cluster: workers on one or many machines, the data once per machine in Ray's object store.

A worker is an actor with one CPU and one torch thread. Ray receives only bytes and arrays, so it pickles none of our
objects. A worker that dies, alone or with its machine, is replaced and its tasks are repeated.
"""

import logging
import os
import secrets
import signal
import socket
import subprocess
import sys
import threading
import warnings
from collections.abc import Iterable, Iterator
from dataclasses import replace
from typing import Any
from urllib.parse import urlsplit

import numpy as np
import ray
import torch

from fedtailor.data import Federation
from fedtailor.engines import codec
from fedtailor.engines.base import Engine, Job, Result, Task
from fedtailor.engines.processes import ENVIRONMENT, cores
from fedtailor.engines.task_queue import MAX_DEATHS, TaskQueue
from fedtailor.engines.worker import Worker
from fedtailor.errors import UserError
from fedtailor.learning.precision import native_bf16
from fedtailor.messages.frames import decode, encode
from fedtailor.version import __version__

CONNECT_TIMEOUT = 60.0  # seconds that a cluster has to answer; the program that asks it starts slowly
START_TIMEOUT = 180.0  # seconds that the first worker has to get a CPU and start, perhaps on a busy machine
WORKER = "Ray worker"  # in error messages
LARGE = 100 * 1024  # bytes; Ray sends smaller arguments inside a call

# Ray sends no usage statistics, gives no advice about versions, and reports no failure that we report. It starts the
# workers of a local Ray with normal priority; by default their priority is lower.
ENVIRONMENT_OF_RAY = {
    "RAY_USAGE_STATS_ENABLED": "0",
    "RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO": "0",
    "RAY_IGNORE_UNHANDLED_ERRORS": "1",
    "RAY_worker_niceness": "0",
}

# A local Ray: Ray's setting for desktops, which makes it listen on the loopback only, and calls that need its token.
LOCAL = {"RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER": "0", "RAY_AUTH_MODE": "token"}


class Ray(Engine):
    """Executes tasks on a Ray cluster.

    Parameters
    ----------
    workers : int or None
        The number of workers; by default one per CPU of the cluster.
    address : str
        The cluster's address; without one the engine starts a local Ray, on the loopback and for this account only,
        and ends it when it is closed.
    """

    def __init__(self, workers: int | None = None, address: str = "") -> None:
        self._owns_ray = _connect(address, workers or cores())
        self.workers = workers or _cpus()
        self._pool: list[_Actor] = []
        self._failed_starts = 0  # workers in a row that died before they were ready
        self._job, self._together = b"", 1  # encoded, and how many clients a worker trains at once
        self._federation: Federation | None = None
        self._arrays: Any = None  # reference to the federation's arrays in the object store

    def start(self, job: Job) -> None:
        if self._federation is not job.federation:
            arrays = {name: np.ascontiguousarray(array) for name, array in job.federation.arrays().items()}
            self._arrays, self._federation = ray.put(arrays), job.federation
        more = {"path": [os.path.abspath(place) for place in sys.path], "versions": _versions()}
        self._job = encode({**codec.job_header(job, job.federation.outline()), **more}, codec.job_blobs(job))
        self._together = job.together
        for worker in self._pool:
            worker.start(self._job, self._arrays)
        self._fill_pool()
        while all(worker.answer is not None for worker in self._pool):  # until the first worker is ready
            self._collect(TaskQueue([], WORKER))

    def run(self, tasks: Iterable[Task]) -> Iterator[Result]:
        self._fill_pool()
        queue, arguments = TaskQueue(tasks, WORKER, self.workers, self._together), _Arguments()
        results: list[Result] = []
        try:
            while True:
                idle = [worker for worker in self._pool if worker.answer is None]
                while idle and (batch := queue.next()):
                    idle.pop().execute(batch, arguments)
                yield from results  # when their workers are busy again
                if idle and not any(worker.busy for worker in self._pool):
                    return
                queue.prepare()
                results = self._collect(queue)
        finally:
            self._stop_busy()

    def close(self) -> None:
        if ray.is_initialized():
            for worker in self._pool:
                worker.stop()
            if self._owns_ray:
                ray.shutdown()
                _confine(False)
        self._pool, self._arrays, self._federation = [], None, None

    def _fill_pool(self) -> None:
        """Start the workers that are missing."""
        for _ in range(self.workers - len(self._pool)):
            worker = _Actor()
            worker.start(self._job, self._arrays)
            self._pool.append(worker)

    def _stop_busy(self) -> None:
        """End the workers that are in the middle of a task when the caller leaves a run."""
        for worker in [worker for worker in self._pool if worker.busy]:
            worker.stop()
            self._pool.remove(worker)

    def _collect(self, queue: TaskQueue) -> list[Result]:
        """Wait until a worker is ready, done or dead; return the results that arrived."""
        asked = {worker.answer: worker for worker in self._pool if worker.answer is not None}
        at_work = any(worker.busy for worker in asked.values())
        arrived, _ = ray.wait(list(asked), timeout=None if at_work else START_TIMEOUT)
        if not arrived:
            raise UserError(
                f"no worker of the Ray cluster got a CPU and was ready within {START_TIMEOUT:.0f} s ('ray status' "
                "shows what uses the CPUs); continue the run later with: fedtailor resume"
            )
        results: list[Result] = []
        for answer in arrived:
            worker = asked[answer]
            try:
                header, blobs = decode(ray.get(answer))
            except ray.exceptions.RayError as error:
                if worker.busy and isinstance(error, ray.exceptions.RayTaskError):
                    raise  # a worker returns the errors of tasks as results, so this is an error in the worker
                self._replace(worker, error, queue)
                continue
            if header["kind"] == "ready":
                self._accept(worker, header)
            else:
                number = self._pool.index(worker)
                results += [replace(result, worker=number) for result in codec.results_from(header, blobs)]
            worker.answer, worker.busy = None, []
        return results

    def _accept(self, worker: "_Actor", header: dict[str, Any]) -> None:
        """Check what a worker says when it is ready."""
        if "refusal" in header:
            raise UserError(header["refusal"])
        self._failed_starts, worker.pid = 0, header["pid"]
        if header["different"]:
            warnings.warn(f"{header['different']}: the last digits of results may differ from run to run", stacklevel=2)

    def _replace(self, worker: "_Actor", error: Exception, queue: TaskQueue) -> None:
        """Replace a worker that died, and repeat its tasks."""
        batch = worker.busy
        worker.stop()
        self._pool[self._pool.index(worker)] = new = _Actor()
        new.start(self._job, self._arrays)
        if batch:
            queue.repeat(batch)
            return
        self._failed_starts += 1
        if self._failed_starts >= MAX_DEATHS:
            reason = str(error).strip().splitlines()[-1]
            raise UserError(f"Ray workers end while they start ({reason}): has every machine fedtailor installed?")


class _Actor:
    """The coordinator's handle of one worker, and the tasks it is working on."""

    def __init__(self) -> None:
        self.busy: list[Task] = []
        self.answer: Any = None  # reference to the answer to the last call; None when there is none open
        self.pid = 0
        self._remote = _REMOTE.remote()

    def start(self, job: bytes, arrays: Any) -> None:
        self._sender = codec.TaskSender()
        self.answer = self._remote.start.remote(job, arrays)

    def execute(self, tasks: list[Task], arguments: "_Arguments") -> None:
        header, blobs = self._sender.message(tasks)
        self.busy = tasks
        self.answer = self._remote.execute.remote(encode(header), *map(arguments.of, blobs))

    def stop(self) -> None:
        ray.kill(self._remote)


class _Remote:
    """The worker itself, on its machine.

    Ray sends the code of this class, but not the modules it uses: their versions are those of the machine.
    """

    def start(self, job: bytes, arrays: dict[str, np.ndarray]) -> bytes:
        header, blobs = decode(job)
        # so that the worker finds a method in the folder of the experiment
        sys.path += [place for place in header["path"] if place not in sys.path]
        ours, theirs = header["versions"], _versions()
        different = ", ".join(f"{name} {theirs[name]}, not {ours[name]}" for name in ours if ours[name] != theirs[name])
        about = f"{socket.gethostname()} of the Ray cluster has {different}" if different else ""
        answer = {"kind": "ready", "pid": os.getpid(), "different": about}
        try:
            if ours["fedtailor"] != theirs["fedtailor"]:
                raise UserError(f"{about}: install the same version")
            federation = Federation.from_arrays(arrays, header["federation"])
            self.worker, self.receiver = Worker(codec.job_from(header, federation, blobs)), codec.TaskReceiver()
        except UserError as refusal:
            answer["refusal"] = str(refusal)
        return encode(answer)

    def execute(self, header: bytes, *blobs: bytes) -> bytes:
        tasks = self.receiver.tasks(decode(header)[0], list(blobs))
        return encode(*codec.result_message(self.worker.execute_all(tasks)))


_REMOTE: Any = ray.remote(num_cpus=1, max_restarts=0, runtime_env={"env_vars": ENVIRONMENT})(_Remote)


class _Arguments:
    """Byte strings as arguments of a call: a large one is put into the object store and sent to each machine once.

    The last few are remembered, since tasks that follow each other share them.
    """

    REMEMBERED = 4

    def __init__(self) -> None:
        self._recent: dict[int, tuple[bytes, Any]] = {}

    def of(self, blob: bytes) -> Any:
        if len(blob) < LARGE:
            return blob
        found = self._recent.pop(id(blob), None) or (blob, ray.put(blob))
        self._recent[id(blob)] = found  # holds the bytes too, so that no other object gets their id
        if len(self._recent) > self.REMEMBERED:
            self._recent.pop(next(iter(self._recent)))
        return found[1]


def _cpus() -> int:
    resources: dict[str, float] = ray.cluster_resources()  # type: ignore[no-untyped-call]
    return max(1, int(resources.get("CPU", 1)))


def _versions() -> dict[str, str]:
    """Return what must be equal on all machines for bit-identical results."""
    return {
        "fedtailor": __version__,
        "torch": torch.__version__,
        "numpy": np.__version__,
        "cpu": torch.backends.cpu.get_cpu_capability(),
        "bf16": "native" if native_bf16() else "emulated",
    }


def _connect(address: str, cpus: int) -> bool:
    """Connect to a cluster or start a local one, without output; return whether we must disconnect."""
    if ray.is_initialized():
        return False
    os.environ.update(ENVIRONMENT_OF_RAY)
    # Ray would report a dead worker on stdout, where our JSON output goes.
    ray._private.worker._worker_logs_enabled = False
    target = os.environ.get("RAY_ADDRESS") or address if address == "auto" else address
    if ":" in target:
        _check_address(target)
    quiet: dict[str, Any] = {"logging_level": logging.ERROR, "log_to_driver": False}
    local: dict[str, Any] = {"num_cpus": cpus, "include_dashboard": False} if not target else {}
    _confine(not target)
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


def _confine(local: bool) -> None:
    """Confine the Ray that is started next to this machine and this account, or let it reach a cluster."""
    for name in (*LOCAL, "RAY_AUTH_TOKEN"):
        if _GIVEN.setdefault(name, os.environ.get(name)) is None:
            os.environ.pop(name, None)
        else:
            os.environ[name] = str(_GIVEN[name])
    if local:
        os.environ.update(LOCAL, RAY_AUTH_TOKEN=secrets.token_hex(32))
    ray._private.ray_constants.ENABLE_RAY_CLUSTER = not local  # Ray has read its environment when it was imported
    compiled: Any = ray._raylet
    compiled.AuthenticationTokenLoader.instance().reset_cache()
    compiled.Config.initialize("")


_GIVEN: dict[str, str | None] = {}  # the user's own settings of these variables


def _check_address(address: str) -> None:
    """Refuse an address without a Ray cluster; Ray itself would try for minutes, and may end the process."""
    place = urlsplit(address if "://" in address else f"//{address}")
    try:
        socket.create_connection((place.hostname, place.port), timeout=CONNECT_TIMEOUT / 12).close()
        if not place.scheme:
            check = [sys.executable, "-m", "ray.scripts.scripts", "health-check", "--skip-version-check"]
            subprocess.run([*check, "--address", address], check=True, capture_output=True, timeout=CONNECT_TIMEOUT)
    except (OSError, subprocess.SubprocessError):
        raise UserError(
            f"no Ray cluster answers at engine.address = {address!r}: is it started there (ray start --head), and is "
            "this its port (by default 6379 for host:port, 10001 for ray://host:port)?"
        ) from None
