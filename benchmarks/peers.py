"""The same rounds in FedTailor, plain torch, Flower's simulation and pfl, as ratios measured in one run.

FedAvg on Fashion-MNIST: a CNN with 582,026 parameters, 100 clients with 450 training and 150 test samples, 10 in a
round, five epochs, mini-batches of 10, two processes on two cores, one thread each. ``train``: rounds without
evaluation; ``evaluated``: after each round the model is tested on the test sets of all 100 clients (FedTailor also
tests what the cohort holds). The rounds take turns, so that whatever else the machine does hits all of them; medians
are compared. FedTailor computes in fp32 as the others do; ``fedtailor bf16`` has ``training.precision = "bf16"``, if
this processor has it. The programs of the peers are in ``benchmarks/peer``.

What each does in a round, beside the same training:

* FedTailor: keeps the images as bytes in shared memory, and makes them floats for every task; checks what clients send;
  stores measures and the state of the run in its database, so that it can be resumed; ``evaluated`` tests the
  received model of all clients, what the cohort holds, and the global model;
* plain torch: two processes with the samples as floats in memory; sums the weights; tests the global model on the
  samples of every client; checks and stores nothing;
* Flower: its FedAvg strategy, with clients in two Ray actors that keep the samples as floats; tests the global model
  in a message to every client and averages their measures; stores nothing;
* pfl: two processes that torch.distributed connects, with the samples as floats; tests the global model on all clients
  as its validation users; stores nothing.

No one reads files, or uses a data loader, during a round.

* ``over_fedtailor``: the time of a round over that of FedTailor in fp32: above 1 means slower than FedTailor.

``make bench-peers`` installs the peers into environments of their own below ``build/peers``, with the same torch; one
that cannot be installed is named in the result. Example: ``FEDTAILOR_DATA=... python benchmarks/peers.py --rounds 4``.
Prints one JSON document.
"""

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import threading
from pathlib import Path
from typing import Any

import numpy as np
from raw_loop import EPOCHS
from speed import TakingTurns, Turns, settings

import fedtailor
from fedtailor.data import build
from fedtailor.engines.processes import ENVIRONMENT
from fedtailor.learning.precision import native_bf16
from fedtailor.runs.environment import environment

HERE = Path(__file__).parent
ENVIRONMENTS = HERE.parent / "build" / "peers"
KINDS = {"train": 0, "evaluated": 1}  # and how often FedTailor evaluates
PEERS = {"flower": "flwr", "pfl": "pfl"}  # and the package of which the version is shown


class Peer:
    """A program that does a round for every line that it gets."""

    def __init__(self, name: str, python: Path, data: Path, folder: Path, epochs: int):
        self.name = name
        self.errors = folder / f"{name}.txt"
        self.process = subprocess.Popen(
            [str(python), str(HERE / "peer" / f"run_{name}.py")],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self.errors.open("w"),
            text=True,
            bufsize=1,
            env={
                **os.environ,
                **ENVIRONMENT,
                "PEERS_DATA": str(data),
                "PEERS_EPOCHS": str(epochs),
                "PYTHONPATH": str(HERE / "peer"),
            },
        )
        self.wait("ready")

    def wait(self, word: str) -> None:
        assert self.process.stdout is not None
        for line in self.process.stdout:
            if line.strip() == word:
                return
        raise RuntimeError(f"{self.name} ended: {self.errors.read_text()[-2000:]}")

    def round(self, kind: str) -> None:
        assert self.process.stdin is not None
        self.process.stdin.write(f"{kind}\n")
        self.wait("done")

    def close(self) -> None:
        self.process.kill()
        self.process.wait()


def write_data(path: Path) -> None:
    """The samples of FedTailor's clients, for the peers."""
    experiment = fedtailor.experiment(settings(1, 0))
    federation = build(experiment.data, experiment.seed)
    arrays = {}
    for part in ("train", "test"):
        rows = np.stack([getattr(federation, part)[client] for client in range(federation.clients)])
        arrays |= {f"{part}_x": federation.samples.x[rows], f"{part}_y": federation.samples.y[rows]}
    np.savez(path, **arrays)


def version(python: Path, package: str) -> str | None:
    """The version of a peer; None if it is not installed."""
    if not python.exists():
        return None
    code = f"from importlib.metadata import version; print(version({package!r}))"
    done = subprocess.run([python, "-c", code], capture_output=True, text=True, check=False)
    return done.stdout.strip() or None


def measure(rounds: int, epochs: int) -> dict[str, Any]:
    versions = {name: version(ENVIRONMENTS / name / "bin" / "python", package) for name, package in PEERS.items()}
    ours = {"fedtailor": "fp32", **({"fedtailor bf16": "bf16"} if native_bf16() else {})}
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        write_data(folder / "data.npz")
        peers, failed = {}, {peer: "not installed" for peer, found in versions.items() if found is None}
        for peer in ("plain", *(peer for peer, found in versions.items() if found)):
            python = Path(sys.executable) if peer == "plain" else ENVIRONMENTS / peer / "bin" / "python"
            try:
                peers[peer] = Peer(peer, python, folder / "data.npz", folder, epochs)
            except RuntimeError as error:
                failed[peer] = str(error)
        turns = Turns([f"{name}, {kind}" for name in (*ours, *peers) for kind in KINDS])

        def federated(name: str, kind: str) -> None:
            made = settings(rounds, KINDS[kind])
            made["training"] |= {"precision": ours[name], "epochs": epochs}
            label = f"{name}, {kind}"
            try:
                fedtailor.run(made, folder=folder / label, callbacks=TakingTurns(turns, label)).close()
            finally:
                turns.leave(label)

        def peer_rounds(name: str, kind: str) -> None:
            label = f"{name}, {kind}"
            try:
                for _ in range(rounds):
                    turns.wait(label)
                    peers[name].round(kind)
                    turns.pass_on(label)
                    print(f"{label}: {turns.times[label][-1]:.2f} s", file=sys.stderr)
            except RuntimeError as error:  # the others continue
                failed[name] = str(error)
            finally:
                turns.leave(label)

        threads = [threading.Thread(target=federated, args=(name, kind)) for name in ours for kind in KINDS]
        threads += [threading.Thread(target=peer_rounds, args=(name, kind)) for name in peers for kind in KINDS]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        for one in peers.values():
            one.close()
    return {**table(turns.times, [*ours, *peers]), **facts(versions, failed, rounds), "epochs": epochs}


def table(times: dict[str, list[float]], names: list[str]) -> dict[str, Any]:
    """Seconds of a round, and the ratios to FedTailor in fp32; the first round warms up."""
    seconds = {
        name: {kind: statistics.median(times[f"{name}, {kind}"][1:]) for kind in KINDS}
        for name in names
        if all(len(times[f"{name}, {kind}"]) > 1 for kind in KINDS)
    }
    base = seconds["fedtailor"]
    ratios = {name: {kind: round(row[kind] / base[kind], 2) for kind in KINDS} for name, row in seconds.items()}
    return {
        "over_fedtailor": ratios,
        "seconds_per_round": {name: {k: round(v, 2) for k, v in row.items()} for name, row in seconds.items()},
    }


def facts(versions: dict[str, str | None], failed: dict[str, str], rounds: int) -> dict[str, Any]:
    return {
        "goals": {
            "fp32 over the best peer": "1.7 train, 2 evaluated",
            "plain torch over fedtailor": ">= 0.98; bf16 >= 1.3",
        },
        "versions": {name: found for name, found in versions.items() if found},
        "failed": failed,
        "rounds": rounds,
        "load_before": round(os.getloadavg()[0], 1),
        "environment": environment(),
    }


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=4, help="rounds of each, the first does not count")
    parser.add_argument("--epochs", type=int, default=EPOCHS, help="fewer only try out what is installed")
    given = parser.parse_args()
    print(json.dumps(measure(given.rounds, given.epochs), indent=2))
