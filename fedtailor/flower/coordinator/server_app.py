"""The app that a SuperLink starts for a run: it executes the coordinator's requests on Flower's grid.

The grid's own ``send_and_receive`` polls every three seconds; the coordinator pushes and polls faster. A reply is
identified by the message it answers, because the source in an error reply is not the node that failed.
"""

import socket
from typing import Any

from flwr.app import ConfigRecord, Context, Message, RecordDict
from flwr.serverapp import Grid, ServerApp

from fedtailor.flower.protocol import FIELD, RECORD
from fedtailor.messages.frames import Closed, receive, send
from fedtailor.messages.frames import Message as FrameMessage

app = ServerApp()


@app.main()
def main(grid: Grid, context: Context) -> None:
    """Execute requests until the coordinator closes the connection."""
    with socket.socket(socket.AF_UNIX) as connection:
        connection.connect(str(context.run_config["socket"]))
        send(connection, {"token": str(context.run_config["token"])})
        while True:
            try:
                request, blobs = receive(connection)
                send(connection, *_answer(grid, request, blobs))
            except Closed:
                return


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
    for reply in grid.pull_messages(request["ids"]):
        row: dict[str, Any] = {"id": reply.metadata.reply_to_message_id}
        if reply.has_error():
            row |= {"code": reply.error.code, "error": reply.error.reason or f"Flower's error {reply.error.code}"}
        else:
            try:
                blob = reply.content.config_records[RECORD][FIELD]
                if not isinstance(blob, bytes):
                    raise TypeError
                blobs.append(blob)
            except (KeyError, TypeError):
                row |= {"code": 0, "error": "the reply is not a FedTailor message"}
        rows.append(row)
    return {"replies": rows}, blobs
