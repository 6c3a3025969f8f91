"""Checks of what a node sends, which may be anything, before the run uses it."""

import json
import math
from collections.abc import Iterable
from dataclasses import replace

from fedtailor.data.roster import Entry
from fedtailor.engines import Result, Task
from fedtailor.learning import Score

MAX_REASON = 300  # characters of a reason that a node gives
DIGEST_LENGTH = 32  # characters of a state's digest


def checked_result(result: Result, task: Task, entry: Entry) -> Result:
    """Check a node's result and attribute it to the task that the node was given.

    Parameters
    ----------
    result : Result
        What the node sent. Its index and client are not trusted.
    task : Task
        The task that the coordinator sent.
    entry : Entry
        The node's description of its data; scores must fit its test set.

    Returns
    -------
    Result
        The result with the task's index and client, with the scores that were asked for, without details.

    Raises
    ------
    ValueError
        If a part of the result is missing, not finite, negative or impossible.
    """
    client = client_of(task)
    if result.failure is not None:
        return Result(task.index, client, failure=shortened(str(result.failure)))
    _check_numbers(result, entry)
    if result.state is not None and not (len(result.state) == DIGEST_LENGTH and result.state.isalnum()):
        raise ValueError("its state has no digest")
    if task.kind in ("fit", "ask") and result.reply is None:
        raise ValueError("a reply is missing")
    wanted = {str(client)} if task.kind == "score" else {"received", "held", "final"}
    scores: dict[str, Score] = {name: score for name, score in result.scores.items() if name in wanted}
    return replace(result, index=task.index, client=client, scores=scores, details="")


def failed_results(tasks: Iterable[Task], reason: str) -> list[Result]:
    """Return a failure with this reason for each of the tasks."""
    return [Result(task.index, client_of(task), failure=reason) for task in tasks]


def client_of(task: Task) -> int:
    """Return the client that a task is for."""
    if task.kind != "score":
        return task.client
    (client,) = task.clients  # evaluation.together is off in a federation
    return client


def shortened(reason: str) -> str:
    """Return a node's text on one line, escaped and of limited length."""
    return json.dumps(" ".join(str(reason).split())[:MAX_REASON])[1:-1]


def _check_numbers(result: Result, entry: Entry) -> None:
    numbers = [result.seconds, result.work, result.trace.loss, result.trace.steps, result.trace.samples]
    for score in result.scores.values():
        numbers += [score.correct, score.loss, score.samples]
        if not (type(score.correct) is int and 0 <= score.correct <= score.samples == entry.test):
            raise ValueError("a score does not fit its test set")
    if not all(isinstance(number, int | float) and math.isfinite(number) for number in numbers):
        raise ValueError("a number is not finite")
    if min(result.seconds, result.work, result.trace.steps, result.trace.samples) < 0:
        raise ValueError("a number is negative")
