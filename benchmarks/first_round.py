"""How long a user waits for the first round of ``fedtailor run``.

From the start of the program to the moment in which the method prepares the first round: Python and the package are
imported, the data are read and dealt, and all workers are ready. ``digits`` has 20 clients; ``fashion-mnist`` is the
work of speed.py, a CNN and 100 clients. ``processor`` is what coordinator and workers computed in the whole command,
with its round and its report, in seconds.
Example: ``FEDTAILOR_DATA=... python benchmarks/first_round.py``. Prints one JSON document.
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
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from fedtailor.methods import Payload, Server
from fedtailor.methods.fedavg import FedAvg
from fedtailor.runs.environment import environment

HERE = Path(__file__).parent
MARK = "FEDTAILOR_FIRST_ROUND"  # the environment variable with the file for the time
SETTINGS = {
    "digits": (),
    "fashion-mnist": (
        *("data.source=fashion-mnist", "data.clients=100", "data.partition.kind=iid", "data.samples=60000"),
        *("participation.clients=10", "model.name=cnn", "evaluation.every=0", "evaluation.final=false"),
    ),
}


class Marked(FedAvg):
    """FedAvg that notes when its first round begins."""

    def prepare(self, server: Server, cohort: Sequence[int]) -> Any:
        """Write the time into a file."""
        Path(os.environ[MARK]).write_text(repr(time.time()))
        return dict.fromkeys(cohort, Payload({"model": server.weights}))


def once(sets: Sequence[str]) -> tuple[float, float]:
    """The seconds from the command to the first round, and the processor seconds of the whole command."""
    with tempfile.TemporaryDirectory() as name:
        mark = Path(name) / "mark"
        path = os.pathsep.join([str(HERE), *filter(None, sys.path)])
        more = [part for one in (*sets, "training.epochs=1") for part in ("--set", one)]
        program = [sys.executable, "-m", "fedtailor", "run", "--method", "first_round:Marked", "--rounds", "1", *more]
        used = resource.getrusage(resource.RUSAGE_CHILDREN)
        begin = time.time()
        subprocess.run(
            [*program, "--out", str(Path(name) / "runs"), "--quiet"],
            stdout=subprocess.DEVNULL,
            check=True,
            env={**os.environ, "PYTHONPATH": path, MARK: str(mark)},
        )
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
        spent = after.ru_utime + after.ru_stime - used.ru_utime - used.ru_stime
        return float(mark.read_text()) - begin, spent


def measure(times: int) -> dict[str, Any]:
    found: dict[str, Any] = {}
    load = os.getloadavg()[0]
    for name, sets in SETTINGS.items():
        seconds, processor = zip(*(once(sets) for _ in range(1 + times)), strict=True)  # the first fills the caches
        found[name] = {
            "seconds": round(statistics.median(seconds[1:]), 2),
            "goal": "< 3",
            "processor": round(statistics.median(processor[1:]), 2),
        }
    return {**found, "times": times, "load_before": round(load, 1), "environment": environment()}


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--times", type=int, default=5, help="commands of each; one more comes before")
    print(json.dumps(measure(parser.parse_args().times), indent=2))
