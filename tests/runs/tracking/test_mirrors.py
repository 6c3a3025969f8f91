"""The copies of runs and comparisons, read with the trackers' own readers."""

import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

import fedtailor
from fedtailor.errors import UserError
from fedtailor.runs import Callback, RoundReport
from fedtailor.runs.reproduce.plan import _key
from tests.support.copies import in_mlflow, in_tensorboard, in_wandb, mlflow_client, mlflow_history, truth
from tests.support.fingerprint import assert_same

ALL = ["tensorboard", "mlflow", "wandb"]
SETTINGS: dict[str, Any] = {
    "rounds": 6,
    "data": {"clients": 4, "samples": 160},
    "model": {"name": "linear"},
    "training": {"epochs": 1},
    "method": {"name": "fedper"},
    "engine": {"kind": "inline"},
}
KILLED = """
import os, signal, sys, fedtailor
from fedtailor.runs import Callback
class Kill(Callback):
    def round_done(self, report):
        if report.round == int(sys.argv[2]):
            os.kill(os.getpid(), signal.SIGKILL)
import json
place, values = sys.argv[1], json.loads(sys.argv[3])
if os.path.exists(place):
    fedtailor.resume(place, callbacks=Kill())
fedtailor.run(values, folder=place, callbacks=Kill())
"""


def assert_exact(folder: Path, store: Path, name: str) -> None:
    """Every tracker has every round of the run once, with its values."""
    wanted = truth(folder)
    copies = {"tensorboard": in_tensorboard(folder), "mlflow": mlflow_history(store, name), "wandb": in_wandb(folder)}
    for tracker, found in copies.items():
        for tag, values in wanted.items():
            assert [step for step, _ in found[tag]] == [step for step, _ in values], (tracker, tag)
            assert [value for _, value in found[tag]] == pytest.approx([v for _, v in values], rel=1e-6), (tracker, tag)


@pytest.fixture(scope="module")
def killed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run that was killed after its second and its fourth round, and resumed; beside it one that was not tracked."""
    home = tmp_path_factory.mktemp("killed")
    values = json.dumps({**SETTINGS, "name": "tracked", "track": ALL})
    for last in ("2", "4"):
        command = [sys.executable, "-c", KILLED, str(home / "tracked"), last, values]
        assert subprocess.run(command).returncode == -signal.SIGKILL
    fedtailor.resume(home / "tracked").close()
    fedtailor.run(SETTINGS, folder=home / "plain").close()
    return home


def test_after_kills_every_tracker_has_every_round_once(killed: Path) -> None:
    with fedtailor.Run(killed / "tracked") as run:
        assert run.warnings == ()
    assert_exact(killed / "tracked", killed / "mlflow.db", "tracked")
    assert len(in_mlflow(killed / "mlflow.db")) == 1
    assert len(list((killed / "tracked/wandb").glob("offline-run-*"))) == 1


def test_tracking_changes_no_result(killed: Path) -> None:
    assert_same(killed / "plain", killed / "tracked")


def test_tracking_does_not_identify_a_run() -> None:
    one, other = (fedtailor.experiment({**SETTINGS, "track": track}) for track in ([], ALL))
    assert _key(one, None, False, None) == _key(other, None, False, None)


def test_settings_the_end_and_files_are_copied(killed: Path) -> None:
    run = in_mlflow(killed / "mlflow.db")["tracked"]
    assert run.info.status == "FINISHED"
    assert run.data.params["method.name"] == "fedper"
    assert run.data.params["training.epochs"] == "1"
    assert not any("track" in key or key == "data.dir" for key in run.data.params)
    with fedtailor.Run(killed / "tracked") as found:
        final = found.summary().final.accuracy
    assert run.data.metrics["final/accuracy"] == final
    assert in_tensorboard(killed / "tracked")["final/accuracy"] == [(6, pytest.approx(final))]
    client = mlflow_client(killed / "mlflow.db")
    assert {file.path for file in client.list_artifacts(run.info.run_id)} >= {"summary.json", "experiment.toml"}
    (summary,) = (killed / "tracked/wandb").glob("offline-run-*/files/summary.json")
    assert json.loads(summary.read_text())["metrics"]["final"]["accuracy"] == final
    assert str(killed) not in summary.read_text()


def test_track_again_adds_only_what_is_new(killed: Path) -> None:
    (killed / "tracked/report.md").write_text("# A report\n")
    assert fedtailor.track(killed / "tracked") == ALL
    assert fedtailor.track(killed / "tracked", to=["tensorboard"]) == ["tensorboard"]
    assert_exact(killed / "tracked", killed / "mlflow.db", "tracked")
    run = in_mlflow(killed / "mlflow.db")["tracked"]
    client = mlflow_client(killed / "mlflow.db")
    assert "report.md" in {file.path for file in client.list_artifacts(run.info.run_id)}
    with pytest.raises(UserError, match="unknown tracker 'neptune'"):
        fedtailor.track(killed / "tracked", to=["neptune"])
    with pytest.raises(UserError, match="names no trackers"):
        fedtailor.track(killed / "plain")


def test_a_comparison_is_a_parent_with_its_runs_as_children(tmp_path: Path) -> None:
    settings = {**SETTINGS, "rounds": 2}
    fedtailor.compare(settings, methods=["local", "fedper"], folder=tmp_path / "both")  # not tracked
    fedtailor.compare({**settings, "track": ALL}, methods=["local", "fedper"], folder=tmp_path / "both")
    for name in ("local-s0", "fedper-s0"):
        assert_exact(tmp_path / "both" / name, tmp_path / "mlflow.db", name)
    runs = in_mlflow(tmp_path / "mlflow.db")
    assert runs.keys() == {"both", "local-s0", "fedper-s0"}
    parent = runs.pop("both")
    assert {run.data.tags["mlflow.parentRunId"] for run in runs.values()} == {parent.info.run_id}
    table = {row.method: row.headline["final"].mean for row in fedtailor.Comparison(tmp_path / "both").table()}
    assert {name: parent.data.metrics[f"{name}/accuracy"] for name in table} == table
    assert in_tensorboard(tmp_path / "both")["local/accuracy"] == [(0, pytest.approx(table["local"]))]


def test_trackers_that_fail_are_one_warning_each_and_change_nothing(
    killed: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """No server at the address of MLflow; no folder to be had for TensorBoard."""
    monkeypatch.setenv("MLFLOW_TRACKING_URI", "http://127.0.0.1:9")
    monkeypatch.setenv("MLFLOW_HTTP_REQUEST_MAX_RETRIES", "0")

    class Block(Callback):
        def begin(self, name: str, rounds: int, done: int) -> None:
            (tmp_path / "run" / "tensorboard").write_text("in the way")

        def round_done(self, report: RoundReport) -> None: ...

    with fedtailor.run({**SETTINGS, "track": ALL[:2]}, folder=tmp_path / "run", callbacks=Block()) as run:
        assert run.finished
        assert [sentence.partition(" (")[0] for sentence in run.warnings] == [
            f"{name} lacks a part of this run" for name in ALL[:2]
        ]
        assert all("'fedtailor track RUN' adds it" in sentence for sentence in run.warnings)
    assert_same(killed / "plain", tmp_path / "run")
    (tmp_path / "run/tensorboard").unlink()
    assert fedtailor.track(tmp_path / "run", to=["tensorboard"]) == ["tensorboard"]
    assert [step for step, _ in in_tensorboard(tmp_path / "run")["held/accuracy"]] == [1, 2, 3, 4, 5, 6]
    assert os.environ["MLFLOW_DISABLE_TELEMETRY"] == "true"
