"""What a method's clients send is what the method declares."""

import math
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch

import fedtailor
from fedtailor.engines import Inline, Job, Result, Task
from fedtailor.engines.worker import Worker
from fedtailor.messages.payload import Payload, Rejected
from fedtailor.methods import AgentMethod, Range, Schema, Tensors, catalogue
from fedtailor.runs import Resources

SETTINGS: dict[str, dict[str, Any]] = {
    "cfl": {"eps1": 1e6, "eps2": 0.0, "quorum": 0.3},
    "ifca": {"k": 3},
    "apple": {"M": 2},
    "hapfl": {"sizes": ["tests.support.problem:Normalised", "linear"]},
    "fedalp": {"warmup": 0.4},
}
VARIANTS: list[dict[str, Any]] = [
    *({"name": name} for name in sorted(catalogue())),
    {"name": "pfedrlla", "peers": "uploaded"},
    {"name": "bwa", "threshold": 0.5},
    {"name": "hapfl", "sizes": []},
]
ASKED = {  # what the server asks for beside a training
    "adaptive-aw": {"judge"},
    "adaptive-b": {"judge"},
    "bo-bwa": {"judge"},
    "bwa": {"judge"},
    "fedalp": {"probe"},
    "fedddrl": {"probe", "judge"},
    "feddrl": {"judge"},
    "hapfl": {"assess"},
    "pfedrlla": {"begin", "send"},
    "pfedrlla-after": {"begin", "send"},
    "tailor": {"assess"},
}


class Checking(Inline):
    """Checks every reply against the method's schema, and that the schema refuses the reply with anything wrong."""

    def __init__(self) -> None:
        super().__init__()
        self.checked = 0
        self.asked: set[str] = set()

    def start(self, job: Job) -> None:
        super().start(job)
        self.made = Worker(job)

    def schema(self, task: Task) -> Schema:
        method, network, shared = self.made.method, self.made.network, self.made.shared
        return (
            method.ask_schema(task.question, network, shared) if task.question else method.reply_schema(network, shared)
        )

    def sizes(self, client: int) -> dict[str, int]:
        federation = self.made.job.federation
        return {"train": len(federation.train[client]), "val": len(federation.val[client])}

    def run(self, tasks: Iterable[Task]) -> Iterator[Result]:
        for task in tasks:
            (result,) = super().run([task])
            assert result.failure is None
            if task.kind in ("fit", "ask"):
                assert result.reply is not None
                reply, schema = Payload.unpack(result.reply), self.schema(task)
                sizes = self.sizes(task.client)
                schema.check(reply, sizes)
                for wrong in distorted(reply, schema, sizes):
                    with pytest.raises(Rejected):
                        schema.check(wrong, sizes)
                self.checked += task.kind == "fit"
                self.asked |= {task.question} - {""}
            yield result


def distorted(reply: Payload, schema: Schema, sizes: dict[str, int]) -> Iterator[Payload]:
    """The reply with something more, without something that it must have, or with a number out of its range."""
    yield Payload({**reply.groups, "more": {}}, reply.numbers)
    yield Payload(reply.groups, {**reply.numbers, "more": 1})
    yield Payload(reply.groups, reply.numbers, {"more": 1})
    for name, group in reply.groups.items():
        others = {other: tensors for other, tensors in reply.groups.items() if other != name}
        yield Payload({**others, name: {**group, "more": torch.zeros(1)}}, reply.numbers)
        for tensor in group.keys() - schema.groups[name].may_lack:
            yield Payload({**others, name: {key: w for key, w in group.items() if key != tensor}}, reply.numbers)
        if not schema.groups[name].optional:
            yield Payload(others, reply.numbers)
    for name, value in reply.numbers.items():
        allowed = schema.numbers[name]
        if not allowed.optional:
            yield Payload(reply.groups, {other: number for other, number in reply.numbers.items() if other != name})
        bounds: dict[Any, Any] = {allowed.least: allowed.least, allowed.most: allowed.most} | sizes
        beyond = [float("nan"), bounds[allowed.least] - 1, bounds[allowed.most] + 1]
        for number in (number for number in beyond if math.isnan(number) or math.isfinite(number)):
            yield Payload(
                reply.groups, {**reply.numbers, name: [*value, number] if isinstance(value, list) else number}
            )


@pytest.mark.parametrize("method", VARIANTS, ids=str)
@pytest.mark.parametrize("statistics", ["averaged", "local"])
def test_replies_fit_the_declared_schema_and_distorted_ones_do_not(
    method: dict[str, Any], statistics: str, tmp_path: Path
) -> None:
    engine = Checking()
    resources = Resources(engine=engine)
    fedtailor.run(short_run(method, statistics), folder=tmp_path / "run", resources=resources).close()
    assert engine.checked >= 7
    assert engine.asked == ASKED.get(method["name"], set())


@pytest.mark.parametrize("name", sorted(name for name, kind in catalogue().items() if issubclass(kind, AgentMethod)))
@pytest.mark.parametrize("way", ["rehearsal", "environment"])
def test_replies_while_agents_learn_fit_the_declared_schema(name: str, way: str, tmp_path: Path) -> None:
    made = fedtailor.experiment(short_run({"name": name}, "averaged"))
    assert isinstance(made.method, AgentMethod)
    engine = Checking()
    changed = made.model_copy(update={"method": getattr(made.method, way)()})
    fedtailor.run(changed, folder=tmp_path / "run", resources=Resources(engine=engine)).close()
    assert engine.checked >= 3  # fedddrl's agents stop some clients
    assert engine.asked >= ASKED[name]


def short_run(method: dict[str, Any], statistics: str) -> dict[str, Any]:
    return {
        "rounds": 3,
        "method": {**SETTINGS.get(method["name"], {}), **method},
        "model": {"name": "tests.support.problem:Normalised", "running_statistics": statistics},
        "data": {"source": "digits", "clients": 5, "samples": 150},
        "training": {"epochs": 1},
        "participation": {"ratio": 0.8},
        "evaluation": {"every": 0, "final": False},
        "engine": {"kind": "inline"},
    }


LIKE = Tensors(frozenset({"l"}), optional=True, like={"l": torch.zeros(2)})
SCHEMA = Schema(
    {"model": Tensors(frozenset({"w"})), "extra": Tensors(frozenset({"e"}), optional=True), "like": LIKE},
    {
        "samples": Range(0, whole=True),
        "peers": Range(0, 9, several=True, optional=True),
        "correct": Range(0, "val", optional=True),
    },
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
        (Payload({"model": MODEL}, {"samples": 1}, {"size": 3}), "has no config"),
        (Payload({"model": MODEL}, {"samples": 1, "correct": 6}), "correct is 6, allowed is 0 to 5"),
        (Payload({"model": MODEL, "like": {"l": torch.zeros(3)}}, {"samples": 1}), r"like/l is .* \(3,\), expected"),
    ],
)
def test_a_reply_that_does_not_fit_is_refused(reply: Payload, reason: str) -> None:
    with pytest.raises(Rejected, match=reason):
        SCHEMA.check(reply, {"train": 1, "val": 5})


def test_what_is_declared_or_permitted_passes() -> None:
    SCHEMA.check(Payload({"model": MODEL}, {"samples": 1}))
    SCHEMA.check(Payload({"model": MODEL, "extra": {"e": torch.zeros(1)}}, {"samples": 1, "peers": [3, 9]}))
    SCHEMA.extended(numbers={"loss": Range(0)}).check(Payload({"model": MODEL}, {"samples": 1, "loss": 2}))
    Schema({"model": Tensors(frozenset({"w", "v"}), may_lack=frozenset({"v"}))}).check(Payload({"model": MODEL}))
    Schema(open=True).check(Payload({"anything": MODEL}, {"at": 1}))
