"""The estimate of a run's time, by hand."""

from typing import Any

import pytest

from fedtailor.runs import Resources, experiment, pace
from fedtailor.runs.assembly import Assembly, assemble, job_of

SPLIT = {"train": 0.75, "test": 0.25}
SETTINGS: dict[str, dict[str, Any]] = {
    "data": {"source": "digits", "clients": 4, "samples": 320, "partition": "iid", "split": SPLIT},
    "training": {"epochs": 2, "batch_size": 16},
    "evaluation": {"every": 0, "final": False},
    "engine": {"kind": "inline"},
}  # 4 clients with 60 samples to train and 20 to test: 4 and 2 mini-batches


def made(**changes: dict[str, Any]) -> Assembly:
    tables = {key: {**SETTINGS.get(key, {}), **changes.get(key, {})} for key in SETTINGS.keys() | changes.keys()}
    settings = experiment({"rounds": 3, **tables})
    return assemble(settings, job_of(settings, Resources()))


@pytest.mark.parametrize(
    ("changes", "steps"),
    [
        ({}, 3 * 4 * 8),
        ({"training": {"epochs": 1}}, 3 * 4 * 4),
        ({"training": {"steps": 5}}, 3 * 4 * 5),
        ({"participation": {"clients": 2}}, 3 * 2 * 8),
        ({"evaluation": {"final": True}}, 3 * 4 * 8 + 4 * 8 + 8 / 3),
        ({"evaluation": {"every": 1}}, 3 * 4 * 8 + 3 * 8 / 3),
        ({"method": {"name": "ditto"}}, 2 * 3 * 4 * 8),
        ({"evaluation": {"final": True, "every": 1, "clients": 2}}, 3 * 4 * 8 + 3 * 4 / 3 + 2 * 8 + 4 / 3),
    ],
)
def test_the_mini_batches_of_a_run_are_counted(changes: dict[str, Any], steps: float) -> None:
    assert pace.steps_of_a_run(made(**changes)) == pytest.approx(steps)


def test_the_time_is_that_of_a_step_for_each_worker_s_share(monkeypatch: pytest.MonkeyPatch) -> None:
    now = iter([10.0, 16.0] * 5)  # three steps in 6 s
    monkeypatch.setattr(pace.time, "perf_counter", lambda: next(now))
    assert pace.expected_seconds(made()) == pytest.approx(2 * 96)
    assert pace.expected_seconds(made(engine={"kind": "processes", "workers": 2})) == pytest.approx(96)
    assert pace.expected_seconds(made(engine={"kind": "processes", "workers": 99})) == pytest.approx(48), "4 clients"
    assert pace.expected_seconds(made(), episodes=5) == pytest.approx(2 * 96 * 5)
    assert pace.expected_seconds(made(engine={"kind": "ray"})) is None, "its machines have another speed"
