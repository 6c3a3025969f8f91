"""What an evaluated round costs over one that only trains, for methods of several kinds, and what an empty round costs.

* ``evaluated``: a round in which the received models of all 100 clients, the held models of the cohort and the global
  model are tested, over a round in which nothing is. FedAvg's clients receive one model, which is tested for all of
  them together; those of FedAH and FedALA learn a mix of their own, and those of pFedRLLA receive one each, so a task
  per client tests it. The two runs of a method take turns round by round; medians are compared.
* ``empty``: milliseconds of a round whose ten clients receive a network with a million parameters and send it back
  without training it.

``minutes`` is what all of it took: five to ten on a quiet machine of two cores.
With ``--inline`` all tasks run in one process with the environment of a worker, and processor times are compared: what
else the machine does then matters little, but what overlaps is not seen.
Example: ``FEDTAILOR_DATA=... python benchmarks/rounds.py fedavg fedah``. Prints one JSON document.
"""

import argparse
import json
import os
import statistics
import sys
import tempfile
import threading
import time
from pathlib import Path
from typing import Any

from speed import WORKERS, TakingTurns, Turns, settings

import fedtailor
from fedtailor.engines.processes import ENVIRONMENT
from fedtailor.methods import Client
from fedtailor.methods.fedavg import FedAvg
from fedtailor.runs.environment import environment

METHODS = {"fedavg": 1.10, "fedah": 1.35, "fedala": 1.35, "pfedrlla": 1.35}  # and the goals
COHORT, HIDDEN = 10, 13_333  # 75 parameters for each hidden unit
EMPTY_ROUNDS = 40


class Idle(FedAvg):
    """Clients that send what they received."""

    def fit(self, client: Client) -> None:
        """Train nothing."""


def experiment(method: str, rounds: int, every: int, inline: bool) -> dict[str, Any]:
    """The same work as in speed.py; validation data only where the method needs them."""
    made = settings(rounds, every)
    made["method"] = {"name": method}
    if method == "pfedrlla":
        made["data"]["split"] = {"train": 0.75, "val": 0.1, "test": 0.15}
    return made | ({"engine": {"kind": "inline"}} if inline else {})


def evaluated(method: str, rounds: int, inline: bool) -> dict[str, Any]:
    turns = Turns(["plain", "evaluated"], time.process_time if inline else time.perf_counter)
    with tempfile.TemporaryDirectory() as name:

        def run(which: str, every: int) -> None:
            try:
                made, watch = experiment(method, rounds, every, inline), TakingTurns(turns, which)
                fedtailor.run(made, folder=Path(name) / which, callbacks=watch).close()
            finally:
                turns.leave(which)

        threads = [threading.Thread(target=run, args=pair) for pair in (("plain", 0), ("evaluated", 1))]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    pairs = list(zip(turns.times["plain"], turns.times["evaluated"], strict=True))[1:]  # the first warms up
    seconds = {which: round(statistics.median(times[1:]), 2) for which, times in turns.times.items()}
    ratio = statistics.median(tested / plain for plain, tested in pairs)
    return {"over": round(ratio, 3), "goal": f"<= {METHODS[method]:.2f}", "seconds_per_round": seconds}


def empty(inline: bool) -> dict[str, Any]:
    made: dict[str, Any] = {
        "rounds": EMPTY_ROUNDS,
        "data": {"source": "digits", "clients": COHORT},
        "model": {"name": "mlp", "arguments": {"hidden": HIDDEN}},
        "method": {"name": "rounds:Idle"},
        "evaluation": {"every": 0, "final": False},
        "engine": {"kind": "inline"} if inline else {"kind": "processes", "workers": WORKERS},
    }
    with tempfile.TemporaryDirectory() as name, fedtailor.run(made, folder=Path(name) / "run") as run:
        times = [row["seconds"] for row in run.rounds()][2:]
        phases: dict[str, list[float]] = {}
        for row in run.phases():
            phases.setdefault(row["phase"], []).append(row["seconds"])
    found = {phase: round(1000 * statistics.median(seconds), 2) for phase, seconds in sorted(phases.items())}
    return {"milliseconds": round(1000 * statistics.median(times), 1), "goal": "< 15", "phases": found}


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("methods", nargs="*", default=list(METHODS), help=f"of {', '.join(METHODS)}; default: all")
    parser.add_argument("--rounds", type=int, default=5, help="rounds of each, the first does not count")
    parser.add_argument("--inline", action="store_true", help="processor times of one process")
    options = parser.parse_args()
    if options.inline and not ENVIRONMENT.items() <= os.environ.items():  # it must be there when a process starts
        os.execve(sys.executable, [sys.executable, *sys.argv], {**os.environ, **ENVIRONMENT})
    load, begin = round(os.getloadavg()[0], 1), time.perf_counter()
    document = {
        "evaluated": {method: evaluated(method, options.rounds, options.inline) for method in options.methods},
        "empty": empty(options.inline),
        "times": "processor, one process" if options.inline else f"wall, {WORKERS} workers",
        "rounds": options.rounds,
        "minutes": round((time.perf_counter() - begin) / 60, 1),  # that all of it took
        "load_before": load,
        "environment": environment(),
    }
    print(json.dumps(document, indent=2))
