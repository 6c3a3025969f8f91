"""The tasks that wait for a worker."""

from fedtailor.engines.base import Task
from fedtailor.engines.task_queue import TaskQueue
from fedtailor.methods import Moment


def task(index: int) -> Task:
    return Task("fit", index, Moment(0, round=1, rounds=1), index)


def test_one_batch_is_built_ahead_and_tasks_that_are_repeated_come_first() -> None:
    built: list[int] = []
    queue = TaskQueue((built.append(i) or task(i) for i in range(3)), "worker")  # type: ignore[func-returns-value]
    for _ in range(2):
        queue.prepare()
    assert built == [0]
    first = queue.next()
    assert first == [task(0)]
    queue.prepare()
    queue.repeat(first or [])
    assert [queue.next(), queue.next(), queue.next(), queue.next()] == [[task(0)], [task(1)], [task(2)], None]
