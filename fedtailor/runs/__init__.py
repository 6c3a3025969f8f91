"""The round loop, and one folder per run."""

from fedtailor.runs.comparing import Comparison, compare
from fedtailor.runs.exporting import Model, export_client, export_global, load_model
from fedtailor.runs.loop import ClientsFailed
from fedtailor.runs.reading import Run, all_runs
from fedtailor.runs.running import Interrupted, Workshop, describe_devices, pretrain, resume, run
from fedtailor.runs.settings import Experiment, experiment
from fedtailor.runs.watch import RoundReport, Watch

__all__ = [
    "ClientsFailed",
    "Comparison",
    "Experiment",
    "Interrupted",
    "Model",
    "RoundReport",
    "Run",
    "Watch",
    "Workshop",
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
