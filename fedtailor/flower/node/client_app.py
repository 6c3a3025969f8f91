"""The app of a node: it forwards a message to the node's process."""

import socket

from flwr.app import ConfigRecord, Message, RecordDict
from flwr.clientapp import ClientApp

from fedtailor.flower.protocol import FIELD, RECORD
from fedtailor.messages.frames import receive, send

app = ClientApp()  # the app's description names it; Flower never runs it


def handle(message: Message, path: str) -> Message:
    """Forward a message through the node's socket at ``path`` and return the node's answer."""
    request = message.content.config_records[RECORD][FIELD]
    assert isinstance(request, bytes)
    with socket.socket(socket.AF_UNIX) as connection:
        connection.connect(path)
        send(connection, {}, [request])
        _, (answer,) = receive(connection)
    return Message(RecordDict({RECORD: ConfigRecord({FIELD: answer})}), reply_to=message)
