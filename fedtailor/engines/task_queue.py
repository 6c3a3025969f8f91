"""The tasks that wait for a worker, in batches; tasks of a worker that died are queued again."""

from collections import Counter, deque
from collections.abc import Iterable, Iterator

from fedtailor.engines.base import Task
from fedtailor.errors import UserError

MAX_PREVIEWS = 4  # in a batch; with more, workers wait for each other at the end of a round
MAX_DEATHS = 3  # of workers with the same task


class TaskQueue:
    """Gives out tasks, taken from an iterable as they are needed, and those that must be repeated.

    Parameters
    ----------
    tasks : iterable of Task
        The tasks of one call of ``Engine.run``.
    worker : str
        What an error calls a worker.
    """

    def __init__(self, tasks: Iterable[Task], worker: str):
        self._batches = batches(tasks)
        self._ready: list[Task] | None = None
        self._again: deque[list[Task]] = deque()
        self._deaths: Counter[int] = Counter()  # by the task's index
        self._worker = worker

    def next(self) -> list[Task] | None:
        """Return the next batch, None when there is no other."""
        if self._again:
            return self._again.popleft()
        self.prepare()
        batch, self._ready = self._ready, None
        return batch

    def prepare(self) -> None:
        """Build the next batch, which may read states from the disk, before a worker waits for it."""
        if self._ready is None:
            self._ready = next(self._batches, None)

    def repeat(self, batch: list[Task]) -> None:
        """Queue the tasks of a worker that died; raise a `UserError` if a task has ended several workers."""
        self._again.append(batch)
        for task in batch:
            self._deaths[task.index] += 1
            if self._deaths[task.index] >= MAX_DEATHS:
                raise UserError(
                    f"a {self._worker} died {MAX_DEATHS} times on client {task.client} "
                    "(is there enough memory? fewer workers need less: --set engine.workers=1)"
                )


def batches(tasks: Iterable[Task]) -> Iterator[list[Task]]:
    """Yield the tasks one by one; only previews, which are short, are batched."""
    previews: list[Task] = []
    for task in tasks:
        if task.kind != "preview":
            yield [task]
            continue
        previews.append(task)
        if len(previews) == MAX_PREVIEWS:
            yield previews
            previews = []
    if previews:
        yield previews
