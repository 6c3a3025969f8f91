"""Reads what a node sends, which may be anything, before the run uses it. Every number has bounds."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from fedtailor.data.roster import Entry
from fedtailor.engines import Result, Task
from fedtailor.errors import one_line
from fedtailor.learning import Score, Trace
from fedtailor.messages.frames import decode

MAX_HEADER = 2**22  # bytes of the header of a node's message
MAX_COUNT = 2**40  # steps and samples of a training
MAX_WORK = 1e24  # multiply-adds of a task
MAX_LOSS = 1e60  # far beyond the losses of float32 models; sums and products of such numbers stay finite
MAX_MEASURES, MAX_NAME, MAX_SUMS = 64, 64, 2**20  # further measures of a score: how many, their names, their sums
ROW = ("index", "reply", "state", "scores", "trace", "failure", "seconds", "work")  # parts of a result that are read
TRACE, SCORE = ("steps", "samples", "loss"), ("correct", "loss", "samples", "values", "sums")
DIGEST_LENGTH = 32  # hexadecimal digits of a state's digest


def read_hello(data: bytes) -> Entry:
    """Read a node's description of its data; raise a ValueError if it is none or if the node refuses to give one."""
    header, _ = decode(data, MAX_HEADER)
    if header.get("kind") == "refusal":
        raise ValueError(one_line(header.get("reason")))
    return Entry.read(header.get("entry"))


def read_results(data: bytes, tasks: Sequence[Task], entry: Entry, passed: float) -> list[Result]:
    """Read a node's answer to its tasks.

    Parameters
    ----------
    data : bytes
        What the node sent.
    tasks : sequence of Task
        The tasks that the coordinator sent. Index and client in the answer are not trusted.
    entry : Entry
        The node's description of its data; scores must fit its test set.
    passed : float
        Seconds since the tasks were sent; the node cannot have computed for longer.

    Returns
    -------
    list of Result
        A result for each task, with the reply, state and scores that were asked for and nothing else.

    Raises
    ------
    ValueError
        If a part of the answer is missing, of another type, out of range or impossible.
    """
    header, blobs = decode(data, MAX_HEADER)
    if header.get("kind") == "refusal":
        return failed_results(tasks, f"its node refused: {one_line(header.get('reason'))}")
    if header.get("digest") != entry.digest:
        return failed_results(tasks, "its data changed since the run began")
    rows = header.get("results")
    if not isinstance(rows, list) or len(rows) != len(tasks):
        raise ValueError(f"there is not one result for each of {len(tasks)} tasks")
    given = {_count(_fields(row, ROW)["index"]): row for row in rows}
    if given.keys() != {task.index for task in tasks}:
        raise ValueError("a result is not that of a task")
    return [_result(given[task.index], blobs, task, entry, passed) for task in tasks]


def failed_results(tasks: Iterable[Task], reason: str) -> list[Result]:
    """Return a failure with this reason for each of the tasks."""
    return [Result(task.index, client_of(task), failure=reason) for task in tasks]


def client_of(task: Task) -> int:
    """Return the client that a task is for."""
    if task.kind != "score":
        return task.client
    (client,) = task.clients  # evaluation.together is off in a federation
    return client


def _result(row: Mapping[str, Any], blobs: list[bytes], task: Task, entry: Entry, passed: float) -> Result:
    client, trains = client_of(task), task.kind in ("fit", "ask")
    if row["failure"] is not None:
        return Result(task.index, client, failure=one_line(row["failure"]) or "no reason given")
    reply, state = (_blob(row[part], blobs) if trains else None for part in ("reply", "state"))
    if trains and reply is None:
        raise ValueError("a reply is missing")
    if state is not None and not (len(state) == DIGEST_LENGTH and {*state} <= {*b"0123456789abcdef"}):
        raise ValueError("its state has no digest")
    wanted = {"fit": task.measure, "ask": (), "final": ("final",), "preview": ("received",), "score": (str(client),)}
    trace, scores = _fields(row["trace"], TRACE), _fields(row["scores"], wanted[task.kind])
    return Result(
        task.index,
        client,
        reply,
        state,
        scores={name: _score(scores[name], entry) for name in wanted[task.kind]},
        trace=Trace(_count(trace["steps"]), _count(trace["samples"]), _loss(trace["loss"])),
        seconds=_number(row["seconds"], 0, 1.01 * passed + 1),  # clocks differ a little
        work=_number(row["work"], 0, MAX_WORK),
    )


def _score(sent: Any, entry: Entry) -> Score:
    score = _fields(sent, SCORE)
    if _count(score["samples"]) != entry.test:
        raise ValueError("a score does not fit its test set")
    correct, loss = _count(score["correct"], entry.test), _loss(score["loss"])
    values = {key: None if value is None else _loss(value) for key, value in _named(score["values"]).items()}
    sums = {key: [_loss(number) for number in _numbers(row)] for key, row in _named(score["sums"]).items()}
    return Score(correct, loss, entry.test, values, sums)


def _blob(place: Any, blobs: list[bytes]) -> bytes | None:
    return None if place is None else blobs[_count(place, len(blobs) - 1)]


def _count(value: Any, most: int = MAX_COUNT) -> int:
    if type(value) is not int or not 0 <= value <= most:
        raise ValueError(f"{_shown(value)} is not a count up to {most}")
    return value


def _number(value: Any, least: float, most: float) -> float:
    if type(value) not in (int, float) or not least <= value <= most:
        raise ValueError(f"{_shown(value)} is not a number from {least:g} to {most:g}")
    return float(value)


def _loss(value: Any) -> float:
    return _number(value, -MAX_LOSS, MAX_LOSS)


def _named(values: Any) -> dict[str, Any]:
    if not isinstance(values, dict) or len(values) > MAX_MEASURES or any(len(name) > MAX_NAME for name in values):
        raise ValueError("measures are not named values")
    return values


def _numbers(value: Any) -> list[Any]:
    if not isinstance(value, list) or len(value) > MAX_SUMS:
        raise ValueError("the sums of a measure are not a list of numbers")
    return value


def _fields(value: Any, names: Iterable[str]) -> dict[str, Any]:
    if not isinstance(value, dict):
        raise ValueError(f"a {type(value).__name__} stands where named values belong")
    for name in names:
        if name not in value:
            raise ValueError(f"{name} is missing")
    return value


def _shown(value: Any) -> str:
    if type(value) is float or (type(value) is int and abs(value) < 2**63):
        return str(value)
    return "a number of many digits" if type(value) is int else f"a {type(value).__name__}"
