"""The app that a SuperNode starts for every message: it forwards the message to the node's process."""

import socket

from flwr.app import ConfigRecord, Context, Message, RecordDict
from flwr.clientapp import ClientApp

from fedtailor.flower.protocol import FIELD, RECORD
from fedtailor.messages.frames import receive, send

app = ClientApp()


@app.query()
def handle(message: Message, context: Context) -> Message:
    """Forward a message through the node's socket and return the node's answer."""
    request = message.content.config_records[RECORD][FIELD]
    assert isinstance(request, bytes)
    with socket.socket(socket.AF_UNIX) as connection:
        connection.connect(str(context.node_config["socket"]))
        send(connection, {}, [request])
        _, (answer,) = receive(connection)
    return Message(RecordDict({RECORD: ConfigRecord({FIELD: answer})}), reply_to=message)
