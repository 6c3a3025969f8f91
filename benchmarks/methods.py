"""What a round of every method costs over a round of FedAvg, beside what its mathematics needs.

``measured`` is the processor time of a round (client work, messages, server, storage, no evaluation) over that of a
round of FedAvg. Both run inline in one process, which has the environment of a worker, and take turns round by round,
so that whatever else the machine does hits both; it is the median over the pairs of rounds, without the first two.
``first`` is the dearer of those two: FedALA learns its mix from scratch in the second, for 11 to 100 epochs. All
clients take part in all rounds.

``passes`` is the ratio of forward and backward passes (``Method.passes``). ``needed`` is what follows from it, with two
corrections that bare torch measures in the same turns: a mini-batch cut into pieces (``Method.pieces``, Per-FedAvg)
costs what passes over such pieces cost, and arithmetic on whole models in every step (``Method.arithmetic``, APPLE)
costs this number of multiply-adds of models that are not in the cache. ``over`` is ``measured / needed``; messages,
states and all other arithmetic count as overhead. Example:
``FEDTAILOR_DATA=... python benchmarks/methods.py fedala fedrep``.
Prints one JSON document.
"""

import argparse
import json
import os
import sys
import tempfile
import threading
import time
from pathlib import Path
from statistics import median
from typing import Any

import torch
import torch.nn.functional as F
from raw_loop import network
from speed import TakingTurns, Turns

import fedtailor
from fedtailor.engines.processes import ENVIRONMENT
from fedtailor.methods import Method, catalogue
from fedtailor.runs.environment import environment

CLIENTS, BATCH, BATCHES = 6, 10, 20  # a client has BATCHES mini-batches of training data
SETTINGS: dict[str, Any] = {
    "data": {
        "source": "fashion-mnist",
        "clients": CLIENTS,
        "partition": "iid",
        "samples": 320 * CLIENTS,
        "split": {"train": 0.625, "val": 0.125, "test": 0.25},
    },
    "model": {"name": "cnn"},
    "participation": {"clients": CLIENTS},
    "evaluation": {"every": 0, "final": False},
    "engine": {"kind": "inline"},
}
WARM_UP = 2  # rounds


class Raw:
    """Bare torch: a multiply-add of a whole model, and passes over a mini-batch, in one piece or several."""

    def __init__(self) -> None:
        self.network = network(1, 28, 10)
        self.parameters = list(self.network.parameters())
        self.models = torch.randn(32, sum(parameter.numel() for parameter in self.parameters))
        self.images, self.labels = torch.randn(BATCH, 28, 28, 1).permute(0, 3, 1, 2), torch.arange(BATCH) % 10

    def multiply_add(self) -> float:
        begin = time.process_time()
        for model in self.models[1:]:
            self.models[0].add_(model, alpha=1e-3)
        return (time.process_time() - begin) / (len(self.models) - 1)

    def passes(self, pieces: int) -> float:
        begin = time.process_time()
        for _ in range(10):
            for x, y in zip(self.images.tensor_split(pieces), self.labels.tensor_split(pieces), strict=True):
                torch.autograd.grad(F.cross_entropy(self.network(x), y), self.parameters)
        return time.process_time() - begin


def take_turns(method: Method, epochs: int, rounds: int) -> dict[str, list[float]]:
    """The times of the rounds of FedAvg and of the method, and of bare torch between them."""
    turns, raw, pieces = Turns(["fedavg", "method", "raw"], time.process_time), Raw(), method.pieces()
    training = {"epochs": epochs, "batch_size": BATCH, "lr": 0.01}

    def federated(which: str, name: str, folder: Path) -> None:
        try:
            settings = {**SETTINGS, "rounds": rounds, "method": {"name": name}, "training": training}
            fedtailor.run(settings, folder=folder, callbacks=TakingTurns(turns, which)).close()
        finally:
            turns.leave(which)

    bare: dict[str, list[float]] = {"multiply-add": [], "whole": [], "pieces": []}
    with tempfile.TemporaryDirectory() as folder:
        threads = [
            threading.Thread(target=federated, args=(which, name, Path(folder) / which), daemon=True)
            for which, name in (("fedavg", "fedavg"), ("method", method.name))
        ]
        for thread in threads:
            thread.start()
        for _ in range(rounds):
            turns.wait("raw")
            bare["multiply-add"].append(raw.multiply_add())
            bare["whole"].append(raw.passes(1))
            bare["pieces"].append(raw.passes(pieces) if pieces > 1 else bare["whole"][-1])
            turns.pass_on("raw")
        for thread in threads:
            thread.join()
    if len(turns.times["fedavg"]) < rounds or len(turns.times["method"]) < rounds:
        raise RuntimeError(f"{method.name} did not finish its rounds")
    return {**turns.times, **bare}


def measure(names: list[str], epochs: int, rounds: int) -> dict[str, Any]:
    found: dict[str, dict[str, Any]] = {}
    seconds = []
    for name in names:
        method = catalogue()[name]()
        try:
            times = take_turns(method, epochs, WARM_UP + rounds)
        except RuntimeError as error:  # the others are worth knowing all the same
            found[name] = {"failed": str(error)}
            continue
        ratios = [mine / theirs for mine, theirs in zip(times["method"], times["fedavg"], strict=True)]
        usual = {which: median(values[WARM_UP:]) for which, values in times.items()}
        passes = method.passes(epochs) / epochs
        arithmetic = method.arithmetic(epochs * BATCHES, CLIENTS) * usual["multiply-add"]
        needed = passes * usual["pieces"] / usual["whole"] + arithmetic / (usual["fedavg"] / CLIENTS)
        measured = median(ratios[WARM_UP:])
        found[name] = {
            "measured": round(measured, 2),
            "passes": round(passes, 2),
            "needed": round(needed, 2),
            "over": round(measured / needed, 2),
            "first": round(max(ratios[:WARM_UP]), 2),
        }
        seconds.append(usual["fedavg"])
        print(name, found[name], file=sys.stderr)
    return {
        "goal": "over <= 1.25",
        "largest": max((ratio["over"] for ratio in found.values() if "over" in ratio), default=None),
        "methods": found,
        "epochs": epochs,
        "rounds": rounds,
        "clients": CLIENTS,
        "seconds_fedavg": round(median(seconds), 2),
        "environment": environment(),
    }


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("methods", nargs="*", help="all of them by default")
    parser.add_argument("--epochs", type=int, default=2)
    parser.add_argument("--rounds", type=int, default=7, help="rounds that count")
    given = parser.parse_args()
    if not ENVIRONMENT.items() <= os.environ.items():  # it must be there when a process starts
        os.execve(sys.executable, [sys.executable, *sys.argv], {**os.environ, **ENVIRONMENT})
    print(json.dumps(measure(given.methods or list(catalogue()), given.epochs, given.rounds), indent=2))
