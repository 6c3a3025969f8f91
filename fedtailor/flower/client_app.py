"""What a SuperNode starts for every message: it hands the message to the node's own process and its answer back."""

import socket

from flwr.app import ConfigRecord, Context, Message, RecordDict
from flwr.clientapp import ClientApp

from fedtailor.messages.frames import receive, send

RECORD, FIELD = "fedtailor", "message"

app = ClientApp()


@app.query()
def handle(message: Message, context: Context) -> Message:
    request = message.content.config_records[RECORD][FIELD]
    assert isinstance(request, bytes)
    with socket.socket(socket.AF_UNIX) as connection:
        connection.connect(str(context.node_config["socket"]))
        send(connection, {}, [request])
        _, (answer,) = receive(connection)
    return Message(RecordDict({RECORD: ConfigRecord({FIELD: answer})}), reply_to=message)
