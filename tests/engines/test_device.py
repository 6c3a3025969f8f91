"""A device that is not here is refused; only ``auto`` falls back. How workers use a GPU, on a fake one."""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest
import torch
from torch import Tensor

from fedtailor.data import DataSettings, build
from fedtailor.engines import Inline, Job, Task
from fedtailor.engines.device import CudaLayer, DeviceLayer, device_layer, usable_device
from fedtailor.errors import UserError
from fedtailor.learning import TrainingSettings
from fedtailor.methods import Moment, Payload, find
from fedtailor.models import ModelSettings

without_gpu = pytest.mark.skipif(torch.cuda.is_available(), reason="this machine has a GPU")


@without_gpu
@pytest.mark.parametrize("name", ["cuda", "cuda:0", "xpu", "mps"])
def test_a_gpu_that_is_not_here_is_refused(name: str) -> None:
    with pytest.raises(UserError, match=f"engine.device = '{name}': torch finds no such device"):
        usable_device(name)


@without_gpu
def test_only_auto_falls_back() -> None:
    assert usable_device("auto") == usable_device("cpu") == "cpu"


def test_the_second_gpu_needs_two(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 1)
    assert usable_device("cuda:0") == "cuda:0"
    assert usable_device("auto") == "cuda"
    with pytest.raises(UserError, match=r"has only cuda:0; write 'cpu', or 'auto'"):
        usable_device("cuda:1")


@pytest.mark.parametrize("name", ["banana", "", "cuda:", "cuda:x", "cpu:0", "CUDA"])
def test_what_is_no_device_is_refused(name: str) -> None:
    with pytest.raises(UserError, match="should be 'cpu', 'auto'"):
        usable_device(name)


class FakeStream:
    """A stream that writes down what happens to it."""

    said: list[str]

    def __init__(self, device: str) -> None:
        self.device = device

    def wait_stream(self, other: str) -> None:
        self.said.append(f"waits for {other}")

    def synchronize(self) -> None:
        self.said.append("is done")


@pytest.fixture
def cuda(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[str]]:
    """A fake of CUDA whose memory is that of the CPU: what was asked of it, in order."""
    said: list[str] = []

    @contextmanager
    def stream(entered: FakeStream) -> Iterator[None]:
        said.append("begins")
        yield
        said.append("ends")

    def to(tensor: Tensor, device: Any = None, **options: Any) -> Tensor:
        said.append(f"copy to {device}, {options}")
        return tensor

    monkeypatch.setattr(FakeStream, "said", said, raising=False)
    monkeypatch.setattr(torch.cuda, "Stream", FakeStream)
    monkeypatch.setattr(torch.cuda, "stream", stream)
    monkeypatch.setattr(torch.cuda, "current_stream", lambda device: f"the default of {device}")
    monkeypatch.setattr(Tensor, "pin_memory", lambda tensor: said.append("pinned") or tensor)
    monkeypatch.setenv("CUBLAS_WORKSPACE_CONFIG", "")
    monkeypatch.delenv("CUBLAS_WORKSPACE_CONFIG")
    switches = torch.backends.cudnn.benchmark, torch.backends.cudnn.allow_tf32, torch.backends.cuda.matmul.allow_tf32
    _switch(True, True, True)
    with monkeypatch.context() as copies:
        copies.setattr(Tensor, "to", to)
        yield said
    torch.use_deterministic_algorithms(False)
    _switch(*switches)


def _switch(benchmark: bool, convolutions: bool, products: bool) -> None:
    torch.backends.cudnn.benchmark = benchmark
    torch.backends.cudnn.allow_tf32, torch.backends.cuda.matmul.allow_tf32 = convolutions, products


def test_a_gpu_gets_its_samples_from_pinned_memory_without_waiting(cuda: list[str]) -> None:
    device_layer("cuda:1").moved(torch.zeros(2))
    assert cuda == ["pinned", "copy to cuda:1, {'non_blocking': True}"]


def test_a_task_on_a_gpu_has_a_stream_and_ends_with_its_kernels(cuda: list[str]) -> None:
    with device_layer("cuda").at_work():
        cuda.append("task")
    assert cuda == ["waits for the default of cuda", "begins", "task", "is done", "ends"]


def test_a_gpu_computes_the_same_every_time(cuda: list[str]) -> None:
    CudaLayer("cuda")
    assert torch.are_deterministic_algorithms_enabled()
    assert os.environ["CUBLAS_WORKSPACE_CONFIG"] == ":4096:8"
    assert not torch.backends.cudnn.benchmark
    assert not torch.backends.cudnn.allow_tf32
    assert not torch.backends.cuda.matmul.allow_tf32


def test_other_devices_change_no_switch_of_torch() -> None:
    for name in ("cpu", "mps", "xpu:0"):
        assert type(device_layer(name)) is DeviceLayer
    assert not torch.are_deterministic_algorithms_enabled()
    samples = torch.zeros(2)
    assert device_layer("cpu").moved(samples) is samples


def test_a_worker_does_every_task_through_the_layer_of_its_device(monkeypatch: pytest.MonkeyPatch) -> None:
    said: list[str] = []

    class Fake(DeviceLayer):
        def moved(self, tensor: Tensor) -> Tensor:
            said.append(f"{len(tensor)} moved to {self.name}")
            return tensor

        @contextmanager
        def at_work(self) -> Iterator[None]:
            said.append("begins")
            yield
            said.append("ends")

    monkeypatch.setattr("fedtailor.engines.worker.device_layer", Fake)
    federation = build(DataSettings.model_validate({"clients": 2, "samples": 80, "partition": "iid"}), 0)
    job = Job(find("fedavg")(), ModelSettings(name="mlp"), TrainingSettings(epochs=1), 0, federation)
    with Inline() as engine:
        engine.start(job)
        assert engine._worker is not None
        payload = Payload({"model": engine._worker.initial}).pack()
        task = Task("fit", 0, Moment(0, round=1, rounds=1), 1, payload)
        (result,) = engine.run([task])
    assert result.failure is None
    count = len(federation.train[1])
    assert said == ["begins", f"{count} moved to cpu", f"{count} moved to cpu", "ends"]
