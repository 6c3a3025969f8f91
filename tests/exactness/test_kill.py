"""A run killed with SIGKILL at any moment and resumed ends like one that was not."""

import random
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import pytest

import fedtailor
from fedtailor.runs import Run
from tests.support.fingerprint import assert_same, fingerprint
from tests.support.killable import EXPERIMENT, main

PROGRAM = Path(__file__).parents[1] / "support" / "killable.py"


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("undisturbed") / "run"
    main(folder, "inline", 0)
    return folder


def start(folder: Path, engine: str, die_at: int, *more: str) -> subprocess.Popen[str]:
    command = [sys.executable, str(PROGRAM), str(folder), engine, str(die_at), *more]
    return subprocess.Popen(command, stdout=subprocess.PIPE, text=True)


def test_killed_in_the_middle_of_writing_and_training(undisturbed: Path, tmp_path: Path) -> None:
    """Four kills, each in the middle of some write or batch of tasks."""
    folder, stream = tmp_path / "run", random.Random(7)
    reached = []
    for _ in range(4):
        with start(folder, "inline", stream.randrange(5, 60)) as process:
            assert process.wait() == -signal.SIGKILL
        if folder.exists():
            with Run(folder) as run:
                reached.append(run.rounds_done)
    assert reached == sorted(reached)
    assert 0 < reached[-1] < 40
    main(folder, "inline", 0)
    assert_same(undisturbed, folder)


def test_killed_with_devices(tmp_path: Path) -> None:
    """Three kills; the clock goes on where the last complete round left it."""
    folder, stream = tmp_path / "run", random.Random(5)
    main(tmp_path / "undisturbed", "inline", 0, "devices")
    for _ in range(3):
        with start(folder, "inline", stream.randrange(30, 90), "devices") as process:
            assert process.wait() == -signal.SIGKILL
    main(folder, "inline", 0, "devices")
    assert_same(tmp_path / "undisturbed", folder)
    found = fingerprint(folder)
    assert len(found["clock"]) == 40
    assert any(event["detail"].startswith("late: ") for event in found["events"])


def test_killed_with_models_of_several_sizes(tmp_path: Path) -> None:
    """Three kills while two agents learn; every size's model, the buffers and the timeline are where they were."""
    folder, stream = tmp_path / "run", random.Random(9)
    main(tmp_path / "undisturbed", "inline", 0, "sizes")
    for _ in range(3):
        with start(folder, "inline", stream.randrange(40, 110), "sizes") as process:
            assert process.wait() == -signal.SIGKILL
    with Run(folder) as run:
        assert 0 < run.rounds_done < 12
    main(folder, "inline", 0, "sizes")
    assert_same(tmp_path / "undisturbed", folder)
    assert fingerprint(folder)["decisions"]


def test_killed_with_a_start_checkpoints_and_a_best_round(tmp_path: Path) -> None:
    """Three kills, the first while the start is copied; the run that it started from is gone before the last part."""
    folder = tmp_path / "run"
    short = {**EXPERIMENT, "rounds": 3, "validation": True, "engine": {"kind": "inline"}}
    fedtailor.run(short, folder=tmp_path / "source").close()
    main(tmp_path / "undisturbed", "inline", 0, "grown")
    reached = []
    for count in (9, 60, 50):
        with start(folder, "inline", count, "grown") as process:
            assert process.wait() == -signal.SIGKILL
        if folder.exists():
            with Run(folder) as run:
                reached.append(run.rounds_done)
    assert len(reached) == 2, "the first kill left a folder"
    assert 3 < reached[0] < reached[1] < 12
    shutil.rmtree(tmp_path / "source")
    main(folder, "inline", 0, "grown")
    assert_same(tmp_path / "undisturbed", folder)
    scopes = {row["scope"] for row in fingerprint(folder)["state"]}
    assert {"start", "kept best client"} < scopes
    with Run(folder) as run, Run(tmp_path / "undisturbed") as undisturbed:
        assert run.summary().notes == undisturbed.summary().notes
        assert run.start is not None
        assert (run.start["after"], run.start["carried"]) == (3, "all states")


def test_killed_after_any_task_of_worker_processes(undisturbed: Path, tmp_path: Path) -> None:
    """Two kills after a random number of tasks; the last part runs in another engine."""
    folder, stream = tmp_path / "run", random.Random(3)
    for _ in range(2):
        with start(folder, "processes", 0) as process:
            assert process.stdout is not None
            assert process.stdout.readline() == "going\n"
            for _ in range(stream.randrange(25)):
                assert process.stdout.readline() == "task\n"
            process.kill()
    with Run(folder) as run:
        assert run.rounds_done < 40
    main(folder, "inline", 0)
    assert_same(undisturbed, folder)


def test_a_finished_run_that_is_resumed_stays_as_it_is(undisturbed: Path) -> None:
    before = (undisturbed / "run.db").read_bytes()
    main(undisturbed, "inline", 0)
    with Run(undisturbed) as run:
        assert run.finished
    assert (undisturbed / "run.db").read_bytes() == before
