"""Runs experiments: one folder per run, one transaction per round; comparisons and exports.

Importing this room is instant: a part of it is loaded by the first use of its names. Reading a run needs no torch.
"""

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from fedtailor.runs.adapting import Adapted, adapt
    from fedtailor.runs.advice import Advice, advise
    from fedtailor.runs.assembly import describe_devices
    from fedtailor.runs.callbacks import Callback, RoundClock, RoundReport
    from fedtailor.runs.comparing import Comparison, compare
    from fedtailor.runs.differing import diff
    from fedtailor.runs.episodes import Interrupted
    from fedtailor.runs.exporting import (
        Exported,
        Model,
        Predictions,
        client_folder,
        export_client,
        export_clients,
        export_global,
        export_server,
        folder_name,
        load_model,
        load_onnx,
        predict,
    )
    from fedtailor.runs.folders import all_runs
    from fedtailor.runs.loop import ClientsFailed
    from fedtailor.runs.measures import Measures
    from fedtailor.runs.reading import Run
    from fedtailor.runs.resources import Resources
    from fedtailor.runs.results import ComparisonRow, ComparisonSummary, RunSummary
    from fedtailor.runs.running import pretrain, resume, run
    from fedtailor.runs.settings import Experiment, experiment
    from fedtailor.runs.tracking import track
    from fedtailor.runs.tuning import Tuning, tune

_HOMES = {
    "Adapted": "adapting",
    "adapt": "adapting",
    "Advice": "advice",
    "advise": "advice",
    "describe_devices": "assembly",
    "Callback": "callbacks",
    "RoundClock": "callbacks",
    "RoundReport": "callbacks",
    "Comparison": "comparing",
    "compare": "comparing",
    "diff": "differing",
    "Interrupted": "episodes",
    "Exported": "exporting",
    "Model": "exporting",
    "Predictions": "exporting",
    "client_folder": "exporting",
    "export_client": "exporting",
    "export_clients": "exporting",
    "export_global": "exporting",
    "export_server": "exporting",
    "folder_name": "exporting",
    "load_model": "exporting",
    "load_onnx": "exporting",
    "predict": "exporting",
    "all_runs": "folders",
    "ClientsFailed": "loop",
    "Measures": "measures",
    "Run": "reading",
    "Resources": "resources",
    "ComparisonRow": "results",
    "ComparisonSummary": "results",
    "RunSummary": "results",
    "pretrain": "running",
    "resume": "running",
    "run": "running",
    "Experiment": "settings",
    "experiment": "settings",
    "track": "tracking",
    "Tuning": "tuning",
    "tune": "tuning",
}

__all__ = [
    "Adapted",
    "Advice",
    "Callback",
    "ClientsFailed",
    "Comparison",
    "ComparisonRow",
    "ComparisonSummary",
    "Experiment",
    "Exported",
    "Interrupted",
    "Measures",
    "Model",
    "Predictions",
    "Resources",
    "RoundClock",
    "RoundReport",
    "Run",
    "RunSummary",
    "Tuning",
    "adapt",
    "advise",
    "all_runs",
    "client_folder",
    "compare",
    "describe_devices",
    "diff",
    "experiment",
    "export_client",
    "export_clients",
    "export_global",
    "export_server",
    "folder_name",
    "load_model",
    "load_onnx",
    "predict",
    "pretrain",
    "resume",
    "run",
    "track",
    "tune",
]


if not TYPE_CHECKING:  # a type checker knows the names from above

    def __getattr__(name: str) -> Any:
        if name not in _HOMES:
            raise AttributeError(f"module 'fedtailor.runs' has no attribute {name!r}")
        return getattr(importlib.import_module(f"fedtailor.runs.{_HOMES[name]}"), name)
