"""A run put together: what its server and its clients know of the federation."""

from dataclasses import replace
from pathlib import Path

import pytest

import fedtailor
from fedtailor.methods import Client, Method, Payload, Replies, Server
from tests.support.problem import targets


class Roll(Method):
    """Clients answer with the letters of their names; the server compares them with its own."""

    def upload(self, client: Client) -> Payload:
        reply = super().upload(client)
        return Payload(reply.groups, {**reply.numbers, "letters": [ord(letter) for letter in client.name]})

    def finish(self, server: Server, replies: Replies) -> None:
        super().finish(server, replies)
        called = {k: "".join(chr(int(code)) for code in reply.several("letters")) for k, reply in replies.items()}
        server.state["names"] = {"clients": called, "server": list(server.names)}


@pytest.mark.parametrize("labels", [(), ("north", "south")])
def test_server_and_clients_have_the_names_of_the_federation(labels: tuple[str, ...], tmp_path: Path) -> None:
    federation = replace(targets([0.0], [4.0, 4.0, 4.0]), labels=labels)
    settings = fedtailor.experiment(
        {
            "rounds": 1,
            "model": {"name": "tests.support.problem:Scalar"},
            "training": {"loss": "squared-error"},
            "engine": {"kind": "inline"},
        }
    )
    settings = settings.model_copy(update={"method": Roll()})
    with fedtailor.run(settings, folder=tmp_path / "run", federation=federation) as done:
        names = done.server_state()["names"]
    assert federation.names == (labels or ("client-0", "client-1"))
    assert names == {"clients": dict(enumerate(federation.names)), "server": list(federation.names)}
