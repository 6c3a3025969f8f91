"""What tests of methods share whose server keeps something of every client."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import torch

import fedtailor
from fedtailor.data import Federation
from fedtailor.learning import TrainingSettings
from fedtailor.learning.tensors import inputs_of
from fedtailor.messages.trees import pack, plain, unpack
from fedtailor.methods import Memory, Method, Moment, Server
from fedtailor.models import ModelSettings, build
from fedtailor.weights import Weights
from tests.support.problem import Played, W


def kept(played: Played, client: int, name: str = W) -> float:
    """A scalar of the model that the server keeps of a client."""
    return float(played.loop.server.memory.peek(client)["model"][name])


def state(played: Played, client: int) -> dict[str, Any]:
    data = played.store.state("client", client)
    assert data is not None
    return dict(plain(unpack(data)["state"]))


def personal(played: Played, name: str = W) -> list[float]:
    return [played.personal(client, name) for client in range(played.loop.made.clients)]


def server_of(method: Method, federation: Federation, rows: dict[int, dict[str, Any]], **more: Any) -> Server:
    """A server with these rows in its memory; ``server.read`` lists the rows that were fetched."""
    settings = ModelSettings(name=more.pop("model", "tests.support.problem:Scalar"))
    network = build(settings, inputs_of(federation.samples), 0)
    read: list[int] = []

    def fetch(client: int) -> bytes:
        read.append(client)
        return pack(rows[client])

    sizes = tuple(int(size) for size in federation.train.sizes)
    moment = Moment(0, round=more.pop("round", 2), rounds=10)
    memory = Memory(fetch, set(rows))
    server = Server(network, sizes, TrainingSettings(), moment, method.shared(network), memory, **more)
    method.start_server(server)
    server.read = read  # type: ignore[attr-defined]
    return server


def scalar(value: float, name: str = W) -> Weights:
    return {name: torch.tensor([[value]])}


def digits(method: Method, folder: Path, rounds: int = 3, **more: Any) -> fedtailor.Run:
    """A small run on real data with partial participation and drop-outs."""
    settings = {
        "rounds": rounds,
        "data": {"source": "digits", "clients": 6, "samples": 300, "partition": {"kind": "dirichlet", "alpha": 0.3}},
        "model": {"name": "mlp", "arguments": {"hidden": [16]}},
        "training": {"lr": 0.05, "momentum": 0.5, "batch_size": 16},
        "participation": {"ratio": 0.6, "dropout": 0.2},
        "engine": {"kind": "inline"},
        **more,
    }
    experiment = fedtailor.experiment({**settings, "method": {"name": "fedavg"}})
    return fedtailor.run(experiment.model_copy(update={"method": method}), folder=folder)


def scores(run: fedtailor.Run, model: str) -> list[tuple[int, int, float]]:
    query = "SELECT client, correct, loss FROM scores WHERE model = ? ORDER BY round, client"
    return [tuple(row.values()) for row in run._store.rows(query, [model])]


def with_validation(federation: Federation) -> Federation:
    """Clients that validate on their training targets."""
    return replace(federation, val=federation.train)
