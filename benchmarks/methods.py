"""What a round of every method costs over a round of FedAvg, beside what its mathematics needs.

``measured`` is the processor time of a round (client work, messages, server, no evaluation) over FedAvg's, both
inline in one process, FedAvg's rounds before and after; ``needed`` is the ratio of forward and backward passes
(``Method.passes``). Example: ``FEDTAILOR_DATA=... python benchmarks/methods.py fedala fedrep``. Prints one JSON
document.
"""

import argparse
import json
import statistics
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import fedtailor
from fedtailor.methods import catalogue
from fedtailor.runs import RoundReport, Watch, Workshop
from fedtailor.runs.running import environment

EPOCHS = 2
SETTINGS: dict[str, Any] = {
    "data": {"source": "fashion-mnist", "clients": 10, "samples": 3_000, "partition": "iid"},
    "validation": True,
    "model": {"name": "cnn"},
    "training": {"epochs": EPOCHS, "batch_size": 10, "lr": 0.01},
    "participation": {"clients": 4},
    "evaluation": {"every": 0, "final": False},
    "engine": {"kind": "inline"},
}


class Clock(Watch):
    """The processor time of every round."""

    def __init__(self) -> None:
        self.times: list[float] = []

    def begin(self, name: str, rounds: int, done: int) -> None:
        self._last = time.process_time()

    def round_done(self, report: RoundReport) -> None:
        now = time.process_time()
        self.times.append(now - self._last)
        self._last = now


def seconds(method: str, rounds: int, shop: Workshop) -> float:
    """The median round of a method; the first warms up (newcomers, caches, growing memory)."""
    clock = Clock()
    with tempfile.TemporaryDirectory() as folder:
        settings = {**SETTINGS, "rounds": rounds, "method": {"name": method}}
        fedtailor.run(settings, folder=Path(folder) / "run", watch=clock, workshop=shop).close()
    return statistics.median(clock.times[2:])


def measure(names: list[str], rounds: int) -> dict[str, Any]:
    found = {}
    with Workshop() as shop:
        before = seconds("fedavg", rounds, shop)
        for name in names:
            mine = seconds(name, rounds, shop)
            after = seconds("fedavg", rounds, shop)
            measured = 2 * mine / (before + after)
            needed = catalogue()[name]().passes(EPOCHS) / EPOCHS
            found[name] = {
                "measured": round(measured, 2),
                "needed": round(needed, 2),
                "over": round(measured / needed, 2) if needed else None,
            }
            print(name, found[name], file=sys.stderr)
            before = after
    return {
        "goal": "over <= 1.25",
        "methods": found,
        "epochs": EPOCHS,
        "rounds": rounds,
        "seconds_fedavg": round(before, 2),
        "environment": environment(),
    }


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("methods", nargs="*", help="all of them by default")
    parser.add_argument("--rounds", type=int, default=5)
    given = parser.parse_args()
    print(json.dumps(measure(given.methods or list(catalogue()), given.rounds), indent=2))
