"""Answers the messages that a SuperNode received, with the node's `client_app`.

``python -m fedtailor.flower.node.executor SOCKET PARENT`` takes the SuperNode's socket and the process to end with. It
replaces Flower's own program, which loads the code that the coordinator's app brings, in a new interpreter for each
message. This program runs the code of this installation only, and refuses the messages of any other app.
"""

import os
import sys
import time
import traceback
from pathlib import Path

from flwr.app import Error, Message
from flwr.common.constant import ErrorCode, SubStatus
from flwr.proto.runtime_pb2 import AcquireTaskRequest
from flwr.supercore.constant import TaskType
from flwr.supercore.heartbeat import HeartbeatSender, make_task_heartbeat_fn_http
from flwr.supercore.interceptors import RuntimeTokenHttpInterceptor, RuntimeVersionHttpInterceptor
from flwr.supercore.runtime import RuntimeHttpClient
from flwr.supernode.runtime.run_clientapp import pull_task_input, push_message, push_task_output

from fedtailor.flower import app, sockets
from fedtailor.flower.node.client_app import handle
from fedtailor.messages.frames import Closed

ADDRESS = "supernode"  # Flower's clients want one; the socket is used
POLL = 0.2  # seconds between two polls for a message
FOREIGN_APP = "this node runs the app of FedTailor only"


def main(path: Path, parent: int) -> None:
    """Answer one message after the other until the parent process ends."""
    waiting = _client(path, RuntimeVersionHttpInterceptor(component_name="SuperExec"))
    while os.getppid() == parent:
        found = waiting.AcquireTask(AcquireTaskRequest(supported_task_types=[TaskType.CLIENT_APP]))
        if found.HasField("task") and found.token:
            try:
                _answer(path, found.token)
            except Exception:  # Flower reports the task as failed, since its heartbeat has ended
                traceback.print_exc()
        else:
            time.sleep(POLL)


def _answer(path: Path, token: str) -> None:
    """Answer the message of one task."""
    version = RuntimeVersionHttpInterceptor(component_name="flwr-clientapp")
    client = _client(path, version, RuntimeTokenHttpInterceptor(token))
    heartbeat = HeartbeatSender(make_task_heartbeat_fn_http(client))
    heartbeat.start()
    try:
        message, context, _, received = pull_task_input(client)
        reply = _reply(message, str(context.node_config["socket"]), received.content)
        failure = reply.error.reason or "failed" if reply.has_error() else ""
        push_message(client, reply, context)
        push_task_output(client, context, SubStatus.FAILED if failure else SubStatus.COMPLETED, failure)
    finally:
        heartbeat.stop()
        client.close()


def _reply(message: Message, socket: str, received: bytes) -> Message:
    """Return the node's answer, or the reason why there is none."""
    if not app.is_ours(received):
        return Message(Error(ErrorCode.INVALID_FAB, FOREIGN_APP), reply_to=message)
    try:
        return handle(message, socket)
    except (Closed, OSError):
        return Message(Error(ErrorCode.CLIENT_APP_CRASHED, "its process has ended"), reply_to=message)
    except Exception as error:
        reason = f"{type(error).__name__}: {error}"
        return Message(Error(ErrorCode.CLIENT_APP_RAISED_EXCEPTION, reason), reply_to=message)


def _client(
    path: Path, *interceptors: RuntimeVersionHttpInterceptor | RuntimeTokenHttpInterceptor
) -> RuntimeHttpClient:
    client = RuntimeHttpClient.from_server_address(ADDRESS, True, None, interceptors)
    sockets.redirect(client, path)
    return client


if __name__ == "__main__":
    main(Path(sys.argv[1]), int(sys.argv[2]))
