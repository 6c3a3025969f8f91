"""A program that runs or resumes an experiment and can kill itself at a chosen event.

``python killable.py FOLDER ENGINE DIE_AT [devices | sizes | grown | bf16 | together]``: events are writes to the
database and batches of tasks; the DIE_AT-th kills the process with SIGKILL in the middle of it; 0 never. Prints "going"
when rounds begin, and "task" whenever a task is done.
"""

import os
import signal
import sys
from pathlib import Path
from typing import Any

import fedtailor
from fedtailor.runs import Callback
from fedtailor.runs.store import Store
from fedtailor.runs.tasks import Tasks

EXPERIMENT: dict[str, Any] = {
    "rounds": 40,
    "data": {"source": "digits", "clients": 8, "samples": 300},
    "training": {"lr": 0.05, "epochs": 1, "momentum": 0.5},
    "participation": {"ratio": 0.5, "dropout": 0.1},
    "method": {"name": "fedper"},
}

CHANGES: dict[str, dict[str, Any]] = {
    "": {},
    "devices": {
        "devices": {"deadline": 0.2, "speed": 0.01, "failure": 0.1, "availability": {"kind": "daily", "day": 2.0}},
    },
    "sizes": {  # models of two sizes, two agents that learn, running statistics that stay with the clients
        "rounds": 12,
        "validation": True,
        "model": {"name": "linear", "running_statistics": "local"},
        "devices": {"speed": 0.001, "profiles": {"kind": "uniform", "spread": 10}},
        "method": {
            "name": "hapfl",
            "sizes": ["linear", {"name": "mlp", "arguments": {"hidden": 80}}],
            "agents": {"size": {"buffer": 3}, "intensity": {"buffer": 3}},
        },
    },
}
CHANGES["grown"] = {  # from a run beside the folder, with states of earlier rounds and a best round
    "rounds": 12,
    "start": "source",
    "checkpoints": {"every": 2, "keep": 2},
    "stopping": {"patience": 3, "min_rounds": 8},
}
CHANGES["together"] = {  # states of clients that train in one stack
    "model": {"name": "mlp", "arguments": {"hidden": 12}},
    "training": {**EXPERIMENT["training"], "together": "on"},
}
CHANGES["bf16"] = {**CHANGES["sizes"], "training": {**EXPERIMENT["training"], "precision": "bf16"}}


class Going(Callback):
    def begin(self, name: str, rounds: int, done: int) -> None:
        print("going", flush=True)

    def task_done(self, done: int, total: int) -> None:
        print("task", flush=True)


def die_at(count: int) -> None:
    left = count

    def event() -> None:
        nonlocal left
        left -= 1
        if left == 0:
            os.kill(os.getpid(), signal.SIGKILL)

    for owner, name in ((Store, "insert"), (Store, "set_state"), (Tasks, "execute")):
        original = getattr(owner, name)

        def wrapped(*args: Any, _original: Any = original, **more: Any) -> Any:
            result = _original(*args, **more)
            event()
            return result

        setattr(owner, name, wrapped)


def main(folder: Path, engine: str, count: int, change: str = "") -> None:
    if count:
        die_at(count)
    where = {"kind": engine, **({"workers": 2} if engine == "processes" else {})}
    if folder.exists():
        fedtailor.resume(folder, engine=where, callbacks=Going()).close()
    else:
        values = {**EXPERIMENT, **CHANGES[change], "engine": where}
        if "start" in values:
            values["start"] = str(folder.parent / values["start"])
        fedtailor.run(values, folder=folder, callbacks=Going()).close()


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2], int(sys.argv[3]), *sys.argv[4:])
