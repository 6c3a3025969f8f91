"""Payloads: what server and clients send each other. All engines use this one type."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from torch import Tensor

from fedtailor.messages.trees import pack, unpack
from fedtailor.weights import Weights, finite, nbytes, sound

Number = int | float

MAX_HEADER = 2**24  # bytes of the header of a payload, whose objects need many times as much memory
LARGEST = 1e18  # of a number; squares of larger ones, as norms and agents compute them, leave the range of float32


class Rejected(Exception):
    """A payload cannot be used; the message says why."""


@dataclass
class Payload:
    """Named groups of named tensors (``model``, ``peer/7``), named numbers, and a small config.

    Parameters
    ----------
    groups : dict
        Tensors by group and name. The group ``model``, and groups that begin with ``model/``, hold tensors of the
        run's network.
    numbers : dict
        Numbers or lists of numbers by name.
    config : dict
        Settings such as a batch size or the name of a network.

    Examples
    --------
    >>> sent = Payload({"model": {"bias": torch.zeros(2)}}, {"samples": 40})
    >>> Payload.unpack(sent.pack()).number("samples")
    40
    """

    groups: dict[str, Weights] = field(default_factory=dict)
    numbers: dict[str, Number | list[Number]] = field(default_factory=dict)
    config: dict[str, Any] = field(default_factory=dict)

    def __getitem__(self, group: str) -> Weights:
        return self.groups[group]

    def number(self, name: str) -> float:
        """Return one number; raise `Rejected` if it is missing or a list.

        Parameters
        ----------
        name : str
            The name of the number.

        Returns
        -------
        int or float
            The number.

        Examples
        --------
        >>> Payload(numbers={"loss": 0.5}).number("loss")
        0.5
        """
        if name not in self.numbers:
            raise Rejected(f"the number {name} is missing")
        value = self.numbers[name]
        if isinstance(value, list):
            raise Rejected(f"{name} is a list where one number was expected")
        return value

    def several(self, name: str) -> list[Number]:
        """Return a list of numbers; raise `Rejected` if it is missing or a single number.

        Parameters
        ----------
        name : str
            The name of the list.

        Returns
        -------
        list of int or float
            The numbers.

        Examples
        --------
        >>> Payload(numbers={"counts": [3, 4]}).several("counts")
        [3, 4]
        """
        value = self.numbers.get(name)
        if not isinstance(value, list):
            raise Rejected(f"{name} is {'one number' if name in self.numbers else 'missing'}, expected a list")
        return value

    @property
    def nbytes(self) -> int:
        """The size in bytes: tensors, 8 for each number, the text of the config."""
        numbers = sum(len(v) if isinstance(v, list) else 1 for v in self.numbers.values())
        config = sum(len(str(key)) + len(str(value)) for key, value in self.config.items())
        return sum(nbytes(group) for group in self.groups.values()) + 8 * numbers + config

    def pack(self) -> bytes:
        """Encode the payload."""
        return pack({"groups": self.groups, "numbers": self.numbers, "config": self.config})

    @classmethod
    def unpack(cls, data: bytes) -> "Payload":
        """Decode a payload; the bytes may come from anyone, so wrong ones raise `Rejected`.

        Parameters
        ----------
        data : bytes
            What ``pack`` returned.

        Returns
        -------
        Payload
            The payload, whose values are not checked yet.

        Examples
        --------
        >>> Payload.unpack(Payload(config={"size": "large"}).pack()).config
        {'size': 'large'}
        """
        try:
            tree = unpack(data, MAX_HEADER)
        except ValueError as error:
            raise Rejected(f"not a payload: {error}") from None
        if not (isinstance(tree, dict) and tree.keys() == {"groups", "numbers", "config"}):
            raise Rejected("not a payload: it holds something else")
        for part in tree.values():
            if not (isinstance(part, dict) and all(isinstance(name, str) for name in part)):
                raise Rejected("not a payload: groups, numbers and config have texts as names")
        return cls(**tree)


def check(
    payload: Payload, like: Mapping[str, Tensor], family: Mapping[str, Mapping[str, Tensor]] | None = None
) -> None:
    """Check a payload before anyone uses it.

    Parameters
    ----------
    payload : Payload
        What arrived.
    like : mapping of str to Tensor
        The tensors of the run's network; groups ``model`` and ``model/...`` must fit them.
    family : mapping or None
        The tensors of the method's other networks, by name; groups with such a name must fit them.

    Raises
    ------
    Rejected
        If a tensor does not fit or a value is not finite.
    """
    known = {**(family or {}), "model": like}
    for group, tensors in payload.groups.items():
        if not (isinstance(tensors, dict) and all(isinstance(name, str) for name in tensors)):
            raise Rejected(f"{group} is not a group of named tensors")
        for name, tensor in tensors.items():
            if not isinstance(tensor, Tensor):
                raise Rejected(f"{group}/{name} is not a tensor")
            fits = known.get(group.partition("/")[0])
            if fits is not None:
                check_fits(f"{group}/{name}", tensor, fits.get(name))
            check_values(f"{group}/{name}", tensor)
    for name, value in payload.numbers.items():
        for number in value if isinstance(value, list) else [value]:
            if not isinstance(number, int | float) or not abs(number) <= LARGEST:
                raise Rejected(f"the number {name} is {_shown(number)}")


def check_values(where: str, tensor: Tensor) -> None:
    """Raise `Rejected` if a value is not finite, or if values are so large that their norm is not."""
    if not sound(tensor):
        how = "too large: their norm is not finite" if finite(tensor) else "not finite"
        raise Rejected(f"{where} holds values that are {how}")


def check_fits(where: str, tensor: Tensor, like: Tensor | None) -> None:
    """Raise `Rejected` unless a tensor has the shape and the type of another one."""
    if like is None:
        raise Rejected(f"{where} is not a tensor of this network")
    if tensor.shape != like.shape or tensor.dtype != like.dtype:
        raise Rejected(f"{where} is {tensor.dtype} {tuple(tensor.shape)}, expected {like.dtype} {tuple(like.shape)}")


def _shown(number: object) -> str:
    """A number, or what is in its place; digits of a huge one would fill the log."""
    if not isinstance(number, int | float):
        return f"a {type(number).__name__}"
    return str(number) if isinstance(number, float) or abs(number) <= LARGEST else f"beyond {LARGEST:g}"
