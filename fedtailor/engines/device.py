"""The torch device of the workers: checked before anything is written."""

import re

import torch

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
