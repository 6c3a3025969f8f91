"""The main program of a worker process: ``python -m fedtailor.engines.process_worker SOCKET WRITTEN READ``."""

import signal
import socket
import sys

from fedtailor.engines.codec import TaskReceiver, result_message
from fedtailor.engines.shared_memory import Channel, receive_job
from fedtailor.engines.worker import Worker
from fedtailor.errors import UserError
from fedtailor.messages.frames import Closed, send


def main(channel: Channel) -> None:
    """Execute jobs and tasks until the coordinator closes the connection."""
    connection = channel.connection
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the coordinator decides when a run ends
    worker: Worker | None = None
    receiver = TaskReceiver()
    while True:
        header, blobs = channel.receive()
        if header["kind"] == "job":
            try:
                worker = Worker(receive_job(connection, header, blobs, worker.job.federation if worker else None))
                send(connection, {"kind": "ready"})
            except UserError as refusal:
                send(connection, {"kind": "ready", "refusal": str(refusal)})
        else:
            assert worker is not None, "a job comes first"
            channel.send(*result_message(worker.execute_all(receiver.tasks(header, blobs))))


if __name__ == "__main__":
    try:
        connected, written, read = map(int, sys.argv[1:])
        main(Channel(socket.socket(fileno=connected), written, read))
    except Closed:
        sys.exit(0)
