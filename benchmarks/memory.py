"""Peak memory with 10,000 clients over peak memory with 100, for the same data and the same cohort size.

FedPer keeps a head for every client that has trained; clients that are not at work must cost nothing. Each size
runs in a process of its own with two workers, with every client evaluated in every round and in the final pass;
the peaks of the coordinator and its workers are added. Example: ``FEDTAILOR_DATA=... python benchmarks/memory.py``.
Prints one JSON document.
"""

import argparse
import json
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import fedtailor
from fedtailor.engines import Processes
from fedtailor.runs import Callback, Resources, RoundReport
from fedtailor.runs.environment import environment


def peak(pid: int | str) -> int:
    """The largest resident size of a process so far, in bytes."""
    for line in Path(f"/proc/{pid}/status").read_text().splitlines():
        if line.startswith("VmHWM:"):
            return int(line.split()[1]) * 1024
    raise RuntimeError(f"no peak for {pid}")


class Rounds(Callback):
    def __init__(self) -> None:
        self.seconds: list[float] = []

    def round_done(self, report: RoundReport) -> None:
        self.seconds.append(report.seconds)
        print(f"round {report.round}: {report.seconds:.1f} s", file=sys.stderr)


def one(clients: int, rounds: int) -> dict[str, Any]:
    settings = {
        "rounds": rounds,
        "data": {"source": "fashion-mnist", "clients": clients, "partition": "iid"},
        "model": {"name": "cnn"},
        "method": {"name": "fedper"},
        "participation": {"clients": 20},
    }
    engine, callbacks = Processes(2), Rounds()
    with tempfile.TemporaryDirectory() as folder:
        run = fedtailor.run(
            settings, folder=Path(folder) / "run", callbacks=callbacks, resources=Resources(engine=engine)
        )
        tested = run.last()["final"].clients
        run.close()
        peaks = {
            "coordinator": peak("self"),
            **{f"worker {i}": peak(w.process.pid) for i, w in enumerate(engine._pool)},
        }
    engine.close()
    return {"peaks": peaks, "total": sum(peaks.values()), "tested": tested, "seconds_per_round": callbacks.seconds[-1]}


def measure(rounds: int) -> dict[str, Any]:
    found = {}
    for clients in (100, 10_000):
        command = [sys.executable, __file__, "--clients", str(clients), "--rounds", str(rounds)]
        done = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True)
        found[clients] = json.loads(done.stdout)
    return {
        "memory": round(found[10_000]["total"] / found[100]["total"], 3),
        "goal": "<= 1.30",
        "megabytes": {n: {k: round(v / 1e6) for k, v in f["peaks"].items()} for n, f in found.items()},
        "clients_tested": {n: f["tested"] for n, f in found.items()},
        "seconds_per_round": {n: round(f["seconds_per_round"], 1) for n, f in found.items()},
        "rounds": rounds,
        "environment": environment(),
    }


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--clients", type=int, help=argparse.SUPPRESS)
    given = parser.parse_args()
    print(json.dumps(one(given.clients, given.rounds) if given.clients else measure(given.rounds), indent=2))
