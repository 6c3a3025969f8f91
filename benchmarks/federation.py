"""What a round of a real federation costs besides training, over that of plain Flower, measured in one run.

Four nodes on this machine, a network of about a million parameters, FedAvg, one epoch on 75 digits each (a fraction
of a second). ``plain`` is Flower as its examples use it: its FedAvg strategy, an app that imports torch, builds the
network and loads the data for every message; without TLS. ``ours`` is ``fedtailor serve`` and ``fedtailor join``, with
TLS and keys. Both are given in seconds a round, median, the first round apart.
Example: ``python benchmarks/federation.py``. Prints one JSON document.
"""

import argparse
import json
import socket
import sys
import tempfile
import time
from itertools import pairwise
from pathlib import Path
from statistics import median
from typing import Any

from fedtailor.data.folder import write_clients
from fedtailor.flower import keys, programs
from fedtailor.flower.coordinator.link import Link
from fedtailor.flower.coordinator.serving import serve_on
from fedtailor.runs import Resources, experiment
from fedtailor.runs.callbacks import Callback, RoundReport
from fedtailor.runs.environment import environment

HERE = Path(__file__).parent
NODES = 4


class Times(Callback):
    def __init__(self) -> None:
        self.ends: list[float] = []

    def begin(self, name: str, rounds: int, done: int) -> None:
        self.ends.append(time.monotonic())

    def round_done(self, report: RoundReport) -> None:
        self.ends.append(time.monotonic())


def settings(rounds: int) -> Any:
    return experiment(
        {
            "name": "overhead",
            "rounds": rounds,
            "data": {"source": "digits", "clients": NODES, "samples": 400, "partition": "iid"},
            "model": {"name": "mlp", "arguments": {"hidden": [900, 1020]}},
            "training": {"epochs": 1, "batch_size": 16},
            "evaluation": {"every": 0, "final": False},
        }
    )


def ours(folder: Path, rounds: int) -> list[float]:
    made = settings(rounds)
    keys.init(folder / "keys", ["127.0.0.1"], [f"client-{n}" for n in range(NODES)])
    started = []
    callbacks = Times()
    with Link("127.0.0.1", 0, keys.ServerKeys(folder / "keys"), 2**28) as link:
        try:
            for n in range(NODES):
                command = [sys.executable, "-m", "fedtailor", "join", "--coordinator", f"127.0.0.1:{link.port}"]
                command += ["--keys", str(folder / "keys" / "nodes" / f"client-{n}")]
                command += [
                    "--data",
                    str(folder / "clients" / f"client-{n}.npz"),
                    "--state",
                    str(folder / f"state-{n}"),
                ]
                started.append(programs.Program("a node", command, folder, folder / f"ours-{n}.log"))
            serve_on(link, made, folder / "run", callbacks)
        finally:
            for program in started:
                program.stop()
    return callbacks.ends


def plain(folder: Path, rounds: int) -> list[float]:
    port, times = free_port(), folder / "times.json"
    home = folder / "flower"
    home.mkdir()
    (home / "config.toml").write_text(
        f'[superlink]\ndefault = "here"\n[superlink.here]\naddress = "127.0.0.1:{port}"\ninsecure = true\n'
    )
    started = []
    try:
        link = ["flower-superlink", "--insecure", "--host", "127.0.0.1", "--port", str(port)]
        started.append(programs.Program("SuperLink", link, home, folder / "superlink.log"))
        wait_for_port(port)
        for n in range(NODES):
            node = ["flower-supernode", "--insecure", "--superlink", f"127.0.0.1:{port}", "--host", "127.0.0.1"]
            node += ["--port", str(free_port())]
            node += ["--node-config", f'data="{folder / "clients" / f"client-{n}.npz"}"']
            started.append(programs.Program("SuperNode", node, home, folder / f"plain-{n}.log"))
        run = ["flwr", "run", str(HERE / "plain_flower"), "here", "--run-config", f'rounds={rounds} times="{times}"']
        started.append(programs.Program("flwr run", run, home, folder / "run.log"))
        end = time.monotonic() + 600
        while not times.exists():
            if time.monotonic() > end:
                raise RuntimeError(f"plain Flower did not finish: {started[0].last_lines()} {started[-1].last_lines()}")
            time.sleep(0.5)
    finally:
        for program in reversed(started):
            program.stop()
    found: list[float] = json.loads(times.read_text())
    return found


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as probe:
        port: int = probe.getsockname()[1]
        return port


def wait_for_port(port: int, seconds: float = 60.0) -> None:
    end = time.monotonic() + seconds
    while True:
        try:
            socket.create_connection(("127.0.0.1", port), 1).close()
            return
        except OSError:
            if time.monotonic() > end:
                raise
            time.sleep(0.1)


def lengths(ends: list[float]) -> list[float]:
    return [round(later - sooner, 2) for sooner, later in pairwise(ends)]


def main(rounds: int) -> dict[str, Any]:
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        write_clients(Resources().federation(settings(rounds)), folder / "clients")
        found = {"plain": lengths(plain(folder, rounds)), "ours": lengths(ours(folder, rounds))}
    seconds = {which: median(times[1:]) for which, times in found.items()}
    return {
        "goal": "ratio <= 0.6",
        "ratio": round(seconds["ours"] / seconds["plain"], 2),
        "seconds_a_round": seconds,
        "rounds": found,
        "nodes": NODES,
        "environment": environment(),
    }


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=6)
    print(json.dumps(main(parser.parse_args().rounds), indent=2))
