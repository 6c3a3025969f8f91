"""What travels between server and clients: one type for every engine."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor

from fedtailor.packing import pack, unpack
from fedtailor.weights import Weights, nbytes

Number = int | float


class Rejected(Exception):
    """A payload that must not be used, and why."""


@dataclass
class Payload:
    """Named groups of named tensors (``model``, ``peer/7``), numbers, and a small typed config."""

    groups: dict[str, Weights] = field(default_factory=dict)
    numbers: dict[str, Number | list[Number]] = field(default_factory=dict)
    config: dict[str, Any] = field(default_factory=dict)

    def __getitem__(self, group: str) -> Weights:
        return self.groups[group]

    def number(self, name: str) -> float:
        """One number that must be there."""
        value = self.numbers[name]
        if isinstance(value, list):
            raise Rejected(f"{name} is a list where one number was expected")
        return value

    @property
    def nbytes(self) -> int:
        """Bytes on the wire: tensors, 8 for each number, the text of the config."""
        numbers = sum(len(v) if isinstance(v, list) else 1 for v in self.numbers.values())
        config = sum(len(str(key)) + len(str(value)) for key, value in self.config.items())
        return sum(nbytes(group) for group in self.groups.values()) + 8 * numbers + config

    def pack(self) -> bytes:
        return pack({"groups": self.groups, "numbers": self.numbers, "config": self.config})

    @classmethod
    def unpack(cls, data: bytes) -> "Payload":
        return cls(**unpack(data))


def check(payload: Payload, like: Mapping[str, Tensor]) -> None:
    """Refuse what is not finite, and a ``model`` group that does not fit the network's tensors.

    Called at the border, before anyone uses the payload.
    """
    for group, tensors in payload.groups.items():
        for name, tensor in tensors.items():
            if group == "model":
                _check_fits(name, tensor, like)
            if tensor.is_floating_point() and not torch.isfinite(tensor).all():
                raise Rejected(f"{group}/{name} holds values that are not finite")
    for name, value in payload.numbers.items():
        for number in value if isinstance(value, list) else [value]:
            if not abs(number) < float("inf"):
                raise Rejected(f"the number {name} is {number}")


def _check_fits(name: str, tensor: Tensor, like: Mapping[str, Tensor]) -> None:
    if name not in like:
        raise Rejected(f"model/{name} is no tensor of this network")
    if tensor.shape != like[name].shape or tensor.dtype != like[name].dtype:
        raise Rejected(
            f"model/{name} is {tensor.dtype} {tuple(tensor.shape)}, "
            f"expected {like[name].dtype} {tuple(like[name].shape)}"
        )
