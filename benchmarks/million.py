"""What a federation of a million clients costs, over one of a hundred with the same cohort.

FedAvg keeps nothing for a client, FedPer a head for every client that has trained; each with synthetic samples that
are dealt to the clients (the same two million samples for every number of clients) and with Fashion-MNIST images that
every client draws anew (``partition = "resampled"``). In every case 100 clients take part in a round and a hundred
clients that the seed draws are tested, in the final pass too, so only the number of clients that exist differs. Each
run has a program of its own with two workers, is stopped after three rounds, and is resumed by another program.
``--engine ray`` does the same on a local Ray; its own services are not in the memory, what workers map of its store is.

* ``start``: seconds from the start of the program to the first round, with its imports;
* ``round``, ``memory``, ``resume``: over those with 100 clients: the median round; the peaks of coordinator and
  workers, added; and the time from the start of the program that resumes to its first round;
* ``file``: megabytes of the database at the end; ``growth``: kilobytes that a round adds, with its part of the end;
* ``show``, ``list``: seconds of the commands;
* ``busy``: seconds of the processor in start (the coordinator's), show and list, which other programs do not lengthen.

Example: ``FEDTAILOR_DATA=... python benchmarks/million.py --clients 100 1000000``. Prints one JSON document.
"""

import argparse
import json
import os
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from memory import peak

import fedtailor
from fedtailor.engines import Engine, EngineSettings, open_engine
from fedtailor.runs import Callback, Resources, RoundReport
from fedtailor.runs.environment import environment

COHORT, STOP, ROUNDS = 100, 3, 6
DATA: dict[str, dict[str, Any]] = {
    "dealt": {
        "source": "synthetic",
        "partition": "iid",
        "synthetic": {"samples": 2_000_000, "features": 8, "classes": 4},
    },
    "resampled": {"source": "fashion-mnist", "partition": {"kind": "resampled", "size": 20, "test": 5}},
}
GOALS = {
    "start": "< 10 s",
    "memory": "<= 1.5 at 100,000 and <= 3 at 1,000,000 clients",
    "round": "flat",
    "resume": "flat",
    "show, list": "< 1 s",
}


class Stopped(Exception):
    """The run is ended here, at a round boundary."""


class Timing(Callback):
    def __init__(self, born: float, stop: int):
        self.born, self.stop = born, stop
        self.start = self.busy = 0.0
        self.seconds: list[float] = []

    def begin(self, name: str, rounds: int, done: int) -> None:
        self.start, self.busy = time.time() - self.born, time.process_time()

    def round_done(self, report: RoundReport) -> None:
        self.seconds.append(report.seconds)
        if report.round == self.stop:
            raise Stopped


def settings(method: str, data: str, clients: int) -> dict[str, Any]:
    return {
        "rounds": ROUNDS,
        "data": {**DATA[data], "clients": clients},
        "model": {"name": "mlp", "arguments": {"hidden": [32]}},
        "method": {"name": method},
        "training": {"steps": 4, "batch_size": 5, "lr": 0.05},
        "participation": {"clients": COHORT},
        "evaluation": {"clients": COHORT},
    }


def one(kind: str, method: str, data: str, clients: int, place: Path, born: float) -> dict[str, Any]:
    """Run to the stop if the folder is new, else resume to the end."""
    engine, fresh = open_engine(EngineSettings.model_validate({"kind": kind, "workers": 2})), not place.exists()
    timing = Timing(born, STOP if fresh else 0)
    resources = Resources(engine=engine)
    try:
        if fresh:
            fedtailor.run(settings(method, data, clients), folder=place, callbacks=timing, resources=resources)
        else:
            fedtailor.resume(place, callbacks=timing, resources=resources).close()
    except Stopped:
        pass
    memory = peak("self") + sum(map(peak, workers(engine)))
    engine.close()
    file = sum(file.stat().st_size for file in place.glob("run.db*"))
    return {"start": timing.start, "busy": timing.busy, "seconds": timing.seconds, "file": file, "memory": memory}


def workers(engine: Engine) -> list[int]:
    """The processes of the engine's workers."""
    pool: list[Any] = engine._pool  # type: ignore[attr-defined]
    pids = (worker.process.pid if hasattr(worker, "process") else worker.pid for worker in pool)
    return [pid for pid in pids if pid]  # an actor of Ray has none before it is ready


def case(kind: str, method: str, data: str, clients: int) -> dict[str, Any]:
    print(f"{method}, {data}, {clients:,} clients", file=sys.stderr)
    with tempfile.TemporaryDirectory() as name:
        place = Path(name) / "runs" / "one"
        me = [sys.executable, __file__, "--one", kind, method, data, str(clients), str(place)]
        first, second = (json.loads(output([*me, repr(time.time())])) for _ in range(2))
        asked, busy = {}, {"start": round(first["busy"], 2)}
        for command in ("show", "list"):
            begin, worked = time.time(), children()
            output([sys.executable, "-m", "fedtailor", command, str(place if command == "show" else place.parent)])
            asked[command], busy[command] = round(time.time() - begin, 2), round(children() - worked, 2)
    return {
        "start": round(first["start"], 2),
        "resume": second["start"],
        "round": statistics.median([*first["seconds"][1:], *second["seconds"][1:]]),
        "memory": max(first["memory"], second["memory"]),
        "file": round(second["file"] / 1e6, 2),
        "growth": round((second["file"] - first["file"]) / (ROUNDS - STOP) / 1e3),
        **asked,
        "busy": busy,
    }


def children() -> float:
    """Seconds of the processor of the programs that were started and have ended."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def output(command: list[str]) -> str:
    inherited = {"PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
    return subprocess.run(
        command, stdout=subprocess.PIPE, text=True, check=True, env={**os.environ, **inherited}
    ).stdout


def measure(engine: str, numbers: list[int], methods: list[str], data: list[str]) -> dict[str, Any]:
    found: dict[str, Any] = {}
    load = os.getloadavg()[0]
    for method in methods:
        for kind in data:
            rows = {clients: case(engine, method, kind, clients) for clients in sorted(numbers)}
            least = rows[min(numbers)]
            found[f"{method}, {kind}"] = {
                f"{clients:,}": {
                    **row,
                    **{name: round(row[name] / least[name], 2) for name in ("resume", "round", "memory")},
                }
                for clients, row in rows.items()
            } | {
                "at_the_least": {
                    "clients": min(numbers),
                    "resume_seconds": round(least["resume"], 2),
                    "round_seconds": round(least["round"], 3),
                    "memory_megabytes": round(least["memory"] / 1e6),
                }
            }
    return {
        "goals": GOALS,
        "engine": engine,
        "cohort": COHORT,
        "tested": COHORT,
        "cases": found,
        "load_before": round(load, 1),  # programs that wanted a core; seconds are meaningful only if it is near 0
        "environment": environment(),
    }


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--clients", type=int, nargs="+", default=[100, 10_000, 100_000, 1_000_000])
    parser.add_argument("--methods", nargs="+", default=["fedavg", "fedper"])
    parser.add_argument("--data", nargs="+", default=list(DATA), choices=list(DATA))
    parser.add_argument("--engine", default="processes", choices=["processes", "ray"])
    parser.add_argument("--one", nargs=6, help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.one:
        kind, method, data, clients, place, born = given.one
        print(json.dumps(one(kind, method, data, int(clients), Path(place), float(born))))
    else:
        print(json.dumps(measure(given.engine, given.clients, given.methods, given.data), indent=2))
