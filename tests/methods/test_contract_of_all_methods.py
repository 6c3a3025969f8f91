"""What every method must withstand. A method enters by being in the catalogue."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
import torch

import fedtailor
from fedtailor.data import DataSettings, build
from fedtailor.engines import Job, Task, family_network
from fedtailor.engines.worker import Worker
from fedtailor.learning import TrainingSettings
from fedtailor.messages.trees import unpack
from fedtailor.methods import Client, Memory, Method, Moment, Payload, Server, catalogue
from fedtailor.models import ModelSettings

METHODS = sorted(catalogue())


def settings(method: str, **more: Any) -> dict[str, Any]:
    return {
        "rounds": 3,
        "method": {"name": method},
        "data": {"clients": 6, "samples": 200},
        "training": {"lr": 0.05, "epochs": 1},
        "engine": {"kind": "inline"},
        **more,
    }


def assert_sound(run: fedtailor.Run) -> None:
    """Finished, measured, and nothing is NaN."""
    assert run.finished
    final = run.last()["final"]
    assert 0 <= final.accuracy <= 1
    assert final.loss == final.loss < float("inf")
    for row in run._store.rows("SELECT scope, key, data FROM state"):
        assert _finite(unpack(row["data"])), f"{row['scope']}/{row['key']} is not finite"


def _finite(tree: Any) -> bool:
    if isinstance(tree, dict):
        return all(_finite(value) for value in tree.values())
    if isinstance(tree, list):
        return all(_finite(value) for value in tree)
    return not isinstance(tree, torch.Tensor) or bool(torch.isfinite(tree.double()).all())


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize(
    "circumstances",
    [
        {"participation": {"ratio": 0.34, "dropout": 0.5}, "evaluation": {"new_clients": 0.3}},
        {"data": {"clients": 10, "samples": 40, "partition": "iid"}},  # three training samples, batch 10
        {"data": {"clients": 10, "samples": 200, "partition": {"kind": "pathological", "classes": 1}}},
        {"model": {"name": "mlp", "head": "linear", "arguments": {"hidden": [16, 16]}}},
        {"model": {"name": "tests.support.problem:Normalised", "running_statistics": "averaged"}},
        {"model": {"name": "tests.support.problem:Normalised", "running_statistics": "local"}},
        {"model": {"name": "tests.support.problem:Normalised", "running_statistics": "reset"}},
    ],
    ids=["drop-outs", "tiny", "one-class", "two-layer-head", "bn-averaged", "bn-local", "bn-reset"],
)
def test_every_method_copes(method: str, circumstances: dict[str, Any], tmp_path: Path) -> None:
    with fedtailor.run(settings(method, **circumstances), folder=tmp_path / "run") as run:
        assert_sound(run)
        if "evaluation" in circumstances:
            assert run.last()["new"].clients == run.new_clients == 2


def job(method: Method) -> Job:
    data = DataSettings.model_validate({"clients": 4, "samples": 200})
    federation = build(data, 0, needs_validation=method.needs_validation)
    return Job(method, ModelSettings(), TrainingSettings(lr=0.05, epochs=1), 0, federation)


def first_payload(made: Job, worker: Worker) -> Payload:
    """What client 2 receives in the first round; of a method that asks its clients first, the shared part."""
    sizes = tuple(int(size) for size in made.federation.train.sizes)
    moment, memory = Moment(0, round=1, rounds=3), Memory(lambda client: None, set())
    family = {name: family_network(made, name, 0) for name in made.method.family(made.model)}
    server = Server(worker.network, sizes, made.training, moment, worker.shared, memory, family=family)
    made.method.start_server(server)
    prepared = made.method.prepare(server, range(len(sizes)))
    return prepared[2] if isinstance(prepared, Mapping) else Payload({"model": server.weights})


@pytest.mark.parametrize("method", METHODS)
def test_nothing_leaks_from_one_client_to_the_next(method: str, tmp_path: Path) -> None:
    """The same payload, state and stream give the same bytes, whatever ran before in that worker."""
    made = job(catalogue()[method]())
    fresh, used = Worker(made), Worker(made)
    payload = first_payload(made, fresh).pack()

    def fit(worker: Worker, client: int) -> Any:
        moment = Moment(0, round=1, rounds=3)
        return worker.execute(Task("fit", 0, moment, client, payload, measure=("held", "received")))

    for other in (0, 1, 3):
        fit(used, other)
    first, second = fit(fresh, 2), fit(used, 2)
    assert first.failure is None
    assert (first.reply, first.state, first.scores) == (second.reply, second.state, second.scores)


def hostile(method: str, how: str) -> Method:
    """The method with a client 1 that misbehaves from round 2 on."""

    class Hostile(catalogue()[method]):  # type: ignore[misc]
        name = ""

        def upload(self, client: Client) -> Payload:
            reply = super().upload(client)
            if client.id != 1 or client.round < 2:
                return reply
            if how == "raises":
                raise RuntimeError("the disk of this client is full")
            if how == "nan number":
                return Payload(reply.groups, {**reply.numbers, "samples": float("nan")})
            name, tensor = next(iter(client.weights().items()))
            broken = {
                "nan": tensor * float("nan"),
                "shape": tensor[..., :1],
                "dtype": tensor.double(),
            }
            if how == "unknown name":
                return Payload({"model": {"nobody": tensor}}, reply.numbers)
            return Payload({"model": {**reply.groups.get("model", {}), name: broken[how]}}, reply.numbers)

    return Hostile()


# every kind of misbehaviour with two methods (the border is the same for all), the commonest two with every method
MISBEHAVIOUR = [(method, how) for method in METHODS for how in ("raises", "nan")] + [
    (method, how) for method in ("fedavg", "fedper") for how in ("nan number", "shape", "dtype", "unknown name")
]


@pytest.mark.parametrize(("method", "how"), MISBEHAVIOUR)
def test_a_client_that_misbehaves_is_left_out_and_stays_as_it_was(method: str, how: str, tmp_path: Path) -> None:
    experiment = fedtailor.experiment(settings(method)).model_copy(update={"method": hostile(method, how)})
    with fedtailor.run(experiment, folder=tmp_path / "run") as run:
        assert_sound(run)
        assert [(e["round"], e["client"]) for e in run.events() if e["kind"] == "failed"] == [(2, 1), (3, 1)]
        assert {row["client"] for row in run.scores("held", 2)} == {0, 2, 3, 4, 5}
        after_three = run._store.state("client", 1)
    short = {**settings(method), "rounds": 1}
    with fedtailor.run(short, folder=tmp_path / "short") as run:
        assert run._store.state("client", 1) == after_three
