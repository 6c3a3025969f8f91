"""What a method's clients send is what the method declares."""

from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch

import fedtailor
from fedtailor.engines import Inline, Job, Result, Task
from fedtailor.engines.worker import Worker
from fedtailor.messages.payload import Payload, Rejected
from fedtailor.methods import Range, Schema, Tensors, catalogue
from fedtailor.runs import Resources

UNDECLARED = {"feddrl"}  # uploads more numbers than the default schema has

SETTINGS: dict[str, dict[str, Any]] = {
    "cfl": {"eps1": 1e6, "eps2": 0.0, "quorum": 0.3},
    "ifca": {"k": 3},
    "apple": {"M": 2},
}


class Checking(Inline):
    """Checks every reply of a training against the method's schema."""

    def __init__(self) -> None:
        super().__init__()
        self.checked = 0

    def start(self, job: Job) -> None:
        super().start(job)
        worker = Worker(job)
        self.schema = job.method.reply_schema(worker.network, worker.shared)

    def run(self, tasks: Iterable[Task]) -> Iterator[Result]:
        for task in tasks:
            (result,) = super().run([task])
            if task.kind == "fit" and result.reply is not None:
                self.schema.check(Payload.unpack(result.reply))
                self.checked += 1
            yield result


@pytest.mark.parametrize("name", sorted(set(catalogue()) - UNDECLARED))
@pytest.mark.parametrize("statistics", ["averaged", "local"])
def test_replies_fit_the_declared_schema(name: str, statistics: str, tmp_path: Path) -> None:
    settings = {
        "rounds": 3,
        "method": {"name": name, **SETTINGS.get(name, {})},
        "model": {"name": "tests.methods.test_reply_schema:Normalised", "running_statistics": statistics},
        "data": {"source": "digits", "clients": 5, "samples": 150},
        "training": {"epochs": 1},
        "participation": {"ratio": 0.8},
        "evaluation": {"every": 0, "final": False},
    }
    engine = Checking()
    fedtailor.run(settings, folder=tmp_path / "run", resources=Resources(engine=engine)).close()
    assert engine.checked >= 8


class Normalised(torch.nn.Sequential):
    def __init__(self, shape: tuple[int, ...], classes: int) -> None:
        size = shape[0] * shape[1] * shape[2]
        super().__init__(
            torch.nn.Flatten(), torch.nn.Linear(size, 8), torch.nn.BatchNorm1d(8), torch.nn.Linear(8, classes)
        )


SCHEMA = Schema(
    {"model": Tensors(frozenset({"w"})), "extra": Tensors(frozenset({"e"}), optional=True)},
    {"samples": Range(0, whole=True), "peers": Range(0, 9, several=True, optional=True)},
)
MODEL = {"w": torch.zeros(1)}


@pytest.mark.parametrize(
    ("reply", "reason"),
    [
        (Payload({}, {"samples": 1}), "group model is missing"),
        (Payload({"model": {}}, {"samples": 1}), "the group model lacks w"),
        (Payload({"model": {**MODEL, "v": torch.zeros(1)}}, {"samples": 1}), "lacks v, or should not have it"),
        (Payload({"model": MODEL}), "number samples is missing"),
        (Payload({"model": MODEL}, {"samples": -1}), "samples is -1"),
        (Payload({"model": MODEL}, {"samples": 1.5}), "not a whole number"),
        (Payload({"model": MODEL}, {"samples": [1]}), "samples is a list"),
        (Payload({"model": MODEL}, {"samples": 1, "peers": 3}), "peers is one number"),
        (Payload({"model": MODEL}, {"samples": 1, "peers": [3, 10]}), "peers is 10"),
        (Payload({"model": MODEL}, {"samples": 1, "loss": 2}), "loss is not in the method's reply schema"),
        (Payload({"model": MODEL}, {"samples": float("nan")}), "samples is nan"),
    ],
)
def test_a_reply_that_does_not_fit_is_refused(reply: Payload, reason: str) -> None:
    with pytest.raises(Rejected, match=reason):
        SCHEMA.check(reply)


def test_what_is_declared_or_permitted_passes() -> None:
    SCHEMA.check(Payload({"model": MODEL}, {"samples": 1}))
    SCHEMA.check(Payload({"model": MODEL, "extra": {"e": torch.zeros(1)}}, {"samples": 1, "peers": [3, 9]}))
    SCHEMA.extended(numbers={"loss": Range(0)}).check(Payload({"model": MODEL}, {"samples": 1, "loss": 2}))
    Schema(open=True).check(Payload({"anything": MODEL}, {"at": 1}))
