"""`fedtailor serve` or `join` that kills itself, and all that it started, at a chosen event.

``python -m tests.support.dying serve ...`` dies with SIGKILL at event number $DIE_AT, counted from 0, as if its machine
had lost its power. Without $DIE_AT it lives. $EVENTS is a file that gets the name of every event, one in a line.
"""

import os
import signal
import sys
from collections.abc import Callable
from typing import Any

from tests.support.processes import descendants

Event = Callable[[str], None]


def main() -> int:
    from fedtailor.__main__ import main as fedtailor

    (watch_coordinator if sys.argv[1] == "serve" else watch_node)(event)
    return fedtailor()


def event(name: str) -> None:
    """Write the event to the log, or die."""
    global _left
    if _left == 0:
        for process in [*descendants(os.getpid()), os.getpid()]:
            os.kill(process, signal.SIGKILL)
    _left -= 1
    with open(os.environ["EVENTS"], "a", encoding="utf-8") as log:
        log.write(name + "\n")


def watch_coordinator(event: Event) -> None:
    from fedtailor.flower.coordinator.engine import FlowerEngine
    from fedtailor.flower.coordinator.nodes import Nodes
    from fedtailor.runs.store import Store

    tell(Nodes, "gather", lambda *_: "nodes gathered", event)
    tell(FlowerEngine, "_send", lambda *_: "tasks sent", event)
    tell(FlowerEngine, "_results", lambda *_: "answer received", event)
    tell(FlowerEngine, "end_run", lambda *_: "end of the run", event)
    tell(Store, "insert", lambda table, *_: f"write to {table}", event)
    tell(Store, "set_scores", lambda *_: "write to scores", event)
    tell(Store, "set_state", lambda scope, *_: f"write to state of {scope.split()[0]}", event)


def watch_node(event: Event) -> None:
    from fedtailor.engines.worker import Worker
    from fedtailor.flower.node.node import Node
    from fedtailor.flower.node.states import StateStore

    tell(Node, "_describe", lambda *_: "description", event)
    tell(Node, "_worker_for", lambda *_: "task received", event)
    tell(Worker, "_train", lambda *_: "training", event)
    tell(Worker, "_test", lambda *_: "evaluation", event)
    tell(StateStore, "save", lambda *_: "state written", event)
    tell(Node, "_execute_all", lambda *_: "answer ready", event)
    tell(Node, "_keep_model", lambda *_: "final pass", event)
    tell(Node, "_finish", lambda *_: "end of the run", event)


def tell(owner: type, name: str, named: Callable[..., str], event: Event) -> None:
    """Report every call of a function when it has done its work but its caller does not know yet."""
    original = getattr(owner, name)

    def wrapped(self: Any, *arguments: Any, **more: Any) -> Any:
        result = original(self, *arguments, **more)
        event(named(*arguments))
        return result

    setattr(owner, name, wrapped)


_left = int(os.environ.get("DIE_AT", "-1"))

if __name__ == "__main__":
    sys.exit(main())
