"""The inline engine: all tasks in this process, one after the other."""

from collections.abc import Iterable, Iterator

from fedtailor.engines.base import Engine, Job, Result, Task
from fedtailor.engines.worker import Worker


class Inline(Engine):
    """Executes tasks in this process, one after the other."""

    def __init__(self) -> None:
        self._worker: Worker | None = None

    def start(self, job: Job) -> None:
        self._worker = Worker(job)

    def run(self, tasks: Iterable[Task]) -> Iterator[Result]:
        assert self._worker is not None, "start comes first"
        return map(self._worker.execute, tasks)

    def close(self) -> None:
        self._worker = None
