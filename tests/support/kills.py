"""Kill runs with SIGKILL in every phase, resume each, and compare it with a run that nothing disturbed.

``python -m tests.support.kills 100``: kills go on from those in docs/results/kills.json, which holds every kill with
its phase, its outcome and its seconds. Each kill has a fresh run. Half of them are at a random moment; the others
go through the phases in turn: in the middle of a training, after a batch of tasks, after a write to each table.
``python -m tests.support.security`` writes the page.
"""

import json
import os
import random
import shutil
import signal
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch

import fedtailor
from fedtailor.engines.worker import Worker
from fedtailor.runs.store import Store
from fedtailor.runs.tasks import Tasks
from tests.support.dying import tell
from tests.support.fingerprint import assert_same
from tests.support.killable import CHANGES, EXPERIMENT

RECORD = Path(__file__).parents[2] / "docs" / "results" / "kills.json"
SMALL = {"rounds": 6, "data": {"source": "digits", "clients": 6, "samples": 180}}
SCENARIOS = ("", "devices", "sizes")  # of killable.py
NAMES = {"": "fedper", "devices": "fedper with devices", "sizes": "hapfl, two agents"}


def main(wanted: int) -> int:
    torch.set_num_threads(1)
    kills: list[dict[str, Any]] = json.loads(RECORD.read_text(encoding="utf-8")) if RECORD.exists() else []
    ours = [kill for kill in kills if kill["where"] == "simulation"]
    with tempfile.TemporaryDirectory() as folder:
        places = {change: Path(folder) / (change or "plain") for change in SCENARIOS}
        known = {change: _undisturbed(change, place) for change, place in places.items()}
        for number in range(len(ours), wanted):
            change = SCENARIOS[number % len(SCENARIOS)]
            kill = _one_kill(number, change, places[change], *known[change])
            kills.append({"where": "simulation", "run": NAMES[change], **kill})
            RECORD.write_text(json.dumps(kills, indent=1) + "\n", encoding="utf-8")
            print(number + 1, kill, flush=True)
    return sum(not kill["identical"] for kill in kills)


def _undisturbed(change: str, place: Path) -> tuple[list[str], float]:
    """Run without a kill; return its events by name, and the seconds after the first of them."""
    log = place.with_suffix(".events")
    code = _child(lambda: _run(place, change, log))
    assert os.waitstatus_to_exitcode(os.waitpid(code, 0)[1]) == 0
    seconds, *events = log.read_text(encoding="utf-8").splitlines()
    return events, float(seconds)


def _one_kill(number: int, change: str, undisturbed: Path, events: list[str], seconds: float) -> dict[str, Any]:
    stream, begin = random.Random(number), time.perf_counter()
    place = undisturbed.with_name("killed")
    shutil.rmtree(place, ignore_errors=True)
    turn = number // len(SCENARIOS)
    if turn % 2:
        phase = "random moment"
        read, write = os.pipe()
        process = _child(lambda: _run(place, change, begun=write))
        os.read(read, 1)
        time.sleep(stream.uniform(0, 0.9) * seconds)
        os.kill(process, signal.SIGKILL)
        os.close(read)
        os.close(write)
    else:
        phases = sorted(set(events))
        phase = phases[turn // 2 % len(phases)]
        at = stream.choice([index for index, name in enumerate(events) if name == phase])
        process = _child(lambda: _run(place, change, die_at=at))
    died = os.waitstatus_to_exitcode(os.waitpid(process, 0)[1]) == -signal.SIGKILL
    reached = _rounds(place)
    again = _child(lambda: _run(place, change))
    finished = os.waitstatus_to_exitcode(os.waitpid(again, 0)[1]) == 0
    return {
        "phase": phase,
        "killed": died,
        "rounds": reached,
        "identical": finished and _same(undisturbed, place),
        "seconds": round(time.perf_counter() - begin, 2),
    }


def _rounds(place: Path) -> int:
    """The number of complete rounds."""
    if not place.exists():
        return 0
    with Store(place) as store:
        return len(store.rows("SELECT round FROM rounds"))


def _same(undisturbed: Path, place: Path) -> bool:
    try:
        assert_same(undisturbed, place)
    except AssertionError:
        return False
    return True


def _child(work: Callable[[], None]) -> int:
    """Do the work in a forked process, which has nothing to import; return its id."""
    process = os.fork()
    if process:
        return process
    try:
        os.dup2(os.open(os.devnull, os.O_WRONLY), 2)
        work()
        os._exit(0)
    except BaseException:
        os._exit(1)


def _run(place: Path, change: str, log: Path | None = None, die_at: int = -1, begun: int = -1) -> None:
    """Run or resume; write the events to a log, die at one of them, or write to a pipe after the first."""
    seen: list[str] = []
    first = 0.0

    def event(name: str) -> None:
        if len(seen) == die_at:
            os.kill(os.getpid(), signal.SIGKILL)
        if not seen:
            nonlocal first
            first = time.perf_counter()
            if begun >= 0:
                os.write(begun, b".")
        seen.append(name)

    tell(Store, "insert", lambda table, *_: f"write to {table}", event)
    tell(Store, "set_scores", lambda *_: "write to scores", event)
    tell(Store, "set_state", lambda scope, *_: f"write to state of {scope.split()[0]}", event)
    tell(Tasks, "execute", lambda *_: "batch of tasks", event)
    tell(Worker, "_train", lambda *_: "training", event)
    tell(Worker, "_test", lambda *_: "evaluation", event)
    tell(Worker, "_final", lambda *_: "final pass", event)
    if place.exists():
        fedtailor.resume(place).close()
    else:
        values = {**EXPERIMENT, **CHANGES[change], **SMALL, "engine": {"kind": "inline"}}
        fedtailor.run(values, folder=place).close()
    if log is not None:
        log.write_text("\n".join([f"{time.perf_counter() - first}", *seen]), encoding="utf-8")


if __name__ == "__main__":
    sys.exit(main(int(sys.argv[1])))
