"""Where the time of a round goes."""

import time

import pytest

from fedtailor.runs.timing import Stopwatch


def test_time_counts_once_for_the_innermost_phase(monkeypatch: pytest.MonkeyPatch) -> None:
    """Server from 1 to 3 and 6 to 7, codec from 3 to 6, train from 10 to 14; two workers, busy for 5 of 8 seconds."""
    clock = iter([1.0, 3.0, 6.0, 7.0, 10.0, 14.0, 20.0])
    monkeypatch.setattr(time, "perf_counter", lambda: next(clock))
    stopwatch = Stopwatch()
    with stopwatch.phase("server"), stopwatch.phase("codec"):
        pass
    with stopwatch.phase("train"):
        stopwatch.busy += 5.0
    assert stopwatch.seconds(workers=2) == {"server": 3.0, "codec": 3.0, "train": 4.0, "busy": 5.0, "idle": 3.0}


def test_the_present_phase_counts_up_to_now_and_a_new_round_begins_at_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = iter([1.0, 4.0, 5.0])
    monkeypatch.setattr(time, "perf_counter", lambda: next(clock))
    stopwatch = Stopwatch()
    with stopwatch.phase("store"):
        assert stopwatch.seconds(workers=1) == {"store": 3.0, "busy": 0.0, "idle": 0.0}
    stopwatch.reset()
    monkeypatch.undo()
    assert stopwatch.seconds(workers=1) == {"busy": 0.0, "idle": 0.0}


def test_tasks_count_for_their_worker_and_for_all() -> None:
    stopwatch = Stopwatch()
    for worker, kind, seconds in ((1, "fit", 2.0), (0, "score", 1.0), (1, "ask", 0.5), (99, "fit", 4.0)):
        stopwatch.worked(worker, kind, seconds)
    found = stopwatch.seconds(workers=2)
    assert found == {"worker 1 train": 2.5, "worker 0 evaluate": 1.0, "busy": 7.5, "idle": 0.0}
    stopwatch.reset()
    assert stopwatch.seconds(workers=2) == {"busy": 0.0, "idle": 0.0}
