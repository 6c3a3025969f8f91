"""The schema of replies: names of tensors, names and ranges of numbers."""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from math import inf

from fedtailor.messages.payload import Number, Payload, Rejected


@dataclass(frozen=True)
class Tensors:
    """A group of named tensors in a reply."""

    names: frozenset[str]
    optional: bool = False  # whether the group may be missing
    may_lack: frozenset[str] = frozenset()  # names that may be missing, such as running statistics
    change: bool = False  # whether it is a change of a model, such as a gradient, and not a model


@dataclass(frozen=True)
class Range:
    """A number in a reply, or a list of numbers."""

    least: float = -inf
    most: float = inf
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
    >>> schema = Schema({"model": Tensors(shared)}, {"samples": Range(0, whole=True)})
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

    def check(self, reply: Payload) -> None:
        """Raise `Rejected`, with the reason, if the reply does not fit."""
        for name, tensors in self.groups.items():
            if name not in reply.groups:
                if not tensors.optional:
                    raise Rejected(f"the group {name} is missing")
            elif wrong := sorted((reply.groups[name].keys() ^ tensors.names) - tensors.may_lack):
                raise Rejected(f"the group {name} lacks {wrong[0]}, or should not have it")
        for name, numbers in self.numbers.items():
            if name not in reply.numbers:
                if not numbers.optional:
                    raise Rejected(f"the number {name} is missing")
            else:
                _check_number(name, reply.numbers[name], numbers)
        known = {*self.groups, *self.numbers}
        if not self.open and (more := sorted({*reply.groups, *reply.numbers} - known)):
            raise Rejected(f"{more[0]} is not in the method's reply schema")


def _check_number(name: str, value: Number | list[Number], allowed: Range) -> None:
    if isinstance(value, list) != allowed.several:
        raise Rejected(f"{name} is {'a list' if isinstance(value, list) else 'one number'}")
    for number in value if isinstance(value, list) else [value]:
        if not allowed.least <= number <= allowed.most:
            raise Rejected(f"{name} is {number}, allowed is {allowed.least} to {allowed.most}")
        if allowed.whole and number != int(number):
            raise Rejected(f"{name} is {number}, which is not a whole number")
