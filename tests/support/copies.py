"""Reads the copies of runs in trackers with the trackers' own readers."""

from collections import defaultdict
from pathlib import Path
from typing import Any


def in_tensorboard(folder: Path) -> dict[str, list[tuple[int, float]]]:
    """By tag, every scalar in a run's event files."""
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    found = EventAccumulator(str(folder / "tensorboard"), size_guidance={"scalars": 0}, purge_orphaned_data=False)
    found.Reload()
    return {tag: [(one.step, one.value) for one in found.Scalars(tag)] for tag in found.Tags()["scalars"]}


def in_mlflow(store: Path) -> dict[str, Any]:
    """By name, the runs in a local store."""
    client = mlflow_client(store)
    experiments = [one.experiment_id for one in client.search_experiments()]
    return {run.info.run_name: run for run in client.search_runs(experiments)}


def mlflow_client(store: Path) -> Any:
    from mlflow import MlflowClient

    return MlflowClient(f"sqlite:///{store}")


def mlflow_history(store: Path, name: str) -> dict[str, list[tuple[int, float]]]:
    """By metric, every value of a run in a local store."""
    client, run = mlflow_client(store), in_mlflow(store)[name]
    history = {key: client.get_metric_history(run.info.run_id, key) for key in run.data.metrics}
    return {key: sorted((one.step, one.value) for one in values) for key, values in history.items()}


def in_wandb(folder: Path) -> dict[str, list[tuple[int, float]]]:
    """By name, every value in a run's offline folder."""
    import json

    from wandb.proto.wandb_internal_pb2 import Record

    from fedtailor.runs.tracking.wandb_folder import _records

    found = defaultdict(list)
    for path in (folder / "wandb").glob("offline-run-*/*.wandb"):
        for record in map(Record.FromString, _records(path.read_bytes())):
            for item in record.history.item:
                key = item.key or ".".join(item.nested_key)
                if not key.startswith("_"):
                    found[key].append((int(record.history.step.num), json.loads(item.value_json)))
    return dict(found)


def truth(folder: Path) -> dict[str, list[tuple[int, float]]]:
    """By name, some values of the run itself."""
    from fedtailor.runs import Run

    with Run(folder) as run:
        found = {"cost/bytes_up": [(row["round"], float(row["bytes_up"])) for row in run.rounds()]}
        for model in ("held", "received"):
            for name in ("accuracy", "worst_tenth", "loss"):
                found[f"{model}/{name}"] = [(row["round"], row[name]) for row in run.metrics(model)]
    return found
