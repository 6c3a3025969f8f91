"""Messages between a coordinator and its workers: a JSON header and bytes; on one machine over a socket, with the
data in shared memory.

Nothing is pickled. Equal byte strings in one message (the payload of many clients) travel once.
"""

import mmap
import os
import socket
import tempfile
from collections.abc import Sequence
from dataclasses import asdict
from typing import Any

import numpy as np

from fedtailor.data import Federation
from fedtailor.engines.base import Job, Result, Task
from fedtailor.learning import Score, Trace, TrainingSettings
from fedtailor.messages.frames import Closed, Message, send
from fedtailor.methods import Moment, find, spec
from fedtailor.models import ModelSettings


def task_message(tasks: Sequence[Task]) -> Message:
    bag = _Bag()
    rows = [
        {**vars(task), "payload": bag.put(task.payload), "state": bag.put(task.state)} | {"moment": asdict(task.moment)}
        for task in tasks
    ]
    return {"kind": "tasks", "tasks": rows}, bag.blobs


def tasks_from(header: dict[str, Any], blobs: list[bytes]) -> list[Task]:
    return [
        Task(
            **{
                **row,
                "payload": blobs[row["payload"]],
                "state": None if row["state"] is None else blobs[row["state"]],
                "moment": Moment(**row["moment"]),
                "clients": tuple(row["clients"]),
                "measure": tuple(row["measure"]),
            }
        )
        for row in header["tasks"]
    ]


def result_message(results: Sequence[Result]) -> Message:
    bag = _Bag()
    rows = [
        {**vars(result), "reply": bag.put(result.reply), "state": bag.put(result.state)}
        | {"scores": {name: asdict(score) for name, score in result.scores.items()}}
        | {"trace": asdict(result.trace)}
        for result in results
    ]
    return {"kind": "results", "results": rows}, bag.blobs


def results_from(header: dict[str, Any], blobs: list[bytes]) -> list[Result]:
    return [
        Result(
            **{
                **row,
                "reply": None if row["reply"] is None else blobs[row["reply"]],
                "state": None if row["state"] is None else blobs[row["state"]],
                "scores": {name: Score(**score) for name, score in row["scores"].items()},
                "trace": Trace(**row["trace"]),
            }
        )
        for row in header["results"]
    ]


def job_header(job: Job, outline: dict[str, Any] | None) -> dict[str, Any]:
    """A job without its data; ``outline`` is what the other side needs to find and read them, if they are new."""
    return {
        "kind": "job",
        "method": [spec(job.method), job.method.model_dump(mode="json")],
        "model": job.model.model_dump(mode="json"),
        "training": job.training.model_dump(mode="json"),
        "seed": job.seed,
        "device": job.device,
        "counts_work": job.counts_work,
        "measured": job.measured,
        "federation": outline,
    }


def job_from(header: dict[str, Any], federation: Federation) -> Job:
    name, fields = header["method"]
    return Job(
        method=find(name).model_validate(fields),
        model=ModelSettings.model_validate(header["model"]),
        training=TrainingSettings.model_validate(header["training"]),
        seed=header["seed"],
        federation=federation,
        device=header["device"],
        counts_work=header["counts_work"],
        measured=header["measured"],
    )


class SharedFederation:
    """A federation's arrays in memory that several processes map; it ends with the last of them."""

    def __init__(self, federation: Federation):
        arrays = {name: np.ascontiguousarray(array) for name, array in federation.arrays().items()}
        self.outline = {"outline": federation.outline(), "arrays": {}}
        size = 0
        for name, array in arrays.items():
            entry = {"at": size, "shape": list(array.shape), "dtype": array.dtype.str}
            self.outline["arrays"][name] = entry
            size += -(-array.nbytes // 64) * 64  # aligned for vector loads
        self.file = _anonymous_file(max(size, 1))
        with mmap.mmap(self.file, max(size, 1)) as memory:
            for name, array in arrays.items():
                at = self.outline["arrays"][name]["at"]
                memory[at : at + array.nbytes] = array.tobytes()

    def close(self) -> None:
        os.close(self.file)

    @staticmethod
    def attach(file: int, outline: dict[str, Any]) -> Federation:
        memory = mmap.mmap(file, 0, access=mmap.ACCESS_READ)
        os.close(file)
        arrays = {
            name: np.ndarray(tuple(entry["shape"]), np.dtype(entry["dtype"]), memory, entry["at"])
            for name, entry in outline["arrays"].items()
        }
        return Federation.from_arrays(arrays, outline["outline"])


def send_job(connection: socket.socket, job: Job, shared: SharedFederation | None) -> None:
    """Hand over a job; without ``shared`` the federation of the job before stays."""
    send(connection, job_header(job, None if shared is None else shared.outline))
    if shared is not None:
        try:
            socket.send_fds(connection, [b"f"], [shared.file])
        except OSError as error:
            raise Closed from error


def receive_job(connection: socket.socket, header: dict[str, Any], previous: Federation | None) -> Job:
    """The job of a header that was received, with its federation, or the previous one if it brings none."""
    federation = previous
    if header["federation"] is not None:
        _, files, _, _ = socket.recv_fds(connection, 1, 1)
        federation = SharedFederation.attach(files[0], header["federation"])
    assert federation is not None, "the first job brings a federation"
    return job_from(header, federation)


class _Bag:
    """Byte strings of a message, each object once."""

    def __init__(self) -> None:
        self.blobs: list[bytes] = []
        self._places: dict[int, int] = {}

    def put(self, blob: bytes | None) -> int | None:
        if blob is None:
            return None
        if id(blob) not in self._places:
            self._places[id(blob)] = len(self.blobs)
            self.blobs.append(blob)
        return self._places[id(blob)]


def _anonymous_file(size: int) -> int:
    """A file without a name: nothing is left behind, however the processes end."""
    if hasattr(os, "memfd_create"):
        file = os.memfd_create("fedtailor")
    else:
        with tempfile.TemporaryFile() as temporary:
            file = os.dup(temporary.fileno())
    os.ftruncate(file, size)
    return file
