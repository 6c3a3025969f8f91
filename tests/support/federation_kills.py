"""Kill the coordinator or a node of a real federation in every phase, start it again, and compare with a simulation.

``python -m tests.support.federation_kills 5`` adds five kills of the coordinator to docs/results/kills.json, and
``python -m tests.support.federation_kills 5 node`` five kills of a node. All other programs stay up. The phases come in
turn (`dying.py`); where a phase happens several times, one of these moments is drawn. The result must be that of a
simulation which nothing disturbed. If a node was left out of a round, the events name it, and the result must be that
of a simulation in which this client was absent.
"""

import fcntl
import json
import os
import random
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from fedtailor.runs import toml
from fedtailor.runs.store import Store
from tests.support.federation import HOST, Place, end, outcome, place, settings, simulate
from tests.support.kills import RECORD
from tests.support.processes import free_port
from tests.support.waiting import PATIENCE

MADE = settings("fedper", rounds=3, data={"clients": 2, "samples": 120}, evaluation={"every": 2})
VICTIM = "client-1"
ROOT = Path(__file__).parents[2]


def main(wanted: int, who: str = "coordinator") -> int:
    before = sum(kill["phase"].startswith(who) for kill in _recorded())
    wrong = 0
    with tempfile.TemporaryDirectory() as name, place(Path(name), MADE) as here:
        simulate(MADE, here.folder / "undisturbed").close()
        kills = Kills(here, free_port())
        phases = kills.phases(who)
        names = sorted(set(phases))
        for number in range(before, before + wanted):
            phase = names[number % len(names)]
            at = random.Random(number).choice([index for index, name in enumerate(phases) if name == phase])
            found = {"where": "federation", "run": "fedper", "phase": f"{who}: {phase}", **kills.one(number, who, at)}
            print(found, flush=True)
            _record(found)
            wrong += not (found["identical"] or found["as absent"])
    return wrong


class Kills:
    """Two nodes, the second of which is started again for every kill."""

    def __init__(self, here: Place, port: int):
        self.here, self.port = here, port
        here.join(here.nodes[0], port)
        self.victim: subprocess.Popen[bytes] | None = None

    def phases(self, who: str) -> list[str]:
        """The events of a federation without a kill, in their order."""
        self._join()
        assert self._serve("plain", EVENTS="coordinator.events").wait(PATIENCE) == 0, self.here.said("serve.log")
        return self.here.said(f"{who}.events").splitlines()

    def one(self, number: int, who: str, at: int) -> dict[str, Any]:
        begin, run = time.perf_counter(), self.here.folder / f"{who}-{number}"
        if who == "node":
            self._join(DIE_AT=str(at))
        serving = self._serve(run.name, **({} if who == "node" else {"DIE_AT": str(at)}))
        dying = serving if who == "coordinator" else self.victim
        assert dying is not None
        died, reached = dying.wait(PATIENCE) == -9, _rounds(run)
        if who == "node":
            self._join()
        elif not _finished(run):
            serving = self._serve(run.name)
        if serving is not dying:
            assert serving.wait(PATIENCE) == 0, self.here.said("serve.log")
        with Store(run) as store:
            missed = store.rows("SELECT round, client, detail FROM events WHERE kind <> 'final' ORDER BY id")
        return {
            "killed": died,
            "rounds": reached,
            "identical": outcome(run) == outcome(self.here.folder / "undisturbed"),
            "as absent": bool(missed) and self._as_absent(run, [(row["round"], row["client"]) for row in missed]),
            "events": [row["detail"] for row in missed],
            "seconds": round(time.perf_counter() - begin, 2),
        }

    def _join(self, **more: str) -> None:
        if self.victim is not None:
            end(self.victim)
        environment = {"EVENTS": "node.events", **more}
        self.victim = self.here.join(VICTIM, self.port, program="tests.support.dying", **self._paths(), **environment)

    def _serve(self, name: str, **more: str) -> "subprocess.Popen[bytes]":
        file = self.here.folder / f"{name}.toml"
        file.write_text(toml.dumps({**MADE.as_dict(), "name": name}), encoding="utf-8")
        command = ("serve", file.name, "--keys", "keys", "--host", HOST, "--port", str(self.port), "--out", ".")
        environment = {"EVENTS": os.devnull, **more, **self._paths()}
        return self.here.fedtailor(*command, log="serve.log", program="tests.support.dying", **environment)

    def _paths(self) -> dict[str, str]:
        return {"PYTHONPATH": os.pathsep.join([str(ROOT), os.environ.get("PYTHONPATH", "")])}

    def _as_absent(self, run: Path, missed: list[tuple[int, int]]) -> bool:
        """Whether the server ends as that of a simulation in which clients were absent in these rounds."""
        participation = MADE.participation.model_copy(update={"absent": tuple(missed)})
        replayed = run.with_name(f"{run.name}-replayed")
        simulate(MADE.model_copy(update={"participation": participation}), replayed).close()
        return outcome(run)["state"] == outcome(replayed)["state"]


def _rounds(run: Path) -> int:
    if not run.exists():
        return 0
    with Store(run) as store:
        return len(store.rows("SELECT round FROM rounds"))


def _finished(run: Path) -> bool:
    if not run.exists():
        return False
    with Store(run) as store:
        return bool(store.meta("finished"))


def _recorded() -> list[dict[str, Any]]:
    kills: list[dict[str, Any]] = json.loads(RECORD.read_text(encoding="utf-8")) if RECORD.exists() else []
    return [kill for kill in kills if kill["where"] == "federation"]


def _record(kill: dict[str, Any]) -> None:
    """Add a kill to the record, which other programs add to as well."""
    with RECORD.open("r+", encoding="utf-8") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        kills = [*json.load(file), kill]
        file.seek(0)
        file.truncate()
        file.write(json.dumps(kills, indent=1) + "\n")


if __name__ == "__main__":
    sys.exit(main(int(sys.argv[1]), *sys.argv[2:]))
