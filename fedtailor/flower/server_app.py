"""What a SuperLink starts for a run: it does with the grid what the coordinator's process asks for.

The grid's own ``send_and_receive`` sleeps for three seconds between two looks; here messages are pushed and polled.
Replies are told apart by the message they answer: the source that an error names is not the node that failed.
"""

import socket
from typing import Any

from flwr.app import ConfigRecord, Context, Message, RecordDict
from flwr.serverapp import Grid, ServerApp

from fedtailor.flower.client_app import FIELD, RECORD
from fedtailor.messages.frames import Closed, receive, send

app = ServerApp()


@app.main()
def main(grid: Grid, context: Context) -> None:
    """Serve the coordinator until it is gone."""
    with socket.socket(socket.AF_UNIX) as connection:
        connection.connect(str(context.run_config["socket"]))
        send(connection, {"token": str(context.run_config["token"])})
        while True:
            try:
                request, blobs = receive(connection)
                send(connection, *_answer(grid, request, blobs))
            except Closed:
                return


def _answer(grid: Grid, request: dict[str, Any], blobs: list[bytes]) -> tuple[dict[str, Any], list[bytes]]:
    try:
        if request["kind"] == "nodes":
            return {"nodes": list(grid.get_node_ids())}, []
        return _push(grid, request, blobs) if request["kind"] == "push" else _pull(grid, request)
    except Exception as error:  # the coordinator decides what to do about it
        return {"failure": f"{type(error).__name__}: {error}"}, []


def _push(grid: Grid, request: dict[str, Any], blobs: list[bytes]) -> tuple[dict[str, Any], list[bytes]]:
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


def _pull(grid: Grid, request: dict[str, Any]) -> tuple[dict[str, Any], list[bytes]]:
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
                row |= {"code": 0, "error": "the answer is not one of FedTailor's"}
        rows.append(row)
    return {"replies": rows}, blobs
