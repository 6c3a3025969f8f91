"""Worker processes: what happens when they die, and what they must not leave behind."""

import os
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

import fedtailor
from fedtailor.data import DataSettings, build
from fedtailor.engines import Inline, Job, Processes, Task, processes
from fedtailor.engines.shared_memory import Channel, anonymous_file
from fedtailor.errors import UserError
from fedtailor.learning import TrainingSettings
from fedtailor.messages.frames import Closed
from fedtailor.methods import Moment, Payload, find
from fedtailor.models import ModelSettings
from tests.support.waiting import wait_until


@pytest.fixture
def engine() -> Iterator[Processes]:
    made = Processes(2)
    yield made
    made.close()


def job(**training: Any) -> Job:
    federation = build(DataSettings.model_validate({"clients": 6, "samples": 300}), 0)
    return Job(find("fedavg")(), ModelSettings(), TrainingSettings(**training), 0, federation)


def tasks(made: Job) -> list[Task]:
    inline = Inline()
    inline.start(made)
    payload = Payload({"model": inline._worker.initial}).pack()  # type: ignore[union-attr]
    return [Task("fit", i, Moment(0, round=1, rounds=1), i, payload, measure=("held",)) for i in range(6)]


def outcome(results: Any) -> Any:
    return sorted((r.index, r.reply, r.state, r.scores["held"]) for r in results)


def test_a_killed_worker_is_replaced_and_its_task_done_again(engine: Processes) -> None:
    made = job(epochs=20)
    inline = Inline()
    inline.start(made)
    expected = outcome(inline.run(tasks(made)))
    engine.start(made)
    results = engine.run(tasks(made))
    first = next(results)
    victims = [worker.process.pid for worker in engine._pool]
    os.kill(victims[0], signal.SIGKILL)
    assert outcome([first, *results]) == expected
    assert engine._pool[0].process.pid != victims[0]


DIES_AT_ONCE = """
import os, pathlib, signal
from fedtailor import Method
deaths = pathlib.Path(__file__).with_name("deaths")
if deaths.exists():
    left = int(deaths.read_text())
    if left:
        deaths.write_text(str(left - 1))
        os.kill(os.getpid(), signal.SIGKILL)
class Dying(Method):
    pass
"""


@pytest.mark.parametrize("deaths", [1, 9])
def test_a_worker_that_dies_while_it_starts_is_started_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, deaths: int
) -> None:
    (tmp_path / "dying.py").write_text(DIES_AT_ONCE)
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.delitem(sys.modules, "dying", raising=False)
    made = replace(job(), method=find("dying:Dying")())
    (tmp_path / "deaths").write_text(str(deaths))
    engine = Processes(1)
    try:
        if deaths == 1:
            engine.start(made)
            assert len(list(engine.run(tasks(made)))) == 6
        else:
            with pytest.raises(UserError, match="ended 3 times while it started"):
                engine.start(made)
    finally:
        engine.close()


def test_a_task_that_keeps_killing_its_worker_ends_the_run_with_a_sentence(
    engine: Processes, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "deadly.py").write_text(
        "import os, signal\nfrom fedtailor.methods import Method\n"
        "class Deadly(Method):\n"
        "    def fit(self, client):\n"
        "        if client.id == 3:\n            os.kill(os.getpid(), signal.SIGKILL)\n"
    )
    monkeypatch.syspath_prepend(tmp_path)
    made = job()
    deadly = Job(find("deadly:Deadly")(), made.model, made.training, 0, made.federation)
    engine.start(deadly)
    with pytest.raises(UserError, match="died 3 times on client 3"):
        list(engine.run(tasks(made)))
    engine.start(made)  # the engine is as good as new
    assert len(list(engine.run(tasks(made)))) == 6


def test_a_run_that_is_left_in_the_middle_does_not_disturb_the_next(engine: Processes) -> None:
    made = job(epochs=3)
    engine.start(made)
    expected = outcome(engine.run(tasks(made)))
    half = engine.run(tasks(made))
    next(half)
    half.close()
    assert outcome(engine.run(tasks(made))) == expected


def test_workers_end_when_their_coordinator_is_killed() -> None:
    program = (
        "import time\nfrom tests.engines.test_processes import job, Processes\n"
        "engine = Processes(2)\nengine.start(job())\n"
        "print(*[w.process.pid for w in engine._pool], flush=True)\ntime.sleep(3600)\n"
    )
    coordinator = subprocess.Popen(
        [sys.executable, "-c", program], stdout=subprocess.PIPE, text=True, cwd=Path(__file__).parents[2]
    )
    assert coordinator.stdout is not None
    with coordinator:
        workers = [int(pid) for pid in coordinator.stdout.readline().split()]
        coordinator.kill()
    assert len(workers) == 2
    wait_until(lambda: not any(_alive(pid) for pid in workers), "the end of the workers")


def _alive(pid: int) -> bool:
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except FileNotFoundError:
        return False
    return state != "Z"


def test_a_script_needs_no_main_guard(tmp_path: Path) -> None:
    script = tmp_path / "script.py"
    script.write_text(
        "import fedtailor\n"
        "run = fedtailor.run({'rounds': 1, 'data': {'clients': 3, 'samples': 100}, 'engine': {'workers': 2}})\n"
        "print(run.finished)\n"
    )
    done = subprocess.run([sys.executable, str(script)], cwd=tmp_path, capture_output=True, text=True, check=True)
    assert done.stdout == "True\n"
    assert done.stderr == ""


def test_a_method_that_workers_cannot_import_is_refused_before_anything_is_written(tmp_path: Path) -> None:
    class Mine(find("fedavg")):  # type: ignore[misc]
        name = ""

    experiment = fedtailor.experiment({"rounds": 1, "data": {"clients": 3, "samples": 100}})
    with pytest.raises(UserError, match="put it into its own file"):
        fedtailor.run(experiment.model_copy(update={"method": Mine()}), folder=tmp_path / "run")
    assert not (tmp_path / "run").exists()


def test_a_worker_gets_a_payload_once_and_keeps_it_until_the_next(engine: Processes) -> None:
    """The first message holds the payload, the next ones do not; another payload, or a new process, needs it again."""
    made = job(epochs=1)
    some = tasks(made)
    engine.start(made)
    worker = engine._pool[0]
    sent = [sum(map(len, worker.sender.message([task])[1])) for task in some[:3]]
    assert sent == [len(some[0].payload), 0, 0]
    other = replace(some[3], payload=bytes(bytearray(some[3].payload)))
    assert sum(map(len, worker.sender.message([other])[1])) == len(other.payload)
    assert sum(map(len, worker.sender.message([some[4]])[1])) == len(some[4].payload)
    worker.restart()
    assert sum(map(len, worker.sender.message([some[5]])[1])) == len(some[5].payload)


def test_a_worker_has_its_next_task_before_its_result_is_handled() -> None:
    made = job(epochs=1)
    engine = Processes(1)
    try:
        engine.start(made)
        built: list[int] = []
        results = engine.run(built.append(task.index) or task for task in tasks(made))  # type: ignore[func-returns-value]
        assert next(results).index == 0
        assert [task.index for task in engine._pool[0].busy or []] == [1]
        assert built == [0, 1]
    finally:
        engine.close()


def test_messages_of_any_size_pass_a_channel() -> None:
    one, other = socket.socketpair()
    files = anonymous_file(), anonymous_file()
    here, there = Channel(one, *files), Channel(other, *map(os.dup, reversed(files)))
    try:
        for blobs in ([], [b""], [b"ab", b"", b"c"], [bytes(range(256)) * 4096, b"end"], [b"short"]):
            here.send({"kind": "x"}, blobs)
            assert there.receive() == ({"kind": "x"}, blobs)
            there.send({"kind": "y"}, [*reversed(blobs)])
            assert here.receive() == ({"kind": "y"}, [*reversed(blobs)])
    finally:
        here.close()
        with pytest.raises(Closed):
            there.receive()
        there.close()


def test_the_results_say_which_worker_did_them(engine: Processes) -> None:
    made = job(epochs=1)
    engine.start(made)
    assert {result.worker for result in engine.run(tasks(made))} <= {0, 1}


def test_workers_can_be_started_before_there_is_a_job(engine: Processes) -> None:
    engine.warm()
    started = [worker.process.pid for worker in engine._pool]
    assert len(started) == 2
    engine.start(job(epochs=1))
    assert [worker.process.pid for worker in engine._pool] == started


def test_workers_have_huge_pages_unless_the_user_decides_otherwise() -> None:
    assert processes._tunables("") == "glibc.malloc.hugetlb=1"
    assert processes._tunables("glibc.malloc.check=1") == "glibc.malloc.check=1:glibc.malloc.hugetlb=1"
    for given in ("glibc.malloc.hugetlb=0", "glibc.malloc.check=1:glibc.malloc.hugetlb=1"):
        assert processes._tunables(given) == given
