"""The round loop, and one folder per run."""

from fedtailor.runs.callbacks import Callback, RoundReport
from fedtailor.runs.comparing import Comparison, compare
from fedtailor.runs.exporting import Model, export_client, export_global, load_model
from fedtailor.runs.loop import ClientsFailed
from fedtailor.runs.reading import Run, all_runs
from fedtailor.runs.running import Interrupted, Resources, describe_devices, pretrain, resume, run
from fedtailor.runs.settings import Experiment, experiment

__all__ = [
    "Callback",
    "ClientsFailed",
    "Comparison",
    "Experiment",
    "Interrupted",
    "Model",
    "Resources",
    "RoundReport",
    "Run",
    "all_runs",
    "compare",
    "describe_devices",
    "experiment",
    "export_client",
    "export_global",
    "load_model",
    "pretrain",
    "resume",
    "run",
]
