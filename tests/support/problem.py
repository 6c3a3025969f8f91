"""Small problems whose federations can be followed with pencil and paper.

Two clients: client 0 has one sample with target 0, client 1 three samples with target 4, so the weights of a mean by
data size are 1/4 and 3/4 and the mean target is 3. On ``Scalar`` a full-batch step with learning rate 1/2 on
(w - a)^2 / 2 moves w half of the way to a. On ``Product``, f = h b at x = 1 from body b = 1 and head h = 2, a step with
learning rate 1/10 is b -= h r / 10, h -= b r / 10 with r = h b - a.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from fedtailor.data import Federation, Samples, Shares
from fedtailor.engines import Inline, Job
from fedtailor.learning import TrainingSettings
from fedtailor.messages.trees import unpack
from fedtailor.methods import Method, Payload, Replies, Server, find
from fedtailor.models import ModelSettings
from fedtailor.runs import Callback, Run, experiment
from fedtailor.runs.loop import RoundLoop
from fedtailor.runs.store import Store

HERE = ([0.0], [4.0, 4.0, 4.0])
W = "0.weight"  # of Scalar
BODY, HEAD = "0.weight", "1.weight"  # of Product
PRODUCT = "tests.support.problem:Product"


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


class Constant(nn.Module):
    """A network that adds an fp32 number of its own: its layer then gets fp32 inputs, also if it computes in bf16."""

    def __init__(self) -> None:
        super().__init__()
        self.last = nn.Linear(1, 1)

    def forward(self, x: Tensor) -> Tensor:
        return self.last(x + torch.ones(1, 1))  # type: ignore[no-any-return]


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


def judged(train: Sequence[Sequence[float]], val: Sequence[Sequence[float]], test: float = 2.0) -> Federation:
    """A regression at x = 1 with targets of its own for training and validation, and one test target each."""
    parts = [*train, *val, *([test] for _ in train)]
    y = np.array([value for part in parts for value in part], dtype=np.float32)[:, None]
    ends = np.cumsum([0, *(len(part) for part in parts)]).astype(np.int64)
    rows = np.arange(len(y), dtype=np.int64)
    clients = len(train)

    def shares(place: int) -> Shares:
        offsets = ends[place * clients : (place + 1) * clients + 1]
        return Shares(rows[offsets[0] : offsets[-1]], offsets - offsets[0])

    samples = Samples(np.ones((len(y), 1), np.float32), y, classes=(), official_test=np.zeros(len(y), bool))
    return Federation(samples, shares(0), shares(1), shares(2))


def model_of(run: Run) -> dict[str, Tensor]:
    data = run._store.state("server", "model")
    assert data is not None
    weights: dict[str, Tensor] = unpack(data)["value"]
    return weights


def largest_gap(one: dict[str, Tensor], other: dict[str, Tensor]) -> float:
    return max(float((one[name] - other[name]).abs().max()) for name in one)


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
    model: str = "tests.support.problem:Scalar",
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


def make(name: str, **settings: object) -> Method:
    return find(name)(**settings)


def same_end(one: Played, other: Played) -> bool:
    """Whether the server and every client's deployed model are the same to the bit."""
    return one.server(W) == other.server(W) and all(one.personal(c, W) == other.personal(c, W) for c in (0, 1))


class Listening:
    """A method whose replies are written down: ``heard[round - 1][client]``."""

    def __init__(self, name: str, **settings: object) -> None:
        heard: list[dict[int, Payload]] = []

        class Heard(find(name)):  # type: ignore[misc]
            name = ""

            def finish(self, server: Server, replies: Replies) -> Any:
                heard.append(dict(replies))
                return super().finish(server, replies)

        self.method, self.heard = Heard(**settings), heard

    def value(self, round: int, client: int, group: str = "model", name: str = W) -> float:
        return float(self.heard[round - 1][client][group][name])


def near(*values: float) -> Any:
    return pytest.approx(list(values), abs=1e-6)


def on_product(folder: Path, method: Method, **more: Any) -> Played:
    return play(folder, method, targets(*HERE), PRODUCT, **{"lr": 0.1, **more})


def ends(played: Played) -> list[float]:
    """What the server holds and what every client would deploy."""
    names = list(played.loop.server.network.names)
    deployed = [played.personal(client, name) for client in (0, 1) for name in names]
    return [float(tensor) for tensor in played.loop.server.weights.values()] + deployed


def everything(name: str, **settings: object) -> Method:
    """The method with its private part shared as well."""

    class Everything(find(name)):  # type: ignore[misc]
        name = ""
        shares = "all"

    return Everything(**settings)
