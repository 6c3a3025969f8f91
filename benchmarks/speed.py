"""How fast a FedAvg round is, as ratios measured in one run.

* ``throughput``: samples per second of local training, over plain torch in two processes on the same samples;
* ``evaluation``: a round in which the received model of all clients, the held models of the cohort and the
  global model are tested, over a round in which nothing is.

The rounds of the three take turns, so that whatever else the machine does hits all of them; medians are
compared. Example: ``FEDTAILOR_DATA=... python benchmarks/speed.py --rounds 7``. Prints one JSON document.
"""

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np

import fedtailor
from fedtailor.data import build
from fedtailor.engines.processes import ENVIRONMENT
from fedtailor.methods import Moment
from fedtailor.runs import Callback, RoundReport
from fedtailor.runs.cohort import choose_cohort
from fedtailor.runs.environment import environment

WORKERS = 2


def settings(rounds: int, every: int) -> dict[str, Any]:
    """Fashion-MNIST, CNN, 100 clients of 450 training samples, 10 per round, 5 epochs, batch 10."""
    return {
        "rounds": rounds,
        "data": {
            "source": "fashion-mnist",
            "clients": 100,
            "partition": {"kind": "iid"},
            "samples": 60_000,
            "split": {"train": 0.75, "val": 0.0, "test": 0.25},
        },
        "model": {"name": "cnn"},
        "method": {"name": "fedavg"},
        "training": {"epochs": 5, "batch_size": 10, "lr": 0.01},
        "participation": {"clients": 10},
        "evaluation": {"every": every, "final": False},
        "engine": {"kind": "processes", "workers": WORKERS},
    }


class Turns:
    """Lets several threads do a round each, one after the other, and times every round."""

    def __init__(self, names: list[str], clock: Callable[[], float] = time.perf_counter):
        self.times: dict[str, list[float]] = {name: [] for name in names}
        self._queue = deque(names)
        self._clock = clock
        self._change = threading.Condition()
        self._begin = 0.0

    def wait(self, name: str) -> None:
        with self._change:
            self._change.wait_for(lambda: self._queue[0] == name)
            self._begin = self._clock()

    def pass_on(self, name: str) -> None:
        self.times[name].append(self._clock() - self._begin)
        with self._change:
            self._queue.rotate(-1)
            self._change.notify_all()

    def leave(self, name: str) -> None:
        """Have no more turns, whether the last one ended or failed."""
        with self._change:
            self._queue.remove(name)
            self._change.notify_all()


class TakingTurns(Callback):
    def __init__(self, turns: Turns, name: str):
        self.turns, self.name = turns, name

    def begin(self, name: str, rounds: int, done: int) -> None:
        self.turns.wait(self.name)

    def round_done(self, report: RoundReport) -> None:
        self.turns.pass_on(self.name)
        print(f"{self.name}: round {report.round} {self.turns.times[self.name][-1]:.2f} s", file=sys.stderr)
        if report.round < report.rounds:
            self.turns.wait(self.name)


def raw_round(folder: Path, rounds: int) -> Iterator[Callable[[], None]]:
    """Plain torch on the samples of a cohort, half of the clients in each of two processes."""
    experiment = fedtailor.experiment(settings(rounds, 0))
    federation = build(experiment.data, experiment.seed)
    cohort = choose_cohort(experiment, federation.clients, Moment(0, round=1))
    programs = []
    for worker in range(WORKERS):
        mine = [federation.train[client] for client in cohort[worker::WORKERS]]
        path = folder / f"raw-{worker}.npz"
        np.savez(path, x=federation.samples.x[np.stack(mine)], y=federation.samples.y[np.stack(mine)])
        programs.append(
            subprocess.Popen(
                [sys.executable, str(Path(__file__).with_name("raw_loop.py")), str(path)],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                text=True,
                bufsize=1,
                env={**os.environ, **ENVIRONMENT},
            )
        )
    for program in programs:
        program.stdout.readline()

    def go() -> None:
        for program in programs:
            program.stdin.write("go\n")
        for program in programs:
            program.stdout.readline()

    yield go
    for program in programs:
        program.stdin.close()
        program.wait()


def measure(rounds: int) -> dict[str, Any]:
    turns = Turns(["raw", "plain", "evaluated"])
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)

        def federated(which: str, every: int) -> None:
            fedtailor.run(settings(rounds, every), folder=folder / which, callbacks=TakingTurns(turns, which)).close()

        threads = [
            threading.Thread(target=federated, args=(which, every)) for which, every in (("plain", 0), ("evaluated", 1))
        ]
        for thread in threads:
            thread.start()
        for go in raw_round(folder, rounds):
            for _ in range(rounds):
                turns.wait("raw")
                go()
                turns.pass_on("raw")
        for thread in threads:
            thread.join()
        with fedtailor.Run(folder / "evaluated") as run:
            tested = run.last()["received"].clients
    median = {which: statistics.median(times[1:]) for which, times in turns.times.items()}  # the first warms up
    samples = 10 * 450 * 5
    return {
        "throughput": round(median["raw"] / median["plain"], 3),
        "evaluation": round(median["evaluated"] / median["plain"], 3),
        "goals": {"throughput": ">= 0.98", "evaluation": "<= 1.10"},
        "samples_per_second": {which: round(samples / median[which]) for which in ("raw", "plain")},
        "seconds_per_round": {which: round(value, 2) for which, value in median.items()},
        "clients_tested": tested,
        "rounds": rounds,
        "workers": WORKERS,
        "environment": environment(),
    }


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=7, help="rounds of each, the first does not count")
    print(json.dumps(measure(parser.parse_args().rounds), indent=2))
