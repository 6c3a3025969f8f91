"""How much faster training and evaluation are in bf16 than in fp32, as ratios measured in one run.

* ``training``: samples per second of a client's local training (five epochs) in bf16 over fp32, at two batch sizes;
* ``over raw``: the same over plain torch in fp32 on the same samples (``raw_loop.py``'s network and loop);
* ``evaluation``: samples per second of an evaluation in bf16 over fp32, and how many test samples they judge
  differently.

One process with one thread and the environment of a worker; the measured functions take turns, so that whatever else
the machine does hits all of them. Processor times; medians are compared. Example:
``FEDTAILOR_DATA=... python benchmarks/precision.py``. Prints one JSON document.
"""

import argparse
import json
import os
import sys
import time
from collections.abc import Callable, Mapping
from statistics import median
from typing import Any

import torch
from raw_loop import EPOCHS, LR, train_client
from torch import Tensor

import fedtailor
from fedtailor.data import build as federation_of
from fedtailor.engines.processes import ENVIRONMENT
from fedtailor.learning import TrainingSettings, outcomes, train
from fedtailor.learning.precision import computing, native_bf16
from fedtailor.learning.settings import Precision
from fedtailor.learning.tensors import inputs_of, tensors
from fedtailor.models import ModelSettings, Network, build
from fedtailor.runs.environment import environment
from fedtailor.seeding import torch_stream

SOURCES, BATCHES, SAMPLES = ("fashion-mnist", "cifar10"), (10, 64), 448  # seven full batches of 64
Data = tuple[Tensor, Tensor]
PRECISIONS: tuple[Precision, ...] = ("fp32", "bf16")


def measure(turns: int) -> dict[str, Any]:
    torch.set_num_threads(1)
    found: dict[str, Any] = {}
    for source in SOURCES:
        data, tests, network = problem(source)
        found[source] = {f"batch {batch}": training(network, *data, batch, turns) for batch in BATCHES}
        found[source]["evaluation"] = evaluation(network, data, tests, turns)
    return {
        **found,
        "goals": {"batch 10": ">= 1.3", "batch 64": ">= 1.8"},
        "turns": turns,
        "native bf16": native_bf16(),
        "environment": environment(),
    }


def problem(source: str) -> tuple[Data, Data, Network]:
    """Training and test data of one client, and the CNN of its data."""
    experiment = fedtailor.experiment({"data": {"source": source, "clients": 1, "samples": 20_000}})
    federation = federation_of(experiment.data, 0)
    data, tests = (tensors(federation.samples, rows[0]) for rows in (federation.train, federation.test))
    return data, tests, build(ModelSettings(name="cnn"), inputs_of(federation.samples), seed=0)


def training(network: Network, x: Tensor, y: Tensor, batch: int, turns: int) -> dict[str, Any]:
    x, y = x[:SAMPLES], y[:SAMPLES]
    start, images = network.weights(), x.permute(0, 2, 3, 1).contiguous()

    def local(precision: Precision) -> None:
        network.load(start)
        settings = TrainingSettings(epochs=EPOCHS, batch_size=batch, lr=LR, precision=precision)
        train(network, x, y, settings, torch_stream("batches"))

    functions: dict[str, Callable[[], None]] = {
        "raw fp32": lambda: train_client(images, y, batch=batch),
        "fp32": lambda: local("fp32"),
        "bf16": lambda: local("bf16"),
    }
    speed = {name: EPOCHS * len(y) / seconds for name, seconds in in_turns(functions, turns).items()}
    return {
        "training": round(speed["bf16"] / speed["fp32"], 2),
        "over raw": round(speed["bf16"] / speed["raw fp32"], 2),
        "samples_per_second": {name: round(value) for name, value in speed.items()},
    }


def evaluation(network: Network, data: Data, tests: Data, turns: int) -> dict[str, Any]:
    (x, y), settings = tests, TrainingSettings(epochs=1, lr=LR, precision="bf16")
    train(network, *data, settings, torch_stream("batches"))
    right: dict[Precision, Tensor] = {}

    def score(precision: Precision) -> None:
        with computing(network, precision):
            _, right[precision] = outcomes(network, x, y, "cross-entropy")

    times = in_turns({name: lambda name=name: score(name) for name in PRECISIONS}, turns)  # type: ignore[misc]
    return {
        "evaluation": round(times["fp32"] / times["bf16"], 2),
        "samples_per_second": {name: round(len(y) / seconds) for name, seconds in times.items()},
        "correct": {name: int(right[name].sum()) for name in PRECISIONS},
        "judged differently": int((right["fp32"] != right["bf16"]).sum()),
        "samples": len(y),
    }


def in_turns(functions: Mapping[str, Callable[[], None]], turns: int) -> dict[str, float]:
    """The median processor time of each function; they take turns."""
    times: dict[str, list[float]] = {name: [] for name in functions}
    for turn in range(turns + 1):
        for name, function in functions.items():
            begin = time.process_time()
            function()
            if turn:  # the first one warms up
                times[name].append(time.process_time() - begin)
    return {name: median(values) for name, values in times.items()}


def command(measured: Callable[[int], Any], description: str | None) -> None:
    """The command line of a benchmark that takes turns: print what it measures, in the environment of a worker."""
    parser = argparse.ArgumentParser(description=description, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--turns", type=int, default=9, help="turns that count")
    given = parser.parse_args()
    if not ENVIRONMENT.items() <= os.environ.items():  # it must be there when a process starts
        os.execve(sys.executable, [sys.executable, *sys.argv], {**os.environ, **ENVIRONMENT})
    print(json.dumps(measured(given.turns), indent=2))


if __name__ == "__main__":
    command(measure, __doc__)
