from collections.abc import Mapping
from typing import ClassVar

from fedtailor.messages.payload import Payload
from fedtailor.methods.hapfl import HAPFL
from fedtailor.models import TRAINING, Network
from fedtailor.parties import Client, Replies, Schema, Server


class HAPFLRehearsal(HAPFL):
    """HAPFL without models: its rewards depend only on the clock, so models are neither sent nor trained."""

    rehearses: ClassVar = HAPFL

    def start_server(self, server: Server) -> None:
        super().start_server(server)
        server.state["hapfl"].sizes = {}

    def receive(self, client: Client, payload: Payload) -> None:
        return

    def fit(self, client: Client) -> None:
        payload = client.payload
        client.spend(TRAINING * payload.number("flops") * client.samples * payload.config["epochs"])

    def upload(self, client: Client) -> Payload:
        return Payload()

    def reply_schema(self, network: Network, shared: frozenset[str]) -> Schema:
        return Schema()

    def _payload(self, server: Server, size: str, epochs: int) -> Payload:
        numbers = {"flops": server.state["hapfl"].flops[size]}
        return Payload(numbers=numbers, config={"size": size, "epochs": epochs})

    def _aggregate(self, server: Server, replies: Replies, sizes: Mapping[int, str]) -> None:
        return
