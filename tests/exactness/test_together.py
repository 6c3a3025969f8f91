"""Clients that train together: the same bits on every engine and after kills, and those of the serial path nearly."""

import random
import signal
from collections.abc import Iterable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

import fedtailor
from fedtailor.engines import Engine, Inline, Job, Processes, Result, Task, worker
from fedtailor.messages.trees import unpack
from fedtailor.methods import catalogue
from fedtailor.runs import Resources, Run
from tests.exactness.test_bf16 import tensors
from tests.exactness.test_kill import start
from tests.support.fingerprint import assert_same, fingerprint
from tests.support.killable import main

OWN_FIT = {name for name, method in catalogue().items() if "fit" in method.changes or name.startswith("hapfl")}


def settings(method: str = "fedavg", together: str = "on", **more: Any) -> dict[str, Any]:
    trials = {"trials": 2} if "trials" in catalogue()[method].model_fields else {}
    return {
        "rounds": 2,
        "validation": True,
        "method": {"name": method, **trials},
        "model": {"name": "mlp", "arguments": {"hidden": 12}},
        "data": {"clients": 7, "samples": 240, "partition": {"kind": "dirichlet", "alpha": 0.5}},
        "training": {"epochs": 2, "batch_size": 7, "momentum": 0.5, "together": together},
        **more,
    }


def run(folder: Path, made: dict[str, Any], engine: Engine | None = None) -> Path:
    fedtailor.run(made, folder=folder, resources=Resources(engine=engine or Inline())).close()
    return folder


class Alone(Inline):
    """An engine that gives a worker one task at a time."""

    def start(self, job: Job) -> None:
        assert job.together > 1
        super().start(replace(job, together=1))

    def run(self, tasks: Iterable[Task]) -> Iterator[Result]:
        assert self._worker is not None
        return map(self._worker.execute, tasks)


@pytest.fixture
def groups(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """How many clients each stack of this process trains."""
    seen: list[int] = []
    original = worker.train_together

    def watch(layers: Any, starts: Any, *more: Any) -> Any:
        seen.append(len(starts))
        return original(layers, starts, *more)

    monkeypatch.setattr(worker, "train_together", watch)
    return seen


@pytest.fixture(scope="module")
def two() -> Iterator[Engine]:
    with Processes(2) as engine:
        yield engine


@pytest.mark.parametrize("method", sorted({*catalogue()} - OWN_FIT))
def test_every_method_that_trains_as_by_default_has_the_same_bits_in_any_group(
    method: str, two: Engine, groups: list[int], tmp_path: Path
) -> None:
    run(tmp_path / "inline", settings(method))
    assert max(groups) == 7
    groups.clear()
    run(tmp_path / "alone", settings(method), Alone())
    assert set(groups) == {1}
    run(tmp_path / "two", settings(method), two)
    assert_same(tmp_path / "inline", tmp_path / "alone")
    assert_same(tmp_path / "inline", tmp_path / "two")
    assert not fingerprint(tmp_path / "inline")["events"], "a client failed"


def test_the_weights_are_those_of_the_serial_path_up_to_rounding(groups: list[int], tmp_path: Path) -> None:
    devices = {"devices": {"speed": 0.001}}
    for together in ("on", "off"):
        run(tmp_path / together, settings(together=together, **devices))
        assert groups == [7, 7, 7]  # two rounds and the final pass, all of the first run
    on, off = (fingerprint(tmp_path / which) for which in ("on", "off"))
    assert on["state"] != off["state"]
    assert on["times"] == off["times"], "the clock counts the same work"
    for here, there in zip(on["state"], off["state"], strict=True):
        for one, other in zip(tensors(unpack(here["data"])), tensors(unpack(there["data"])), strict=True):
            torch.testing.assert_close(one, other, rtol=1e-3, atol=1e-5)
    for here, there in zip(on["tasks"], off["tasks"], strict=True):
        assert here["loss"] == pytest.approx(there.pop("loss"), rel=1e-4)
        assert {key: value for key, value in here.items() if key != "loss"} == there


def test_only_the_client_whose_training_fails_is_left_out(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    original, longest = worker.train_together, max(row["samples"] for row in tasks_of(tmp_path / "whole")) // 2

    def fail(layers: Any, starts: Any, *more: Any) -> Any:
        if any(len(begun.y) == longest for begun in starts):
            raise RuntimeError("no memory")
        return original(layers, starts, *more)

    monkeypatch.setattr(worker, "train_together", fail)
    found = tasks_of(tmp_path / "failing")
    events = fingerprint(tmp_path / "failing")["events"]
    assert {event["detail"] for event in events} == {"RuntimeError: no memory"}
    assert len({event["client"] for event in events}) == 1
    assert {row["client"] for row in found if row["steps"]} | {events[0]["client"]} == set(range(7))


def tasks_of(folder: Path) -> list[dict[str, Any]]:
    return fingerprint(run(folder, settings()))["tasks"]


def test_killed_in_the_middle_of_writing_and_training(tmp_path: Path) -> None:
    folder, stream = tmp_path / "run", random.Random(4)
    main(tmp_path / "undisturbed", "inline", 0, "together")
    for engine in ("inline", "processes"):
        with start(folder, engine, stream.randrange(20, 60), "together") as process:
            assert process.wait() == -signal.SIGKILL
    with Run(folder) as begun:
        assert 0 < begun.rounds_done < 40
    main(folder, "inline", 0, "together")
    assert_same(tmp_path / "undisturbed", folder)
