"""The schema of replies: names of tensors, names and ranges of numbers."""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from math import inf
from typing import Literal

from torch import Tensor

from fedtailor.messages.payload import Number, Payload, Rejected, check_fits

Split = Literal["train", "val"]


@dataclass(frozen=True)
class Tensors:
    """A group of named tensors in a reply."""

    names: frozenset[str]
    optional: bool = False  # whether the group may be missing
    may_lack: frozenset[str] = frozenset()  # names that may be missing, such as running statistics
    like: Mapping[str, Tensor] | None = None  # tensors of the same shapes and types; None: those of the named network
    change: bool = False  # whether it is a change of a model, such as a gradient, and not a model


@dataclass(frozen=True)
class Range:
    """A number in a reply, or a list of numbers."""

    least: float | Split = -inf  # "train" and "val" are the client's numbers of samples
    most: float | Split = inf
    whole: bool = False  # whether it is an integer
    several: bool = False  # whether it is a list
    optional: bool = False  # whether it may be missing


@dataclass(frozen=True)
class Schema:
    """The form of the replies that a method's ``upload`` makes, or of its answers to an `Ask`.

    Parameters
    ----------
    groups
        The groups of tensors by name.
    numbers
        The numbers by name.
    open
        Whether a reply may hold undeclared groups and numbers.

    Examples
    --------
    >>> schema = Schema({"model": Tensors(shared)}, {"samples": Range("train", "train", whole=True)})
    >>> schema.extended(numbers={"loss": Range(0)}).check(reply)
    """

    groups: Mapping[str, Tensors] = field(default_factory=dict)
    numbers: Mapping[str, Range] = field(default_factory=dict)
    open: bool = False

    def extended(
        self, groups: Mapping[str, Tensors] | None = None, numbers: Mapping[str, Range] | None = None
    ) -> "Schema":
        """This schema with more groups and numbers."""
        return replace(self, groups={**self.groups, **(groups or {})}, numbers={**self.numbers, **(numbers or {})})

    def check(self, reply: Payload, sizes: Mapping[str, int] | None = None) -> None:
        """Raise `Rejected`, with the reason, if the reply does not fit.

        Parameters
        ----------
        reply
            The reply, whose values have passed `fedtailor.messages.payload.check`.
        sizes
            The client's numbers of ``train`` and ``val`` samples; without them, bounds by these numbers do not count.
        """
        if reply.config and not self.open:
            raise Rejected("a reply has no config")
        for name, tensors in self.groups.items():
            if name not in reply.groups:
                if not tensors.optional:
                    raise Rejected(f"the group {name} is missing")
            elif wrong := sorted((reply.groups[name].keys() ^ tensors.names) - tensors.may_lack):
                raise Rejected(f"the group {name} lacks {wrong[0]}, or should not have it")
            elif tensors.like is not None:
                for key, tensor in reply.groups[name].items():
                    check_fits(f"{name}/{key}", tensor, tensors.like.get(key))
        for name, numbers in self.numbers.items():
            if name not in reply.numbers:
                if not numbers.optional:
                    raise Rejected(f"the number {name} is missing")
            else:
                _check_number(name, reply.numbers[name], numbers, sizes or {})
        known = {*self.groups, *self.numbers}
        if not self.open and (more := sorted({*reply.groups, *reply.numbers} - known)):
            raise Rejected(f"{more[0]} is not in the method's reply schema")


def _check_number(name: str, value: Number | list[Number], allowed: Range, sizes: Mapping[str, int]) -> None:
    if isinstance(value, list) != allowed.several:
        raise Rejected(f"{name} is {'a list' if isinstance(value, list) else 'one number'}")
    least = sizes.get(allowed.least, -inf) if isinstance(allowed.least, str) else allowed.least
    most = sizes.get(allowed.most, inf) if isinstance(allowed.most, str) else allowed.most
    for number in value if isinstance(value, list) else [value]:
        if not least <= number <= most:
            raise Rejected(f"{name} is {number}, allowed is {least} to {most}")
        if allowed.whole and number != int(number):
            raise Rejected(f"{name} is {number}, which is not a whole number")
