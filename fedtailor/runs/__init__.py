"""Runs experiments: one folder per run, one transaction per round; comparisons and exports."""

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
