"""Small problems whose federations can be followed with pencil and paper."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from fedtailor.data import Federation, Samples, Shares
from fedtailor.engines import Inline, Job
from fedtailor.learning import TrainingSettings
from fedtailor.messages.trees import unpack
from fedtailor.methods import Method
from fedtailor.models import ModelSettings
from fedtailor.runs import Callback, experiment
from fedtailor.runs.loop import RoundLoop
from fedtailor.runs.store import Store


class Scalar(nn.Sequential):
    """f(x) = w x with w = 1 at the start: the loss of a client with target a is (w - a)^2 / 2 at x = 1."""

    def __init__(self) -> None:
        super().__init__(nn.Linear(1, 1, bias=False))
        self[0].weight.data.fill_(1.0)


class Product(nn.Sequential):
    """f(x) = h b x with body b = 1 and head h = 2 at the start."""

    def __init__(self) -> None:
        super().__init__(nn.Linear(1, 1, bias=False), nn.Linear(1, 1, bias=False))
        self[0].weight.data.fill_(1.0)
        self[1].weight.data.fill_(2.0)


class Normalised(nn.Sequential):
    """A small convolutional network with batch normalisation, for images of one channel."""

    def __init__(self, classes: int) -> None:
        super().__init__(
            nn.Conv2d(1, 4, 3, padding=1),
            nn.BatchNorm2d(4),
            nn.ReLU(),
            nn.AdaptiveAvgPool2d(2),
            nn.Flatten(),
            nn.Linear(16, classes),
        )


def targets(*clients: Sequence[float]) -> Federation:
    """A regression at x = 1: a list of targets for each client; its train targets are also its test targets."""
    train = np.array([target for client in clients for target in client], dtype=np.float32)
    y = np.concatenate([train, train])[:, None]
    samples = Samples(
        x=np.ones((len(y), 1), dtype=np.float32),
        y=y,
        classes=(),
        official_test=np.zeros(len(y), dtype=bool),
    )
    offsets = np.cumsum([0, *(len(client) for client in clients)]).astype(np.int64)
    first = np.arange(len(train), dtype=np.int64)
    nobody = Shares(np.zeros(0, dtype=np.int64), np.zeros(len(clients) + 1, dtype=np.int64))
    return Federation(samples, Shares(first, offsets), nobody, Shares(first + len(train), offsets))


@dataclass
class Played:
    """A finished run and what it left behind."""

    loop: RoundLoop
    store: Store

    def server(self, name: str) -> float:
        """A scalar of the server's model."""
        return float(self.loop.server.weights[name])

    def private(self, client: int, name: str) -> float:
        """A scalar of a client's private part."""
        data = self.store.state("client", client)
        assert data is not None
        return float(unpack(data)["private"][name])

    def state(self, client: int) -> Any:
        """What a client keeps besides the private part of its model."""
        data = self.store.state("client", client)
        assert data is not None
        return unpack(data)["state"]

    def personal(self, client: int, name: str) -> float:
        """A scalar of the model the client would deploy."""
        return float(self.loop.personal_model(client)[name])

    def loss(self, model: str, client: int, round: int) -> float:
        score = self.store.scores(model, 0, round)[client]
        return score.loss / score.samples


def play(
    folder: Path,
    method: Method,
    federation: Federation,
    model: str = "problem:Scalar",
    *,
    rounds: int = 2,
    lr: float = 0.5,
    epochs: int = 1,
    batch_size: int = 1000,
    participation: dict[str, Any] | None = None,
    devices: dict[str, Any] | None = None,
    **settings: Any,
) -> Played:
    """Run a method inline on a small problem, with full batches unless said otherwise."""
    training = TrainingSettings(lr=lr, epochs=epochs, batch_size=batch_size, loss="squared-error", **settings)
    job = Job(method, ModelSettings(name=model), training, 0, federation, counts_work=devices is not None)
    folder.mkdir()
    Store.create(folder, {})
    store = Store(folder, write=True)
    engine = Inline()
    engine.start(job)
    made = experiment({"rounds": rounds, "participation": participation or {}, "devices": devices}).model_copy(
        update={"method": method, "training": training}
    )
    loop = RoundLoop(made, job, engine, store, Callback())
    assert loop.run()
    return Played(loop, store)


def equal(one: dict[str, Tensor], other: dict[str, Tensor]) -> bool:
    return one.keys() == other.keys() and all(torch.equal(one[name], other[name]) for name in one)
