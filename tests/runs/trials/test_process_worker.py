"""The worker process of a search."""

import os
import signal
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from fedtailor.data import build
from fedtailor.engines.shared_memory import SharedFederation
from fedtailor.messages.frames import send
from fedtailor.runs import experiment
from tests.support.waiting import PATIENCE, wait_until


@pytest.mark.parametrize("sent", [signal.SIGINT, signal.SIGTERM], ids=str)
def test_ctrl_c_ends_the_worker_of_a_search_without_output(sent: signal.Signals, tmp_path: Path) -> None:
    """Ctrl-C in a terminal, and the end of a container, reach all processes: only the search says something."""
    method = {"name": "tests.support.holding:Holding"}
    settings = experiment({"rounds": 3, "data": {"clients": 4, "samples": 200}, "method": method})
    hold, held = tmp_path / "hold-1", tmp_path / "holding"
    hold.touch()
    ours, theirs = socket.socketpair()
    program = [sys.executable, "-m", "fedtailor.runs.trials.process_worker", str(theirs.fileno())]
    environment = {**os.environ, "HOLD": str(tmp_path), "PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
    with (
        ours,
        theirs,
        subprocess.Popen(program, pass_fds=[theirs.fileno()], env=environment, stderr=subprocess.PIPE) as worker,
    ):
        try:
            shared = SharedFederation(build(settings.data, settings.seed))
            header = {"settings": settings.as_dict(), "key": "one", "until": 3, "folder": str(tmp_path / "one")}
            send(ours, {**header, "federation": shared.outline})
            socket.send_fds(ours, [b"f"], [shared.file])
            wait_until(lambda: held.exists() or worker.poll() is not None, "a round in which the training waits")
            worker.send_signal(sent)
            size = held.stat().st_size
            wait_until(lambda: held.stat().st_size >= size + 2, "the signal has been handled")
            hold.unlink()
            _, said = worker.communicate(timeout=PATIENCE)
            shared.close()
        finally:
            worker.kill()
    assert (worker.returncode, said) == (0, b"")
