"""Runs a node's `client_app` without a new Python interpreter for every message.

``python -m fedtailor.flower.node.executor ADDRESS SECRET_FILE PARENT`` takes the address of the SuperNode's runtime on
this machine, the file with its secret, and the process to end with. It replaces Flower's own program, which imports
everything again for each message (about two seconds of a core). This program imports once and forks for each message.
"""

import os
import sys
import time
from contextlib import suppress
from pathlib import Path

from flwr.proto.runtime_pb2 import AcquireTaskRequest
from flwr.supercore.constant import TaskType
from flwr.supercore.interceptors import RuntimeVersionHttpInterceptor, SuperExecAuthHttpInterceptor
from flwr.supercore.runtime import RuntimeHttpClient
from flwr.supernode.runtime.run_clientapp import run_clientapp

import fedtailor.flower.node.client_app  # noqa: F401  # imported once, for the forks

ACQUIRE = "/flwr.proto.Runtime/AcquireTask"
POLL = 0.2  # seconds between two polls for a message


def main(address: str, secret: bytes, parent: int) -> None:
    """Fork for each message until the parent process ends."""
    client = RuntimeHttpClient.from_server_address(
        server_address=address,
        insecure=True,
        root_certificates=None,
        interceptors=[
            RuntimeVersionHttpInterceptor(component_name="SuperExec"),
            SuperExecAuthHttpInterceptor(master_secret=secret, protected_methods=[ACQUIRE]),
        ],
    )
    while os.getppid() == parent:
        answer = client.AcquireTask(AcquireTaskRequest(supported_task_types=[TaskType.CLIENT_APP]))
        if answer.HasField("task") and answer.token and os.fork() == 0:
            try:
                run_clientapp(address, answer.token, insecure=True, parent_pid=os.getppid())
            finally:
                os._exit(0)  # skips clean-up, which belongs to the parent
        with suppress(ChildProcessError):
            while os.waitpid(-1, os.WNOHANG)[0]:
                pass
        time.sleep(POLL)


if __name__ == "__main__":
    main(sys.argv[1], Path(sys.argv[2]).read_bytes(), int(sys.argv[3]))
