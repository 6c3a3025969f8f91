"""The methods, one file each. A file in this folder is found automatically."""

import importlib
import inspect
import pkgutil
from functools import cache

from fedtailor.errors import UserError, unknown
from fedtailor.imports import load
from fedtailor.messages.payload import Payload
from fedtailor.methods.base import AgentMethod, Card, Method, Payloads, shape, start
from fedtailor.parties import (
    BUILT_IN,
    NO_POLICY,
    AgentTables,
    Ask,
    Client,
    Clock,
    Decide,
    Decided,
    Decider,
    Decision,
    Decisions,
    Duration,
    Feature,
    Memory,
    Moment,
    Policy,
    Question,
    Range,
    Replies,
    Reward,
    Schema,
    Server,
    State,
    Steps,
    Tensors,
    check_method,
    check_shape,
    read_policy,
    shipped_policies,
)

__all__ = [
    "BUILT_IN",
    "NO_POLICY",
    "AgentMethod",
    "AgentTables",
    "Ask",
    "Card",
    "Client",
    "Clock",
    "Decide",
    "Decided",
    "Decider",
    "Decision",
    "Decisions",
    "Duration",
    "Feature",
    "Memory",
    "Method",
    "Moment",
    "Payload",
    "Payloads",
    "Policy",
    "Question",
    "Range",
    "Replies",
    "Reward",
    "Schema",
    "Server",
    "State",
    "Steps",
    "Tensors",
    "catalogue",
    "check_method",
    "check_shape",
    "find",
    "read_policy",
    "shape",
    "shipped_policies",
    "spec",
    "start",
]


@cache
def catalogue() -> dict[str, type[Method]]:
    """Every method of this folder by name."""
    found: dict[str, type[Method]] = {}
    for module in pkgutil.iter_modules(__path__):
        for value in vars(importlib.import_module(f"{__name__}.{module.name}")).values():
            if inspect.isclass(value) and issubclass(value, Method) and vars(value).get("name"):
                found[value.name] = value
    return dict(sorted(found.items()))


def find(name: str) -> type[Method]:
    """The method of this name, or the user's own as ``module:Class``."""
    if ":" not in name:
        if name not in catalogue():
            raise unknown("method", name, catalogue())
        return catalogue()[name]
    found: type[Method] = load(name, "method", Method)
    if not isinstance(found, type):
        raise UserError(f"method {name!r} is not a class that extends fedtailor.Method")
    return found


def spec(method: Method | type[Method]) -> str:
    """The name under which another process finds this method."""
    kind = method if isinstance(method, type) else type(method)
    if catalogue().get(kind.name) is kind:
        return kind.name
    return f"{kind.__module__}:{kind.__qualname__}"
