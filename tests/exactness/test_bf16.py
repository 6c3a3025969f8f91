"""Every method in bf16: the same bits in every engine and after kills; what is stored and sent is in fp32."""

import random
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch

import fedtailor
from fedtailor.engines import Engine, Inline, Processes
from fedtailor.messages.trees import unpack
from fedtailor.methods import catalogue
from fedtailor.runs import Resources, Run
from fedtailor.runs.store import Store
from tests.exactness.test_kill import start
from tests.support.fingerprint import assert_same, fingerprint
from tests.support.killable import main


def settings(method: str, precision: str = "bf16", **more: Any) -> dict[str, Any]:
    trials = {"trials": 2} if "trials" in catalogue()[method].model_fields else {}
    return {
        "rounds": 2,
        "validation": True,
        "method": {"name": method, **trials},
        "data": {"clients": 4, "samples": 160},
        "training": {"epochs": 1, "momentum": 0.5, "batch_size": 16, "precision": precision},
        "participation": {"ratio": 0.75},
        **more,
    }


@pytest.fixture(scope="module")
def two() -> Iterator[Engine]:
    with Processes(2) as engine:
        yield engine


def tensors(value: Any) -> Iterator[torch.Tensor]:
    """All tensors of a tree."""
    if isinstance(value, torch.Tensor):
        yield value
    elif isinstance(value, dict | list | tuple):
        for one in value.values() if isinstance(value, dict) else value:
            yield from tensors(one)


@pytest.mark.parametrize("method", sorted(catalogue()))
def test_every_method_agrees_inline_and_in_two_workers(method: str, two: Engine, tmp_path: Path) -> None:
    for name, engine in (("inline", Inline()), ("two", two)):
        fedtailor.run(settings(method), folder=tmp_path / name, resources=Resources(engine=engine)).close()
    assert_same(tmp_path / "inline", tmp_path / "two")
    found = fingerprint(tmp_path / "inline")
    assert not found["events"], "a client failed"
    assert any(task["steps"] for task in found["tasks"])
    with Store(tmp_path / "inline") as store:
        stored = [tensor for row in store.rows("SELECT data FROM state") for tensor in tensors(unpack(row["data"]))]
    assert stored
    assert torch.bfloat16 not in {tensor.dtype for tensor in stored}


@pytest.mark.parametrize("method", ["fedavg", "fedah"])
def test_the_precision_changes_the_bits_of_a_run(method: str, tmp_path: Path) -> None:
    for precision in ("fp32", "bf16"):
        made = settings(method, precision, engine={"kind": "inline"})
        fedtailor.run(made, folder=tmp_path / precision).close()
    assert fingerprint(tmp_path / "fp32")["state"] != fingerprint(tmp_path / "bf16")["state"]


def test_running_statistics_agree_in_two_workers(two: Engine, tmp_path: Path) -> None:
    made = settings("fedper", model={"name": "resnet18-bn", "arguments": {"width": 4}})
    for name, engine in (("inline", Inline()), ("two", two)):
        fedtailor.run(made, folder=tmp_path / name, resources=Resources(engine=engine)).close()
    assert_same(tmp_path / "inline", tmp_path / "two")


def test_killed_in_the_middle_of_writing_and_training(tmp_path: Path) -> None:
    """Two kills while two networks of each client teach each other and two agents learn."""
    folder, stream = tmp_path / "run", random.Random(4)
    main(tmp_path / "undisturbed", "inline", 0, "bf16")
    for _ in range(2):
        with start(folder, "inline", stream.randrange(40, 110), "bf16") as process:
            assert process.wait() == -signal.SIGKILL
    with Run(folder) as run:
        assert 0 < run.rounds_done < 12
    main(folder, "inline", 0, "bf16")
    assert_same(tmp_path / "undisturbed", folder)
