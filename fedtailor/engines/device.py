"""The torch device of the workers: checked before anything is written, and what a worker does differently on a GPU."""

import os
import re
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext

import torch
from torch import Tensor

from fedtailor.errors import UserError

_FORM = re.compile(r"auto|cpu|mps|(cuda|xpu)(:\d{1,3})?")


def is_device(name: str) -> bool:
    """Whether this names a device, on this machine or another."""
    return _FORM.fullmatch(name) is not None


def usable_device(name: str, key: str = "engine.device") -> str:
    """The device to train on; ``auto`` is the first GPU, or the CPU if there is none.

    Raises
    ------
    UserError
        If torch cannot use the device on this machine. Only ``auto`` falls back to the CPU.

    Examples
    --------
    >>> usable_device("cpu")
    'cpu'
    """
    if not is_device(name):
        raise UserError(f"{key} = {name!r}: should be 'cpu', 'auto', or a GPU of torch such as 'cuda' or 'cuda:1'")
    kind, _, number = name.partition(":")
    if name == "auto":
        return next((gpu for gpu in ("cuda", "xpu", "mps") if _count(gpu)), "cpu")
    if kind != "cpu" and int(number or 0) >= _count(kind):
        found = ", ".join(f"{kind}:{index}" for index in range(_count(kind)))
        has = f"this machine has only {found}" if found else "torch finds no such device on this machine"
        raise UserError(f"{key} = {name!r}: {has}; write 'cpu', or 'auto' for a GPU where there is one")
    return name


def _count(kind: str) -> int:
    if kind == "mps":
        return int(torch.backends.mps.is_available())
    return int(getattr(torch, kind).device_count()) if getattr(torch, kind).is_available() else 0


def device_layer(name: str) -> "DeviceLayer":
    """How a worker uses this device."""
    return CudaLayer(name) if name.startswith("cuda") else DeviceLayer(name)


class DeviceLayer:
    """How a worker uses its device: the CPU, or another one without a layer of its own."""

    def __init__(self, name: str) -> None:
        self.name = name

    def moved(self, tensor: Tensor) -> Tensor:
        """The tensor on the device."""
        return tensor.to(self.name)

    def at_work(self) -> AbstractContextManager[None]:
        """Meanwhile a task is executed."""
        return nullcontext()


class CudaLayer(DeviceLayer):
    """A GPU of CUDA, which several workers may share: each has a process and a stream of its own.

    Untried: written without a GPU.
    """

    def __init__(self, name: str) -> None:
        super().__init__(name)
        os.environ.setdefault(
            "CUBLAS_WORKSPACE_CONFIG", ":4096:8"
        )  # read when cuBLAS starts; without it sums may differ
        torch.use_deterministic_algorithms(True, warn_only=True)  # a few operations have no such algorithm
        torch.backends.cudnn.benchmark = False  # would choose kernels by a stopwatch
        torch.backends.cudnn.allow_tf32 = torch.backends.cuda.matmul.allow_tf32 = False  # fp32 means fp32
        self._stream = torch.cuda.Stream(name)  # type: ignore[no-untyped-call]

    def moved(self, tensor: Tensor) -> Tensor:
        """The tensor on the device, copied from pinned memory, so that nothing waits for the copy."""
        return tensor.pin_memory().to(self.name, non_blocking=True)

    @contextmanager
    def at_work(self) -> Iterator[None]:
        self._stream.wait_stream(torch.cuda.current_stream(self.name))  # the network was placed there
        with torch.cuda.stream(self._stream):
            yield
            self._stream.synchronize()  # so that the time of a task is that of its kernels
