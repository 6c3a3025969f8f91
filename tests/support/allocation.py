"""A small federation with devices in which work is allocated to clients: models of two sizes, and epochs."""

from typing import Any

SIZES = [{"name": "mlp", "arguments": {"hidden": 8}}, {"name": "mlp", "arguments": {"hidden": 80}}]
DIGITS: dict[str, Any] = {
    "rounds": 3,
    "validation": True,
    "data": {"clients": 6, "samples": 240},
    "model": {"name": "linear"},
    "training": {"epochs": 2, "lr": 0.1},
    "participation": {"clients": 4},
    "devices": {"speed": 0.001, "profiles": {"kind": "uniform", "spread": 10}},
    "engine": {"kind": "inline"},
    "method": {"name": "hapfl", "sizes": SIZES},
}
SEARCH: dict[str, Any] = {"size": {"decider": "search"}, "intensity": {"decider": "search"}}


def changed(settings: dict[str, Any], **changes: Any) -> dict[str, Any]:
    return {**settings, "method": {**settings["method"], **changes}}


def both(**settings: Any) -> dict[str, Any]:
    """The tables of the agents, with the same settings in both."""
    return {"size": settings, "intensity": settings}
