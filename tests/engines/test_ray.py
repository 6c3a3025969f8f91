"""The Ray engine: the same bits as inline whatever happens to its workers, and one sentence when it cannot be had.

One local Ray serves all tests.
"""

import gc
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from pydantic import ValidationError

import fedtailor
from fedtailor.data import DataSettings, build
from fedtailor.engines import Engine, EngineSettings, Inline, Job, Task, open_engine
from fedtailor.engines import ray as ray_engine
from fedtailor.errors import UserError
from fedtailor.learning import TrainingSettings
from fedtailor.methods import Moment, Payload, find
from fedtailor.models import ModelSettings
from fedtailor.runs import Callback, Resources
from fedtailor.runs.store import Store
from tests.support.processes import listening_ports

# Ray leaves files and processes of its own to the garbage collector.
pytestmark = pytest.mark.filterwarnings("ignore::ResourceWarning", "ignore::pytest.PytestUnraisableExceptionWarning")


@pytest.fixture(scope="module")
def engine() -> Iterator[ray_engine.Ray]:
    made = ray_engine.Ray(2)
    yield made
    made.close()
    gc.collect()


def test_a_local_ray_listens_on_the_loopback_only(engine: ray_engine.Ray) -> None:
    found = listening_ports()
    assert found
    assert {address[-8:] for address in found.values()} == {"0100007F"}  # 127.0.0.1, perhaps as an address of IPv6


def test_a_local_ray_answers_only_with_its_token(engine: ray_engine.Ray) -> None:
    address = ray_engine.ray.get_runtime_context().gcs_address
    code = f"from ray._raylet import GcsClient; GcsClient(address={address!r}); print('in')"
    strange = {name: value for name, value in os.environ.items() if not name.startswith("RAY_")}
    said = subprocess.run([sys.executable, "-c", code], env=strange, capture_output=True, text=True, check=False)
    assert "AuthenticationError" in said.stderr
    assert "in" not in said.stdout


def test_opening_ray_leaves_the_signals_alone(engine: ray_engine.Ray) -> None:
    assert signal.getsignal(signal.SIGTERM) is signal.SIG_DFL


def recorded(method: str, folder: Path, engine: Engine, callbacks: Callback | None = None, **training: Any) -> Any:
    """All that a run of two rounds with four clients has learned and measured."""
    settings = {
        "rounds": 2,
        "method": {"name": method},
        "data": {"clients": 4, "samples": 300},
        "training": {"momentum": 0.5, **training},
    }
    fedtailor.run(settings, folder=folder, callbacks=callbacks, resources=Resources(engine=engine)).close()
    tables = {"state": "scope, key", "metrics": "round, model", "scores": "round, model, client"}
    with Store(folder) as store:
        return {name: store.rows(f"SELECT * FROM {name} ORDER BY {order}") for name, order in tables.items()}


@pytest.mark.parametrize(("method", "precision"), [("fedavg", "fp32"), ("fedah", "fp32"), ("fedah", "bf16")])
def test_ray_and_inline_agree_to_the_bit(method: str, precision: str, engine: ray_engine.Ray, tmp_path: Path) -> None:
    expected = recorded(method, tmp_path / "inline", Inline(), precision=precision)
    assert recorded(method, tmp_path / "ray", engine, precision=precision) == expected
    assert expected["state"]
    assert expected["scores"]


class Killer(Callback):
    """Kills a worker, rather one that is at work, when the first task of a run is done."""

    def __init__(self, engine: ray_engine.Ray) -> None:
        self.engine, self.victim = engine, 0

    def task_done(self, done: int, total: int) -> None:
        if not self.victim:
            alive = [worker for worker in self.engine._pool if worker.pid]
            self.victim = max(alive, key=lambda worker: bool(worker.busy)).pid
            os.kill(self.victim, signal.SIGKILL)


def test_a_run_whose_worker_is_killed_ends_bit_identical(
    engine: ray_engine.Ray, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    killer = Killer(engine)
    expected = recorded("fedper", tmp_path / "inline", Inline(), epochs=10)
    assert recorded("fedper", tmp_path / "ray", engine, killer, epochs=10) == expected
    assert killer.victim not in [0, *(worker.pid for worker in engine._pool)]
    assert capfd.readouterr() == ("", "")  # where a document may be going


def job(method: str = "fedavg", **training: Any) -> Job:
    federation = build(DataSettings.model_validate({"clients": 6, "samples": 300}), 0)
    return Job(find(method)(), ModelSettings(), TrainingSettings(**training), 0, federation)


def tasks(made: Job) -> list[Task]:
    inline = Inline()
    inline.start(made)
    payload = Payload({"model": inline._worker.initial}).pack()  # type: ignore[union-attr]
    return [Task("fit", i, Moment(0, round=1, rounds=1), i, payload, measure=("held",)) for i in range(6)]


def outcome(results: Any) -> Any:
    return sorted((r.index, r.reply, r.state, r.scores["held"]) for r in results)


def test_a_run_that_is_left_in_the_middle_does_not_disturb_the_next(engine: ray_engine.Ray) -> None:
    made = job(epochs=3)
    engine.start(made)
    expected = outcome(engine.run(tasks(made)))
    half = engine.run(tasks(made))
    next(half)
    half.close()
    assert outcome(engine.run(tasks(made))) == expected


def test_a_task_that_keeps_killing_its_worker_ends_the_run_with_a_sentence(
    engine: ray_engine.Ray, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "deadly_on_ray.py").write_text(
        "import os, signal\nfrom fedtailor.methods import Method\n"
        "class Deadly(Method):\n"
        "    def fit(self, client):\n"
        "        if client.id == 3:\n            os.kill(os.getpid(), signal.SIGKILL)\n"
    )
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setattr("fedtailor.engines.task_queue.MAX_DEATHS", 2)
    engine.start(job("deadly_on_ray:Deadly"))
    with pytest.raises(UserError, match="died 2 times on client 3"):
        list(engine.run(tasks(job())))
    engine.start(job())  # the engine is as good as new
    assert len(list(engine.run(tasks(job())))) == 6


def test_a_method_that_workers_cannot_find_is_refused(engine: ray_engine.Ray, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("fedtailor.engines.codec.spec", lambda _method: "nowhere:Nobody")
    with pytest.raises(UserError, match="nowhere"):
        engine.start(job())


def test_machines_with_another_version_are_refused(engine: ray_engine.Ray, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ray_engine, "__version__", "0.0.0")
    with pytest.raises(UserError, match=r"has fedtailor .*, not 0\.0\.0: install the same"):
        engine.start(job())


def test_machines_with_other_numerics_are_told_of(engine: ray_engine.Ray, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ray_engine.np, "__version__", "0.1")
    with pytest.warns(UserWarning, match=r"has numpy .*, not 0\.1: the last digits"):
        engine.start(job())


def test_without_a_free_cpu_the_run_ends_with_a_sentence(
    engine: ray_engine.Ray, monkeypatch: pytest.MonkeyPatch
) -> None:
    engine.start(job())
    monkeypatch.setattr(ray_engine, "START_TIMEOUT", 1.0)
    with ray_engine.Ray(1) as other, pytest.raises(UserError, match="no worker of the Ray cluster got a CPU"):
        other.start(job())
    engine.start(job())  # it lives on: Ray was not the other's to end


def test_a_large_payload_of_many_tasks_is_stored_once(engine: ray_engine.Ray) -> None:
    arguments, large, small = ray_engine._Arguments(), bytes(ray_engine.LARGE), b"small"
    states = [bytes([i]) * ray_engine.LARGE for i in range(10)]
    places = []
    for state in states:  # a cohort whose clients share a payload and have a state each
        places.append(arguments.of(large))
        arguments.of(state)
    assert len(set(places)) == 1
    assert ray_engine.ray.get(places[0]) == large
    assert arguments.of(small) is small


def test_a_worker_gets_a_payload_once_in_a_job(engine: ray_engine.Ray, monkeypatch: pytest.MonkeyPatch) -> None:
    made = job()
    some, travelled, of = tasks(made), [], ray_engine._Arguments.of
    monkeypatch.setattr(ray_engine._Arguments, "of", lambda this, blob: travelled.append(len(blob)) or of(this, blob))
    found = []
    for _ in range(2):  # a job that starts again knows nothing of the payload
        travelled.clear()
        engine.start(made)
        found.append(outcome(engine.run(some)))
        assert 1 <= travelled.count(len(some[0].payload)) <= engine.workers < len(some)
    assert found[0] == found[1]


@pytest.mark.parametrize("address", ["localhost", "6379", "http://host:8265", "ray://host", "host:123456"])
def test_what_is_no_address_is_refused(address: str) -> None:
    with pytest.raises(ValidationError, match="host:port"):
        EngineSettings(address=address)


def test_an_address_without_a_cluster_is_refused_before_anything_is_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ray_engine.ray, "is_initialized", lambda: False)
    with pytest.raises(UserError, match=r"no Ray cluster answers at engine\.address = '127\.0\.0\.1:9'"):
        fedtailor.run({"engine": {"kind": "ray", "address": "127.0.0.1:9"}}, folder=tmp_path / "run")
    assert list(tmp_path.iterdir()) == []


def test_the_address_of_a_cluster_is_accepted(engine: ray_engine.Ray) -> None:
    ray_engine._check_address(ray_engine.ray.get_runtime_context().gcs_address)


def test_a_port_of_something_else_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ray_engine, "CONNECT_TIMEOUT", 3.0)
    monkeypatch.setattr(ray_engine.ray, "is_initialized", lambda: False)
    with socket.create_server(("127.0.0.1", 0)) as mute, pytest.raises(UserError, match="no Ray cluster answers"):
        ray_engine.Ray(address=f"127.0.0.1:{mute.getsockname()[1]}")


def test_without_the_package_one_sentence_names_the_extra(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("fedtailor.engines.find_spec", lambda _name: None)
    with pytest.raises(UserError, match=r"pip install 'fedtailor\[ray\]'"):
        fedtailor.run({"engine": {"kind": "ray"}}, folder=tmp_path / "run")
    with pytest.raises(UserError, match=r"pip install 'fedtailor\[ray\]'"):
        fedtailor.compare({"engine": {"kind": "ray"}}, folder=tmp_path / "comparison")
    assert list(tmp_path.iterdir()) == []


def test_another_device_than_the_cpu_is_refused() -> None:
    with pytest.raises(UserError, match="train on its CPUs"):
        open_engine(EngineSettings(kind="ray", device="cuda"))


def test_ray_is_imported_only_for_its_engine() -> None:
    code = "import sys, fedtailor.cli, fedtailor.runs; print('ray' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True).stdout == "False\n"
