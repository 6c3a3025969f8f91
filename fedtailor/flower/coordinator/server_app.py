"""The app of a run on Flower's SuperLink: it executes the coordinator's requests on Flower's grid.

``python -m fedtailor.flower.coordinator.server_app SOCKET RUN CONNECTION`` takes the SuperLink's socket, the id of the
run and the file descriptor of a connection to the coordinator.

The grid's own ``send_and_receive`` polls every three seconds; the coordinator pushes and polls faster. A reply is
identified by the message it answers, because the source in an error reply is not the node that failed.
"""

import socket
import sys
import time
from pathlib import Path
from typing import Any

from flwr.app import ConfigRecord, Message, RecordDict
from flwr.common.constant import SubStatus
from flwr.common.serde import run_from_proto
from flwr.proto.runtime_pb2 import AcquireTaskRequest, PullTaskInputRequest, PushTaskOutputRequest
from flwr.serverapp import Grid, ServerApp
from flwr.supercore.constant import TaskType
from flwr.supercore.heartbeat import HeartbeatSender, make_task_heartbeat_fn_http
from flwr.supercore.interceptors import RuntimeVersionHttpInterceptor
from flwr.supercore.runtime import RuntimeHttpClient
from flwr.supercore.task_identity import TaskIdentity
from flwr.superlink.grid import HttpGrid

from fedtailor.flower import sockets
from fedtailor.flower.protocol import FIELD, RECORD
from fedtailor.messages.frames import Closed, receive, send
from fedtailor.messages.frames import Message as FrameMessage

ADDRESS = "superlink"  # Flower's clients want one; the socket is used
MAX_REASON = 1000  # characters of the reason of a failure
POLL = 0.2  # seconds between two polls for the run

app = ServerApp()  # the app's description names it; Flower never runs it


def main(path: Path, run: int, connection: socket.socket) -> None:
    """Take up the run and execute requests until the coordinator closes the connection."""
    grid = HttpGrid(ADDRESS, insecure=True, token=_acquire(path, run))
    client = grid._runtime_client
    sockets.redirect(client, path)
    heartbeat = HeartbeatSender(make_task_heartbeat_fn_http(client))
    heartbeat.start()
    try:
        task = client.PullTaskInput(PullTaskInputRequest())
        TaskIdentity.task_id, TaskIdentity.run_id, TaskIdentity.node_id = task.task_id, run, task.context.node_id
        grid.set_run(run_from_proto(task.run))
        send(connection, {"ready": True})
        while True:
            request, blobs = receive(connection)
            send(connection, *_answer(grid, request, blobs))
    except Closed:
        heartbeat.stop()
        client.PushTaskOutput(PushTaskOutputRequest(sub_status=SubStatus.COMPLETED))


def _acquire(path: Path, run: int) -> str:
    """Wait for the task of our run, and return the token for it; tasks of other runs are left alone."""
    version = RuntimeVersionHttpInterceptor(component_name="SuperExec")
    client = RuntimeHttpClient.from_server_address(ADDRESS, True, None, [version])
    sockets.redirect(client, path)
    try:
        while True:
            found = client.AcquireTask(AcquireTaskRequest(supported_task_types=[TaskType.SERVER_APP]))
            if found.HasField("task") and found.token and found.task.run_id == run:
                token: str = found.token
                return token
            time.sleep(POLL)
    finally:
        client.close()


def _answer(grid: Grid, request: dict[str, Any], blobs: list[bytes]) -> FrameMessage:
    try:
        if request["kind"] == "nodes":
            return {"nodes": list(grid.get_node_ids())}, []
        return _push(grid, request, blobs) if request["kind"] == "push" else _pull(grid, request)
    except Exception as error:  # the coordinator decides how to handle it
        return {"failure": f"{type(error).__name__}: {error}"}, []


def _push(grid: Grid, request: dict[str, Any], blobs: list[bytes]) -> FrameMessage:
    messages = [
        Message(
            RecordDict({RECORD: ConfigRecord({FIELD: blobs[row["blob"]]})}),
            dst_node_id=row["node"],
            message_type="query",
            ttl=row["seconds"],
            group_id=row["group"],
        )
        for row in request["messages"]
    ]
    return {"ids": [str(name) for name in grid.push_messages(messages)]}, []


def _pull(grid: Grid, request: dict[str, Any]) -> FrameMessage:
    rows: list[dict[str, Any]] = []
    blobs: list[bytes] = []
    replies, unreadable = _pulled(grid, request["ids"])
    rows += [{"id": name, "code": 0, "error": "its reply cannot be read"} for name in unreadable]
    for reply in replies:
        row: dict[str, Any] = {"id": reply.metadata.reply_to_message_id}
        if reply.has_error():
            reason = (reply.error.reason or f"Flower's error {reply.error.code}")[:MAX_REASON]
            row |= {"code": reply.error.code, "error": reason}
        else:
            try:
                blob = reply.content.config_records[RECORD][FIELD]
                if not isinstance(blob, bytes):
                    raise TypeError
                blobs.append(blob)
            except (KeyError, TypeError, ValueError, AttributeError):
                row |= {"code": 0, "error": "the reply is not a FedTailor message"}
        rows.append(row)
    return {"replies": rows}, blobs


def _pulled(grid: Grid, ids: list[str]) -> tuple[list[Message], list[str]]:
    """Pull replies. One that Flower cannot read must not take the others with it: its id is returned instead."""
    try:
        return list(grid.pull_messages(ids)), []
    except Exception:
        grid.get_node_ids()  # raises if it is Flower that does not answer
    replies: list[Message] = []
    unreadable: list[str] = []
    for name in ids:
        try:
            replies += grid.pull_messages([name])
        except Exception:
            unreadable.append(name)
    return replies, unreadable


if __name__ == "__main__":
    main(Path(sys.argv[1]), int(sys.argv[2]), socket.socket(fileno=int(sys.argv[3])))
