"""Measures where the time of a round goes. Measured time never influences a result."""

import time
from collections.abc import Iterator
from contextlib import contextmanager

WORKERS = 32  # most workers whose own time is recorded
TRAINING = ("fit", "ask")  # kinds of tasks in which clients train; the others test


class Stopwatch:
    """The seconds of a round by phase. Time inside a phase that is inside another counts for the inner one only.

    ``train`` and ``evaluate``: waiting for the clients' tasks. ``server``: the method's work on the server. ``codec``:
    packing and unpacking. ``store``: the database. ``busy``: the tasks' own seconds, summed over the workers.
    ``idle``: the seconds in which workers had no task while the server waited, summed over the workers.
    ``worker 0 train`` and ``worker 0 evaluate``: the tasks of one worker, of at most `WORKERS` of them.

    Examples
    --------
    >>> stopwatch = Stopwatch()
    >>> with stopwatch.phase("train"), stopwatch.phase("codec"):
    ...     pass
    >>> sorted(stopwatch.seconds(workers=1))
    ['busy', 'codec', 'idle', 'train']
    """

    def __init__(self) -> None:
        self.busy = 0.0
        self._workers: dict[str, float] = {}
        self._spent: dict[str, float] = {}
        self._open: list[str] = []
        self._since = 0.0

    def reset(self) -> None:
        """Begin a new round."""
        self.busy, self._spent, self._workers = 0.0, {}, {}

    def worked(self, worker: int, kind: str, seconds: float) -> None:
        """Count a task of this kind for a worker."""
        self.busy += seconds
        if worker < WORKERS:
            name = f"worker {worker} {'train' if kind in TRAINING else 'evaluate'}"
            self._workers[name] = self._workers.get(name, 0.0) + seconds

    @contextmanager
    def phase(self, name: str) -> Iterator[None]:
        """Count the time until the end of this context for a phase."""
        self._count()
        self._open.append(name)
        try:
            yield
        finally:
            self._count()
            self._open.pop()

    def seconds(self, workers: int) -> dict[str, float]:
        """The seconds of every phase so far; the present one counts up to now."""
        self._count()
        waited = sum(self._spent.get(name, 0.0) for name in ("train", "evaluate"))
        return {**self._spent, **self._workers, "busy": self.busy, "idle": max(0.0, workers * waited - self.busy)}

    def _count(self) -> None:
        now = time.perf_counter()
        if self._open:
            self._spent[self._open[-1]] = self._spent.get(self._open[-1], 0.0) + now - self._since
        self._since = now
