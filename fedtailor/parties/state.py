"""Typed state: dataclasses that pack themselves."""

from collections.abc import Mapping
from dataclasses import Field, fields
from types import NoneType, UnionType
from typing import Any, ClassVar, Self, Union, get_args, get_origin, get_type_hints

from fedtailor.messages.trees import Stored


class State:
    """Makes a dataclass fit for ``server.state`` and ``client.state``: its fields are stored and restored.

    Fields hold what a state may hold: tensors, numbers, strings, lists and dicts of those, other states, and objects
    with ``state_dict()/load_state_dict()``. Put an instance into the state in ``start_server`` or ``start_client``,
    which also build the objects (an agent, a buffer) that it holds. States inside a field that was empty at the start,
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
        """Take over the stored values of all fields."""
        names = [field.name for field in fields(self)]
        if sorted(state) != sorted(names):
            raise ValueError(f"the stored {type(self).__name__} has {sorted(state)}, expected {sorted(names)}")
        hints = get_type_hints(type(self))
        for name in names:
            setattr(self, name, _revived(state[name], getattr(self, name, None), hints[name]))

    @classmethod
    def restored(cls, state: Mapping[str, Any]) -> Self:
        """A new instance with these stored values."""
        found = cls.__new__(cls)
        found.load_state_dict(state)
        return found


def _revived(stored: Any, built: Any, hint: Any) -> Any:
    """A stored value: loaded into the object that stands there, or built from the type of the field."""
    kind, inner = _taken_apart(hint)
    if isinstance(stored, Stored):
        if hasattr(built, "load_state_dict"):
            built.load_state_dict(stored.state)
            return built
        if not (isinstance(kind, type) and issubclass(kind, State)):
            raise TypeError(f"a stored object stands for {hint}: start_server or start_client did not build it")
        return kind.restored(stored.state)
    if isinstance(stored, dict):
        there = built if isinstance(built, dict) else {}
        return {key: _revived(value, there.get(key), inner) for key, value in stored.items()}
    if isinstance(stored, list):
        items = built if isinstance(built, list | tuple) and len(built) == len(stored) else [None] * len(stored)
        values = [_revived(value, item, inner) for value, item in zip(stored, items, strict=True)]
        return tuple(values) if kind is tuple else values
    return stored


def _taken_apart(hint: Any) -> tuple[Any, Any]:
    """The class that a type means and the type of what it contains: of ``list[Split] | None`` list and Split."""
    if get_origin(hint) in (Union, UnionType):
        hint = next(one for one in get_args(hint) if one is not NoneType)
    inner = [one for one in get_args(hint) if one is not Ellipsis]
    return get_origin(hint) or hint, inner[-1] if inner else Any
