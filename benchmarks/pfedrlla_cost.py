"""What the server of pFedRLLA costs beside the local training, at the paper's size.

10 of 100 clients in a round, 450 samples and 5 epochs of mini-batches of 64 each, Fashion-MNIST, the CNN with both
fully connected layers as its head; processor time of one process with the environment of a worker. ``training`` is
that of all clients of a round, ``mhae`` projects, embeds and trains the auto-encoder, ``agent`` decides, remembers and
learns; means over the rounds of two kinds: ``warm-up``, in which the auto-encoder trains, and ``tuning``, in which the
agent learns too. Any other round costs less; by the method's defaults nine of ten rounds after the warm-up train
neither. ``share`` is that of the dearer kind; the paper's server took 0.46. ``ours`` is the form of the recipes, which
mixes after the training and whose attention network learns ten steps in every round.

``memory`` is the peak of the coordinator with 200 clients over that with 20, at the same cohort of 10, beside the bytes
of the server's state. Example: ``FEDTAILOR_DATA=... python benchmarks/pfedrlla_cost.py``. Prints one JSON document.
"""

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path
from statistics import mean
from typing import Any

from memory import peak

import fedtailor
from fedtailor.agents import DDPG
from fedtailor.agents.embedding import MHAE
from fedtailor.engines.processes import ENVIRONMENT
from fedtailor.methods import Client
from fedtailor.runs import Callback, RoundReport
from fedtailor.runs.environment import environment

COHORT = 10
PARTS = {
    "training": (Client, ("train",)),
    "mhae": (MHAE, ("fit", "fits", "train", "__call__")),
    "agent": (DDPG, ("act", "observe", "learn")),
}


OURS = {"name": "pfedrlla-after", "initial": False}


class Clock(Callback):
    """The processor time of the parts in every round."""

    def __init__(self) -> None:
        self.rounds: list[dict[str, float]] = []
        self._spent: Counter[str] = Counter()
        for part, (owner, names) in PARTS.items():
            for name in names:
                setattr(owner, name, self._timed(part, getattr(owner, name)))

    def _timed(self, part: str, function: Any) -> Any:
        def timed(*arguments: Any, **more: Any) -> Any:
            begin = time.process_time()
            try:
                return function(*arguments, **more)
            finally:
                self._spent[part] += time.process_time() - begin

        return timed

    def round_done(self, report: RoundReport) -> None:
        self.rounds.append(dict(self._spent))
        self._spent.clear()
        print(f"round {report.round}: {self.rounds[-1]}", file=sys.stderr)


def settings(clients: int, samples: int, **more: Any) -> dict[str, Any]:
    return {
        "data": {
            "source": "fashion-mnist",
            "clients": clients,
            "partition": {"kind": "pathological", "classes": 5},
            "samples": samples * clients,
            "split": {"train": 0.75, "val": 0.15, "test": 0.1},
        },
        "model": {"name": "cnn", "head": "linear"},
        "training": {"epochs": 5, "batch_size": 64, "lr": 0.01, "momentum": 0.5},
        "participation": {"clients": COHORT},
        "evaluation": {"every": 0, "final": False},
        "engine": {"kind": "inline"},
        **more,
    }


def seconds(samples: int, rounds: int) -> dict[str, Any]:
    """Of the parts, in rounds of both kinds; the first round fits the bases and does not count."""
    agents = {"head-weights": {"warmup": 1 + rounds, "every": 1}}
    method = {"name": "pfedrlla", "initial": False, "agents": agents}
    clock = Clock()
    with tempfile.TemporaryDirectory() as folder:
        made = settings(100, samples, method=method, rounds=1 + 2 * rounds)
        fedtailor.run(made, folder=Path(folder) / "run", callbacks=clock).close()
        made = settings(100, samples, method=OURS, rounds=4 + rounds)
        fedtailor.run(made, folder=Path(folder) / "ours", callbacks=clock).close()
    kinds = {
        "warm-up": clock.rounds[1 : 1 + rounds],
        "tuning": clock.rounds[1 + rounds : 1 + 2 * rounds],
        "ours": clock.rounds[-rounds:],  # by then there are decisions enough to learn from
    }
    found = {kind: {part: mean(of.get(part, 0.0) for of in times) for part in PARTS} for kind, times in kinds.items()}
    shares = {kind: (of["mhae"] + of["agent"]) / of["training"] for kind, of in found.items()}
    return {
        "share": round(max(shares["warm-up"], shares["tuning"]), 4),
        "shares": {kind: round(share, 4) for kind, share in shares.items()},
        "seconds": {kind: {part: round(value, 4) for part, value in of.items()} for kind, of in found.items()},
    }


def kept(clients: int) -> dict[str, int]:
    """The coordinator's peak memory and the bytes of the server's state, after every client has trained."""
    made = settings(
        clients, 40, method={"name": "pfedrlla", "agents": {"head-weights": {"warmup": 2, "every": 1}}}, rounds=4
    )
    made |= {"training": {"epochs": 1, "batch_size": 64}, "engine": {"kind": "processes", "workers": 1}}
    with tempfile.TemporaryDirectory() as folder:
        with fedtailor.run(made, folder=Path(folder) / "run") as run:
            rows = run._store.rows("SELECT SUM(LENGTH(data)) AS bytes FROM state WHERE scope = 'server'")
        return {"peak": peak("self"), "state": rows[0]["bytes"]}


def measure(samples: int, rounds: int) -> dict[str, Any]:
    found = {}
    for clients in (20, 200):
        command = [sys.executable, __file__, "--clients", str(clients)]
        done = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True)
        found[clients] = json.loads(done.stdout)
    return {
        **seconds(samples, rounds),
        "memory": round(found[200]["peak"] / found[20]["peak"], 3),
        "goals": {"share": "<= 0.05", "memory": "<= 1.05"},
        "megabytes": {n: {k: round(v / 1e6, 1) for k, v in of.items()} for n, of in found.items()},
        "cohort": COHORT,
        "rounds": rounds,
        "environment": environment(),
    }


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--samples", type=int, default=600, help="of a client; three quarters are for training")
    parser.add_argument("--rounds", type=int, default=3, help="of each kind")
    parser.add_argument("--clients", type=int, help=argparse.SUPPRESS)
    given = parser.parse_args()
    if not ENVIRONMENT.items() <= os.environ.items():  # it must be there when a process starts
        os.execve(sys.executable, [sys.executable, *sys.argv], {**os.environ, **ENVIRONMENT})
    print(json.dumps(kept(given.clients) if given.clients else measure(given.samples, given.rounds), indent=2))
