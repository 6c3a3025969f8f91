"""The main program of a worker process of a search: ``python -m fedtailor.runs.trials.process_worker SOCKET``."""

import signal
import socket
import sys
from pathlib import Path
from typing import Any

from fedtailor.data import Federation
from fedtailor.engines.shared_memory import SharedFederation
from fedtailor.errors import UserError
from fedtailor.messages.frames import Closed, receive, send
from fedtailor.runs.episodes import Interrupted
from fedtailor.runs.resources import Resources
from fedtailor.runs.settings import experiment
from fedtailor.runs.trials.trial import Trial, carry_out


def main(connection: socket.socket) -> None:
    """Carry out trials until the search closes the connection."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the search decides when it ends
    federation: Federation | None = None
    while True:
        header, _ = receive(connection)
        if header["federation"] is not None:
            _, files, _, _ = socket.recv_fds(connection, 1, 1)
            federation = SharedFederation.attach(files[0], header["federation"])
        assert federation is not None, "the first trial comes with a federation"
        send(connection, _answer(connection, header, federation))


def _answer(connection: socket.socket, header: dict[str, Any], federation: Federation) -> dict[str, Any]:
    try:
        trial = Trial(header["key"], experiment(header["settings"]), header["until"])
        with Resources(federation) as resources:
            message = {"kind": "round"}
            reading = carry_out(trial, Path(header["folder"]), resources, lambda: send(connection, message))
    except UserError as error:
        return {"kind": "error", "sentence": str(error), "details": getattr(error, "details", "")}
    return {"kind": "reading", "reading": reading.as_dict()}


if __name__ == "__main__":
    try:
        main(socket.socket(fileno=int(sys.argv[1])))
    except (Closed, Interrupted):  # a signal to all processes of the search ends a trial, too: the search says so
        sys.exit(0)
