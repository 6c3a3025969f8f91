"""The tasks that wait for a worker, and which of them it gets at once."""

from collections.abc import Iterator

from fedtailor.engines.base import Task
from fedtailor.engines.task_queue import TaskQueue, batches
from fedtailor.methods import Moment


def tasks(*kinds: str) -> Iterator[Task]:
    yield from (Task(kind, index, Moment(0)) for index, kind in enumerate(kinds))  # type: ignore[arg-type]


def indices(found: list[list[Task]] | Iterator[list[Task]]) -> list[list[int]]:
    return [[task.index for task in batch] for batch in found]


def test_only_previews_are_batched() -> None:
    kinds = ["fit"] * 3 + ["preview"] * 5 + ["ask"] * 2
    assert indices(batches(tasks(*kinds), workers=2)) == [[0], [1], [2], [3, 4, 5, 6], [7], [8], [9]]


def test_clients_that_train_together_are_dealt_to_the_workers() -> None:
    """The longest come first, so that every worker gets long and short ones."""
    assert indices(batches(tasks(*["fit"] * 5), workers=2, together=8)) == [[0, 2, 4], [1, 3]]
    assert indices(batches(tasks(*["fit"] * 7), workers=2, together=2)) == [[0, 2], [1, 3], [4, 6], [5]]
    assert indices(batches(tasks("fit"), workers=2, together=8)) == [[0]]


def test_other_tasks_stay_apart_from_those_that_train() -> None:
    kinds = ["fit", "fit", "preview", "preview", "final", "ask", "ask"]
    assert indices(batches(tasks(*kinds), workers=1, together=8)) == [[0, 1], [2, 3], [4], [5], [6]]


def test_no_more_tasks_are_taken_than_the_workers_get_next() -> None:
    taken = []

    def counted() -> Iterator[Task]:
        for task in tasks(*["fit"] * 20):
            taken.append(task.index)
            yield task

    queue = TaskQueue(counted(), "worker", workers=2, together=3)
    assert indices([queue.next() or []]) == [[0, 2, 4]]
    assert len(taken) == 6


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
