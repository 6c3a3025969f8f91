"""FedTailor: personalised federated learning, in which every client ends with a model that fits.

    import fedtailor
    run = fedtailor.run({"method": {"name": "fedper"}, "rounds": 10})
    print(run.summary().final.accuracy)

Importing this package is instant: torch is loaded by the first thing that needs it.
"""

import importlib
from typing import TYPE_CHECKING, Any

from fedtailor.errors import UserError
from fedtailor.version import __version__

if TYPE_CHECKING:
    from fedtailor.data import Federation
    from fedtailor.methods import (
        AgentMethod,
        AgentTables,
        Ask,
        Card,
        Client,
        Decide,
        Decided,
        Decision,
        Feature,
        Method,
        Payload,
        Replies,
        Reward,
        Server,
    )
    from fedtailor.runs import (
        Callback,
        Comparison,
        Experiment,
        Run,
        compare,
        experiment,
        export_client,
        export_global,
        load_model,
        pretrain,
        resume,
        run,
    )

_HOMES = {
    "Federation": "fedtailor.data",
    **dict.fromkeys(
        (
            "AgentMethod",
            "AgentTables",
            "Ask",
            "Card",
            "Client",
            "Decide",
            "Decided",
            "Decision",
            "Feature",
            "Method",
            "Payload",
            "Replies",
            "Reward",
            "Server",
        ),
        "fedtailor.methods",
    ),
    **dict.fromkeys(
        (
            "Callback",
            "Comparison",
            "Experiment",
            "Run",
            "compare",
            "experiment",
            "export_client",
            "export_global",
            "load_model",
            "pretrain",
            "resume",
            "run",
        ),
        "fedtailor.runs",
    ),
}

__all__ = [
    "AgentMethod",
    "AgentTables",
    "Ask",
    "Callback",
    "Card",
    "Client",
    "Comparison",
    "Decide",
    "Decided",
    "Decision",
    "Experiment",
    "Feature",
    "Federation",
    "Method",
    "Payload",
    "Replies",
    "Reward",
    "Run",
    "Server",
    "UserError",
    "__version__",
    "compare",
    "experiment",
    "export_client",
    "export_global",
    "load_model",
    "pretrain",
    "resume",
    "run",
]


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module 'fedtailor' has no attribute {name!r}")
    return getattr(importlib.import_module(_HOMES[name]), name)


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
