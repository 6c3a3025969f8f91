"""The engine, the number of workers and the order of clients change nothing but the time."""

import random
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import pytest

import fedtailor
from fedtailor.engines import Engine, Inline, Processes, Result, Task
from fedtailor.methods import catalogue
from fedtailor.runs import Resources
from tests.support.fingerprint import assert_same, fingerprint

METHODS = sorted(catalogue())


def settings(method: str, **more: Any) -> dict[str, Any]:
    """Small, but with partial participation, drop-outs, momentum, and clients smaller than a batch."""
    return {
        "rounds": 3,
        "method": {"name": method},
        "data": {"source": "digits", "clients": 7, "samples": 300, "partition": {"kind": "dirichlet", "alpha": 0.3}},
        "training": {"lr": 0.05, "epochs": 1, "momentum": 0.5, "batch_size": 16},
        "participation": {"ratio": 0.6, "dropout": 0.2},
        **more,
    }


@pytest.fixture(scope="module")
def engines() -> Iterator[dict[str, Engine]]:
    made = {"one": Processes(1), "two": Processes(2)}
    yield made
    for engine in made.values():
        engine.close()


@pytest.mark.parametrize("method", METHODS)
def test_inline_and_one_and_two_workers_agree_to_the_bit(
    method: str, engines: dict[str, Engine], tmp_path: Path
) -> None:
    fedtailor.run(settings(method), folder=tmp_path / "inline", resources=Resources(engine=Inline())).close()
    for name, engine in engines.items():
        fedtailor.run(settings(method), folder=tmp_path / name, resources=Resources(engine=engine)).close()
        assert_same(tmp_path / "inline", tmp_path / name)
    assert any(event["detail"] == "dropped out" for event in fingerprint(tmp_path / "inline")["events"])


@pytest.mark.parametrize(
    "model",
    [
        {"name": "resnet18-bn", "running_statistics": "averaged"},
        {"name": "resnet18-bn", "running_statistics": "local"},
        {"name": "large"},
    ],
    ids=lambda model: f"{model['name']}-{model.get('running_statistics', '')}",
)
def test_engines_agree_on_other_networks(model: dict[str, str], engines: dict[str, Engine], tmp_path: Path) -> None:
    if model["name"].startswith("resnet"):
        model = {**model, "arguments": {"width": 4}}
    experiment = settings("fedper", model=model)
    fedtailor.run(experiment, folder=tmp_path / "inline", resources=Resources(engine=Inline())).close()
    fedtailor.run(experiment, folder=tmp_path / "two", resources=Resources(engine=engines["two"])).close()
    assert_same(tmp_path / "inline", tmp_path / "two")


DEVICES = {"deadline": 0.3, "failure": 0.1, "availability": {"kind": "daily", "day": 1.0}, "profiles": "log-normal"}


@pytest.mark.parametrize("method", ["fedavg", "feddrl"])
def test_engines_agree_on_the_clock(method: str, engines: dict[str, Engine], tmp_path: Path) -> None:
    """FedDRL has two phases in a round; some clients are late."""
    experiment = settings(method, devices={**DEVICES, "speed": 0.005})
    fedtailor.run(experiment, folder=tmp_path / "inline", resources=Resources(engine=Inline())).close()
    fedtailor.run(experiment, folder=tmp_path / "two", resources=Resources(engine=engines["two"])).close()
    fedtailor.run(experiment, folder=tmp_path / "any", resources=Resources(engine=AnyOrder())).close()
    assert_same(tmp_path / "inline", tmp_path / "two")
    assert_same(tmp_path / "inline", tmp_path / "any")
    found = fingerprint(tmp_path / "inline")
    assert len(found["clock"]) == 3
    assert any(event["detail"].startswith("late: ") for event in found["events"])


class AnyOrder(Inline):
    """Executes tasks, and gives their results, in a random order."""

    def run(self, tasks: Iterable[Task]) -> Iterator[Result]:
        shuffled = list(tasks)
        random.Random(len(shuffled)).shuffle(shuffled)
        results = list(super().run(shuffled))
        random.Random(1).shuffle(results)
        return iter(results)


@pytest.mark.parametrize("method", METHODS)
def test_the_order_of_execution_changes_nothing(method: str, tmp_path: Path) -> None:
    fedtailor.run(settings(method), folder=tmp_path / "inline", resources=Resources(engine=Inline())).close()
    fedtailor.run(settings(method), folder=tmp_path / "any", resources=Resources(engine=AnyOrder())).close()
    assert_same(tmp_path / "inline", tmp_path / "any")


def test_another_seed_gives_another_result(tmp_path: Path) -> None:
    for seed in (0, 1):
        experiment = settings("fedavg", seed=seed)
        fedtailor.run(experiment, folder=tmp_path / str(seed), resources=Resources(engine=Inline())).close()
    one, other = fingerprint(tmp_path / "0"), fingerprint(tmp_path / "1")
    assert one["state"] != other["state"]
    assert one["rounds"] != other["rounds"]
