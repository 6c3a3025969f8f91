"""Ctrl-C in a real process: the run ends at a round boundary and can be resumed."""

import signal
import sqlite3
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

LONG = ["--engine", "inline", "--rounds", "6", "--set", "data.clients=4", "--set", "training.epochs=4"]


Start = Callable[..., "subprocess.Popen[str]"]


@pytest.fixture
def start(tmp_path: Path, environment: dict[str, str]) -> Iterator[Start]:
    """Start ``fedtailor WORDS...`` as a process of its own, which does not outlive the test."""
    with ExitStack() as stack:

        def begin(*words: str) -> "subprocess.Popen[str]":
            program, pipe = [sys.executable, "-m", "fedtailor", *words], subprocess.PIPE
            process = subprocess.Popen(program, cwd=tmp_path, env=environment, stdout=pipe, stderr=pipe, text=True)
            stack.enter_context(process)
            stack.callback(process.kill)
            return process

        yield begin


def rounds_of(database: Path) -> int:
    with sqlite3.connect(f"file:{database}?mode=ro", uri=True) as db:
        count = db.execute("SELECT COUNT(*) FROM rounds").fetchone()[0]
    db.close()
    return int(count)


def wait_for_rounds(database: Path, process: "subprocess.Popen[str]", rounds: int) -> None:
    end = time.monotonic() + 60
    while not database.exists() or rounds_of(database) < rounds:
        assert process.poll() is None, process.communicate()
        assert time.monotonic() < end
        time.sleep(0.02)


def test_ctrl_c_ends_at_a_round_boundary_and_resume_finishes(start: Start, tmp_path: Path) -> None:
    database = tmp_path / "runs" / "stopped" / "run.db"
    process = start("run", *LONG, "--name", "stopped", "--json")
    wait_for_rounds(database, process, 1)
    process.send_signal(signal.SIGINT)
    out, err = process.communicate(timeout=60)
    assert process.returncode == 130
    assert out == ""
    # "finishing this round" is shown unless the signal met a boundary
    assert err.splitlines()[-1].endswith("resume with: fedtailor resume runs/stopped")
    assert "Traceback" not in err
    assert 1 <= rounds_of(database) < 6

    process = start("resume", "runs/stopped", "--quiet")
    out, err = process.communicate(timeout=60)
    assert process.returncode == 0, err
    assert "6 of 6 rounds, finished" in out


def test_a_second_ctrl_c_ends_at_once(start: Start, tmp_path: Path) -> None:
    database = tmp_path / "runs" / "cut" / "run.db"
    long = [word.replace("epochs=4", "epochs=3000") for word in LONG]
    process = start("run", *long, "--name", "cut")
    wait_for_rounds(database, process, 0)
    while "starts" not in process.stderr.readline():  # type: ignore[union-attr]
        assert process.poll() is None
    time.sleep(1.5)  # into the first round
    begin = time.monotonic()
    process.send_signal(signal.SIGINT)
    time.sleep(0.5)
    process.send_signal(signal.SIGINT)
    _, err = process.communicate(timeout=60)
    assert process.returncode == 130
    assert err.splitlines()[-1] == "stopped at once; resume with: fedtailor resume runs/cut"
    assert "Traceback" not in err
    assert time.monotonic() - begin < 10
    assert rounds_of(database) == 0


def test_a_stopped_comparison_goes_on(start: Start, tmp_path: Path) -> None:
    words = ["compare", *LONG, "--methods", "local,fedavg", "--name", "both"]
    process = start(*words)
    wait_for_rounds(tmp_path / "runs" / "both" / "local-s0" / "run.db", process, 1)
    process.send_signal(signal.SIGINT)
    _, err = process.communicate(timeout=60)
    assert process.returncode == 130
    assert err.splitlines()[-1].endswith("resume with: fedtailor resume runs/both")
    process = start(*words)
    out, err = process.communicate(timeout=60)
    assert process.returncode == 0, err
    assert "local-s0 (1 of 2): resumes after round" in err
    assert "fedavg" in out
