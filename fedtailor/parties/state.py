"""Typed state: dataclasses that pack themselves."""

from collections.abc import Mapping
from dataclasses import Field, fields
from types import NoneType, UnionType
from typing import Any, ClassVar, Self, Union, get_args, get_origin, get_type_hints

from fedtailor.messages.trees import Stored


class State:
    """Base of dataclasses in ``server.state`` and ``client.state``: their fields are stored and restored.

    Fields may hold tensors, numbers, strings, lists and dicts of those, other states, and objects with
    ``state_dict()/load_state_dict()``. Put an instance into the state in ``start_server`` or ``start_client``, and
    build the objects that it holds (such as a buffer) there. States in a field that is empty at the start, such as
    ``Groups | None`` or ``list[Split]``, are built from the field's type.

    Examples
    --------
    >>> @dataclass
    ... class Clusters(State):
    ...     models: list[Weights]
    ...     member: dict[int, int] = field(default_factory=dict)
    >>> server.state["clusters"] = Clusters([server.weights])  # in start_server
    >>> clusters: Clusters = server.state["clusters"]  # in any later moment
    """

    __dataclass_fields__: ClassVar[dict[str, Field[Any]]]

    def state_dict(self) -> dict[str, Any]:
        """The values of all fields by name."""
        return {field.name: getattr(self, field.name) for field in fields(self)}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Load the stored values of all fields."""
        names = [field.name for field in fields(self)]
        if sorted(state) != sorted(names):
            raise ValueError(f"the stored {type(self).__name__} has {sorted(state)}, expected {sorted(names)}")
        hints = get_type_hints(type(self))
        for name in names:
            setattr(self, name, _restored(state[name], getattr(self, name, None), hints[name]))

    @classmethod
    def restored(cls, state: Mapping[str, Any]) -> Self:
        """A new instance with these stored values."""
        found = cls.__new__(cls)
        found.load_state_dict(state)
        return found


def _restored(stored: Any, built: Any, hint: Any) -> Any:
    """Restore a stored value: load it into the object that was built, or build it from the type of the field."""
    kind, inner = _class_and_items(hint)
    if isinstance(stored, Stored):
        if hasattr(built, "load_state_dict"):
            built.load_state_dict(stored.state)
            return built
        if not (isinstance(kind, type) and issubclass(kind, State)):
            raise TypeError(f"an object is stored for a field of type {hint}: build it in start_server or start_client")
        return kind.restored(stored.state)
    if isinstance(stored, dict):
        there = built if isinstance(built, dict) else {}
        return {key: _restored(value, there.get(key), inner) for key, value in stored.items()}
    if isinstance(stored, list):
        items = built if isinstance(built, list | tuple) and len(built) == len(stored) else [None] * len(stored)
        values = [_restored(value, item, inner) for value, item in zip(stored, items, strict=True)]
        return tuple(values) if kind is tuple else values
    return stored


def _class_and_items(hint: Any) -> tuple[Any, Any]:
    """The class of a type hint and the type of its items: list and Split for ``list[Split] | None``."""
    if get_origin(hint) in (Union, UnionType):
        hint = next(one for one in get_args(hint) if one is not NoneType)
    inner = [one for one in get_args(hint) if one is not Ellipsis]
    return get_origin(hint) or hint, inner[-1] if inner else Any
