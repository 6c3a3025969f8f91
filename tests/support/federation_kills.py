"""Kill the coordinator of a real federation at random moments, serve it again, and compare with a simulation.

``python -m tests.support.federation_kills 5`` adds five kills to docs/results/kills.json. The nodes go on running. A
run in which a node was left out, or which ended before its kill, is not comparable and counts as no kill.
"""

import json
import random
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from fedtailor.runs import toml
from fedtailor.runs.store import Store
from tests.support.federation import HOST, Place, kill, outcome, place, settings, simulate
from tests.support.kills import RECORD
from tests.support.processes import free_port
from tests.support.waiting import PATIENCE, wait_until

MADE = settings("fedper", rounds=3, data={"clients": 2, "samples": 120}, evaluation={"every": 0})


def main(wanted: int) -> int:
    kills: list[dict[str, Any]] = json.loads(RECORD.read_text(encoding="utf-8")) if RECORD.exists() else []
    before = sum(one["where"] == "federation" for one in kills)
    with tempfile.TemporaryDirectory() as name, place(Path(name), MADE) as here:
        simulate(MADE, here.folder / "undisturbed").close()
        port = free_port()
        for node in here.nodes:
            here.join(node, port)
        for number in range(before, before + wanted):
            found = _one_kill(here, port, number)
            print(found, flush=True)
            kills.append({"where": "federation", "run": "fedper", **found})
            RECORD.write_text(json.dumps(kills, indent=1) + "\n", encoding="utf-8")
    return sum(not one["identical"] for one in kills)


def _one_kill(here: Place, port: int, number: int) -> dict[str, Any]:
    begin, stream, run = time.perf_counter(), random.Random(number), here.folder / f"run-{number}"
    (here.folder / f"{number}.toml").write_text(toml.dumps({**MADE.as_dict(), "name": run.name}), encoding="utf-8")

    def serve() -> "subprocess.Popen[bytes]":
        command = ("serve", f"{number}.toml", "--keys", "keys", "--host", HOST, "--port", str(port), "--out", ".")
        return here.fedtailor(*command, log="serve.log")

    first, reach = serve(), stream.randrange(3)
    wait_until(lambda: run.exists() and _rounds(run) >= reach, f"round {reach}")
    time.sleep(stream.uniform(0, 3))
    died = first.poll() is None
    kill(first)
    reached = _rounds(run)
    if died:
        assert serve().wait(PATIENCE) == 0, here.said("serve.log")
    with Store(run) as store:
        complete = store.rows("SELECT * FROM events") == []
    return {
        "phase": "coordinator, random moment",
        "killed": died and complete,
        "rounds": reached,
        "identical": outcome(run) == outcome(here.folder / "undisturbed"),
        "seconds": round(time.perf_counter() - begin, 2),
    }


def _rounds(run: Path) -> int:
    with Store(run) as store:
        return len(store.rows("SELECT round FROM rounds"))


if __name__ == "__main__":
    sys.exit(main(int(sys.argv[1])))
