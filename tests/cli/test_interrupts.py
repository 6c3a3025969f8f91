"""Ctrl-C in a real process: the run ends at a round boundary and can be resumed."""

import signal
import sqlite3
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from tests.support.waiting import PATIENCE, wait_until

HOLDING = "tests.support.holding:Holding"
SMALL = ["--engine", "inline", "--rounds", "4", "--set", "data.clients=4"]
METHOD = ["--set", f"method.name={HOLDING}"]

Start = Callable[..., "subprocess.Popen[str]"]


@pytest.fixture
def start(tmp_path: Path, environment: dict[str, str]) -> Iterator[Start]:
    """Start ``fedtailor WORDS...`` as a process of its own, which does not outlive the test."""
    with ExitStack() as stack:

        def begin(*words: str) -> "subprocess.Popen[str]":
            program, pipe = [sys.executable, "-m", "fedtailor", *words], subprocess.PIPE
            env = {**environment, "HOLD": str(tmp_path)}
            process = subprocess.Popen(program, cwd=tmp_path, env=env, stdout=pipe, stderr=pipe, text=True)
            stack.enter_context(process)
            stack.callback(process.kill)
            return process

        yield begin


def rounds_of(database: Path) -> int:
    with sqlite3.connect(f"file:{database}?mode=ro", uri=True) as db:
        count = db.execute("SELECT COUNT(*) FROM rounds").fetchone()[0]
    db.close()
    return int(count)


def await_holding(folder: Path, process: "subprocess.Popen[str]") -> None:
    """Wait until the training waits: when it does so twice more, it has handled every signal that it was sent."""
    file = folder / "holding"
    before = file.stat().st_size if file.exists() else 0

    def waits() -> bool:
        assert process.poll() is None, process.communicate()
        return file.exists() and file.stat().st_size >= before + 2

    wait_until(waits, "a round in which the training waits")


def test_ctrl_c_ends_at_a_round_boundary_and_resume_finishes(start: Start, tmp_path: Path) -> None:
    database, hold = tmp_path / "runs" / "stopped" / "run.db", tmp_path / "hold-2"
    hold.touch()
    process = start("run", *SMALL, *METHOD, "--name", "stopped", "--json")
    await_holding(tmp_path, process)
    process.send_signal(signal.SIGINT)
    await_holding(tmp_path, process)
    hold.unlink()
    out, err = process.communicate(timeout=PATIENCE)
    assert process.returncode == 130
    assert out == ""
    assert "finishing this round" in err
    assert err.splitlines()[-1].endswith("fedtailor resume runs/stopped")
    assert "Traceback" not in err
    assert rounds_of(database) == 2  # the round in which it was asked to end is complete

    process = start("resume", "runs/stopped", "--quiet")
    out, err = process.communicate(timeout=PATIENCE)
    assert process.returncode == 0, err
    assert "4 of 4 rounds, finished" in out


def test_a_second_ctrl_c_ends_at_once(start: Start, tmp_path: Path) -> None:
    (tmp_path / "hold-1").touch()  # for ever: only the second signal ends the process
    process = start("run", *SMALL, *METHOD, "--name", "cut")
    for _ in range(2):
        await_holding(tmp_path, process)
        process.send_signal(signal.SIGINT)
    _, err = process.communicate(timeout=PATIENCE)
    assert process.returncode == 130
    last = err.splitlines()[-1]
    assert last.startswith("stopped at once")
    assert last.endswith("fedtailor resume runs/cut")
    assert "Traceback" not in err
    assert rounds_of(tmp_path / "runs" / "cut" / "run.db") == 0


def test_a_stopped_comparison_can_be_resumed(start: Start, tmp_path: Path) -> None:
    hold = tmp_path / "hold-2"
    hold.touch()
    words = ["compare", *SMALL, "--methods", f"{HOLDING},local", "--name", "both"]
    process = start(*words)
    await_holding(tmp_path, process)
    process.send_signal(signal.SIGINT)
    await_holding(tmp_path, process)
    hold.unlink()
    _, err = process.communicate(timeout=PATIENCE)
    assert process.returncode == 130
    assert err.splitlines()[-1].endswith("fedtailor resume runs/both")
    process = start(*words)
    out, err = process.communicate(timeout=PATIENCE)
    assert process.returncode == 0, err
    (first,) = [line for line in err.splitlines() if line.startswith("Holding-s0 (1 of 2): ") and "after round" in line]
    assert "after round 2" in first
    assert "local" in out
