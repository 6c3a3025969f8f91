"""The codec of jobs, tasks and results: messages of a JSON header and byte strings. Nothing is pickled.

Byte strings that several tasks share (the payload of many clients) are in a message once.
"""

from collections.abc import Sequence
from dataclasses import asdict
from typing import Any

from fedtailor import imports
from fedtailor.data import Federation
from fedtailor.engines.attacks import Attack
from fedtailor.engines.base import Job, Result, Task
from fedtailor.learning import Score, Trace, TrainingSettings
from fedtailor.messages.frames import Message
from fedtailor.methods import Moment, find, spec
from fedtailor.models import ModelSettings


def task_message(tasks: Sequence[Task]) -> Message:
    """Encode tasks."""
    blobs = _Blobs()
    rows = [
        {**vars(task), "payload": blobs.add(task.payload), "state": blobs.add(task.state)}
        | {"moment": asdict(task.moment)}
        for task in tasks
    ]
    return {"kind": "tasks", "tasks": rows}, blobs.blobs


def tasks_from(header: dict[str, Any], blobs: list[bytes]) -> list[Task]:
    """Decode the tasks of `task_message`."""
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


class TaskSender:
    """Encodes tasks for one worker, without the payload of its last tasks, which it keeps: mostly the next has it too.

    The worker decodes all messages, in their order, by a `TaskReceiver`.
    """

    def __init__(self) -> None:
        self._kept: bytes | None = None

    def message(self, tasks: Sequence[Task]) -> Message:
        """The message with these tasks."""
        header, blobs = task_message(tasks)
        payload, at = tasks[0].payload, header["tasks"][0]["payload"]
        known, self._kept = self._kept is payload, payload
        if known:
            blobs[at] = b""
        return {**header, "kept" if known else "keep": at}, blobs


class TaskReceiver:
    """Decodes the tasks of a `TaskSender`."""

    def __init__(self) -> None:
        self._kept = b""

    def tasks(self, header: dict[str, Any], blobs: list[bytes]) -> list[Task]:
        """The tasks of the next message."""
        if "kept" in header:
            blobs[header["kept"]] = self._kept
        else:
            self._kept = blobs[header["keep"]]
        return tasks_from(header, blobs)


def result_message(results: Sequence[Result]) -> Message:
    """Encode results."""
    blobs = _Blobs()
    rows = [
        {**vars(result), "reply": blobs.add(result.reply), "state": blobs.add(result.state)}
        | {"scores": {name: asdict(score) for name, score in result.scores.items()}}
        | {"trace": asdict(result.trace)}
        for result in results
    ]
    return {"kind": "results", "results": rows}, blobs.blobs


def results_from(header: dict[str, Any], blobs: list[bytes]) -> list[Result]:
    """Decode the results of `result_message`."""
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
    """Encode a job without its data; ``outline`` is what the receiver needs to read new data, None if it has them."""
    return {
        "kind": "job",
        "method": [spec(job.method), job.method.model_dump(mode="json")],
        "model": job.model.model_dump(mode="json"),
        "training": job.training.model_dump(mode="json"),
        "seed": job.seed,
        "device": job.device,
        "counts_work": job.counts_work,
        "measures": list(job.measures),
        "measured": job.measured,
        "attack": None if job.attack is None else job.attack.model_dump(mode="json"),
        "federation": outline,
        "imports": imports.restriction(),
    }


def job_blobs(job: Job) -> list[bytes]:
    """The byte strings that follow the header of a job: its initial weights, if it has its own."""
    return [] if job.initial is None else [job.initial]


def job_from(header: dict[str, Any], federation: Federation, blobs: Sequence[bytes] = ()) -> Job:
    """Decode the job of `job_header` and `job_blobs`; the receiver adds the data."""
    imports.restrict(header.get("imports"))
    name, fields = header["method"]
    return Job(
        method=find(name).model_validate(fields),
        model=ModelSettings.model_validate(header["model"]),
        training=TrainingSettings.model_validate(header["training"]),
        seed=header["seed"],
        federation=federation,
        device=header["device"],
        counts_work=header["counts_work"],
        measures=tuple(header["measures"]),
        measured=header["measured"],
        attack=None if header["attack"] is None else Attack.model_validate(header["attack"]),
        initial=blobs[0] if blobs else None,
    )


class _Blobs:
    """The byte strings of a message; an object that is added repeatedly is included once."""

    def __init__(self) -> None:
        self.blobs: list[bytes] = []
        self._positions: dict[int, int] = {}

    def add(self, blob: bytes | None) -> int | None:
        """Return the position of a byte string in the message."""
        if blob is None:
            return None
        if id(blob) not in self._positions:
            self._positions[id(blob)] = len(self.blobs)
            self.blobs.append(blob)
        return self._positions[id(blob)]
