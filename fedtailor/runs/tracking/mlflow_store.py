"""MLflow: a run per run, below a parent run for a comparison.

``MLFLOW_TRACKING_URI`` names the store; by default it is ``mlflow.db`` beside the folder of the run, so that all
runs of a folder share one. The copy is found again by a tag, and each value is sent only if the store lacks it.
"""

import logging
import os
import re
import tempfile
import time
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from fedtailor.runs.tracking.base import Ending, Point, Subject, Tracker
from fedtailor.version import __version__

TAG = "fedtailor.id"
BATCH, PARAMETERS, LONGEST = 1000, 100, 6000  # MLflow's limits: metrics and parameters of a request, characters
DEFAULTS = {  # a run never waits for long, and nothing is sent to anybody that the user did not name
    "MLFLOW_DISABLE_TELEMETRY": "true",
    "MLFLOW_HTTP_REQUEST_MAX_RETRIES": "2",
    "MLFLOW_HTTP_REQUEST_TIMEOUT": "30",
}


class MLflow(Tracker):
    """A run in an MLflow store."""

    def __init__(self, subject: Subject):
        for key, value in DEFAULTS.items():
            os.environ.setdefault(key, value)
        from mlflow import MlflowClient

        for name in ("mlflow", "alembic"):
            logging.getLogger(name).setLevel(logging.WARNING)
        self._subject = subject
        home = subject.top.parent
        local = "MLFLOW_TRACKING_URI" not in os.environ
        self._client = MlflowClient(f"sqlite:///{home}/mlflow.db" if local else os.environ["MLFLOW_TRACKING_URI"])
        self._experiment = self._find_experiment((home / "mlflow-files").as_uri() if local else None)
        parent = None if subject.parent is None else self._find_or_make(subject.parent).info.run_id
        run = self._find_or_make(subject, parent)
        self._run: str = run.info.run_id
        if run.info.status != "RUNNING":
            self._client.update_run(self._run, status="RUNNING")
        self._known = {
            (name, metric.step)
            for name in run.data.metrics
            for metric in self._client.get_metric_history(self._run, name)
        }

    def log(self, points: Sequence[Point]) -> None:
        self._send((name, value, point.step) for point in points for name, value in point.values.items())

    def finish(self, ending: Ending) -> None:
        self._send((name, value, ending.step) for name, value in ending.values.items())
        for path in ending.files:
            self._client.log_artifact(self._run, str(path))
        with tempfile.TemporaryDirectory() as folder:
            for name, text in ending.texts.items():
                (Path(folder) / name).write_text(text, encoding="utf-8")
                self._client.log_artifact(self._run, str(Path(folder) / name))
        self._client.set_terminated(self._run, "FINISHED" if ending.finished else "KILLED")

    def close(self) -> None: ...

    def _send(self, values: Iterable[tuple[str, float, int]]) -> None:
        from mlflow.entities import Metric

        now = int(1000 * time.time())
        named = ((_allowed(name), value, step) for name, value, step in values)
        new = [Metric(name, value, now, step) for name, value, step in named if (name, step) not in self._known]
        for start in range(0, len(new), BATCH):
            part = new[start : start + BATCH]
            self._client.log_batch(self._run, metrics=part)
            self._known |= {(metric.key, metric.step) for metric in part}

    def _find_experiment(self, files: str | None) -> str:
        from mlflow.exceptions import MlflowException

        name = os.environ.get("MLFLOW_EXPERIMENT_NAME", "fedtailor")
        found = self._client.get_experiment_by_name(name)
        if found is None:
            try:
                return str(self._client.create_experiment(name, artifact_location=files))
            except MlflowException:  # another run has just made it
                found = self._client.get_experiment_by_name(name)
                if found is None:
                    raise
        return str(found.experiment_id)

    def _find_or_make(self, subject: Subject, parent: str | None = None) -> Any:
        found = self._client.search_runs([self._experiment], f"tags.`{TAG}` = '{subject.id}'", max_results=1)
        if found:
            run = found[0]
        else:
            tags = {TAG: subject.id, "fedtailor.kind": subject.kind, "fedtailor.version": __version__}
            tags |= {"fedtailor.method": subject.method} if subject.method else {}
            tags |= {"mlflow.parentRunId": parent} if parent is not None else {}
            run = self._client.create_run(self._experiment, tags=tags, run_name=subject.name)
        self._set_parameters(run.info.run_id, subject.settings, run.data.params)
        return run

    def _set_parameters(self, run: str, settings: Mapping[str, object], known: Mapping[str, str]) -> None:
        """Parameters can be set once in MLflow: the first value stays if a run is continued with another."""
        from mlflow.entities import Param

        texts = {_allowed(key): str(value)[:LONGEST] for key, value in settings.items()}
        new = [Param(key, text) for key, text in texts.items() if key not in known]
        for start in range(0, len(new), PARAMETERS):
            self._client.log_batch(run, params=new[start : start + PARAMETERS])


def _allowed(name: str) -> str:
    """A name with the characters that MLflow allows.

    >>> _allowed("fedprox mu=0.01/accuracy")
    'fedprox mu_0.01/accuracy'
    """
    return re.sub(r"[^\w\-. :/]", "_", name)[:250]
