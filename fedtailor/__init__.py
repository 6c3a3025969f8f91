"""FedTailor: personalised federated learning, in which every client ends with a model that fits.

    import fedtailor
    run = fedtailor.run({"method": {"name": "fedper"}, "rounds": 10})
    print(run.summary().final.accuracy)

Importing this package is instant: torch is loaded by the first thing that needs it.
"""

import importlib
import sys
from typing import TYPE_CHECKING, Any

from fedtailor.errors import UserError, without_torch
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
        adapt,
        advise,
        compare,
        diff,
        experiment,
        export_client,
        export_clients,
        export_global,
        export_server,
        load_model,
        load_onnx,
        predict,
        pretrain,
        resume,
        run,
        track,
        tune,
    )
    from fedtailor.views.notebook import picture

_HOMES = {
    "Federation": "fedtailor.data",
    "picture": "fedtailor.views.notebook",
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
            "adapt",
            "advise",
            "compare",
            "diff",
            "experiment",
            "export_client",
            "export_clients",
            "export_global",
            "export_server",
            "load_model",
            "load_onnx",
            "predict",
            "pretrain",
            "resume",
            "run",
            "track",
            "tune",
        ),
        "fedtailor.runs",
    ),
}

_active = False

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
    "adapt",
    "advise",
    "compare",
    "diff",
    "experiment",
    "export_client",
    "export_clients",
    "export_global",
    "export_server",
    "load_model",
    "load_onnx",
    "picture",
    "predict",
    "pretrain",
    "resume",
    "run",
    "track",
    "tune",
]


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module 'fedtailor' has no attribute {name!r}")
    try:
        _activate_notebook()
        return getattr(importlib.import_module(_HOMES[name]), name)
    except ModuleNotFoundError as error:
        if error.name != "torch":
            raise
        raise without_torch() from None


def _activate_notebook() -> None:
    """In Jupyter or IPython, let runs show their progress and pictures."""
    global _active
    if not _active and "IPython" in sys.modules:
        _active = True
        if (shell := sys.modules["IPython"].get_ipython()) is not None:
            importlib.import_module("fedtailor.views.notebook").activate(shell)


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
