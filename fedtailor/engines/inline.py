"""The inline engine: all tasks in this process."""

from collections.abc import Iterable, Iterator

from fedtailor.engines.base import Engine, Job, Result, Task
from fedtailor.engines.task_queue import batches
from fedtailor.engines.worker import Worker


class Inline(Engine):
    """Executes tasks in this process."""

    def __init__(self) -> None:
        self._worker: Worker | None = None

    def start(self, job: Job) -> None:
        self._worker = Worker(job)

    def run(self, tasks: Iterable[Task]) -> Iterator[Result]:
        assert self._worker is not None, "start comes first"
        together = self._worker.job.together
        for batch in batches(tasks, together=together) if together > 1 else ([task] for task in tasks):
            yield from self._worker.execute_all(batch)

    def close(self) -> None:
        self._worker = None
