"""A search that kills itself: ``python -m tests.support.dying_search MODULE FOLDER EVENT``.

It calls ``MODULE.search(FOLDER)`` and dies with SIGKILL at an event, counted from 1. An event is the storing of a
state, in the middle of a round, or of a reading, of which half a line is written before.
"""

import os
import signal
import sys
from collections.abc import Callable
from importlib import import_module
from pathlib import Path
from typing import Any

from fedtailor.runs.store import Store
from fedtailor.runs.trials.records import Records

ROOT = Path(__file__).parents[2]


def killed(module: str, folder: Path, event: int) -> bool:
    """Run a search in another process until it kills itself; whether it did."""
    import subprocess

    command = [sys.executable, "-m", __name__, module, str(folder), str(event)]
    done = subprocess.run(command, env={**os.environ, "PYTHONPATH": str(ROOT)}, cwd=ROOT, check=False)
    return done.returncode == -signal.SIGKILL


def main(module: str, folder: str, event: str) -> None:
    left = int(event)

    def dying(original: Callable[..., Any]) -> Callable[..., Any]:
        def wrapped(*args: Any, **more: Any) -> Any:
            nonlocal left
            left -= 1
            if left == 0:
                if original.__name__ == "add":  # in the middle of a line
                    with args[0].path.open("ab") as file:
                        file.write(b'{"trial": "half')
                os.kill(os.getpid(), signal.SIGKILL)
            return original(*args, **more)

        return wrapped

    Records.add, Store.set_state = dying(Records.add), dying(Store.set_state)  # type: ignore[method-assign]
    import_module(module).search(Path(folder))


if __name__ == "__main__":
    main(*sys.argv[1:])
