"""The tasks that wait for a worker, in batches; tasks of a worker that died are queued again."""

from collections import Counter, deque
from collections.abc import Iterable, Iterator
from itertools import groupby, islice

from fedtailor.engines.base import TRAINING, Task
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
    workers : int
        The number of workers.
    together : int
        The number of clients that a worker trains at once, at most.
    """

    def __init__(self, tasks: Iterable[Task], worker: str, workers: int = 1, together: int = 1):
        self._batches = batches(tasks, workers, together)
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


def batches(tasks: Iterable[Task], workers: int = 1, together: int = 1) -> Iterator[list[Task]]:
    """Yield the tasks one by one; previews, which are short, and clients that train together are batched.

    For clients that train together, all workers get a batch of about the same size before one gets another.
    """
    for kind, alike in groupby(tasks, lambda task: "train" if task.kind in TRAINING else task.kind):
        if kind == "train" and together > 1:
            while some := list(islice(alike, workers * together)):
                yield from (some[first::workers] for first in range(min(workers, len(some))))
            continue
        most = MAX_PREVIEWS if kind == "preview" else 1
        while batch := list(islice(alike, most)):
            yield batch
