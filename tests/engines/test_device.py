"""A device that is not here is refused; only ``auto`` falls back."""

import pytest
import torch

from fedtailor.engines.device import usable_device
from fedtailor.errors import UserError

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
