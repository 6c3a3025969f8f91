"""Small federations in which all clients train at once: a round takes milliseconds.

Every client has a network with one hidden layer and as many samples as the others. The data are those of the training
data sets below; none of them is reported on with the built-in policies.
"""

import math
import random
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor

from fedtailor.data import DataSettings, build

SOURCES = ("mnist", "usps", "mnist-m", "synthetic")
POOL = 6_000  # samples taken of each source
SIDE = 10  # pixels of an image's side

Model = list[
    Tensor
]  # (clients, inputs, hidden), (clients, 1, hidden), (clients, hidden, classes), (clients, 1, classes)


def pool(source: str, seed: int = 0) -> tuple[Tensor, Tensor]:
    """Samples (samples, features) with mean 0 and deviation 1, and their labels."""
    settings: dict[str, object] = {"source": source, "clients": 1, "partition": {"kind": "iid"}}
    settings |= (
        {"synthetic": {"samples": POOL, "features": 40, "classes": 8}} if source == "synthetic" else {"samples": POOL}
    )
    federation = build(DataSettings.model_validate(settings), seed)
    kept = federation.train.indices if hasattr(federation.train, "indices") else slice(None)
    inputs = torch.as_tensor(federation.samples.x[kept]).float()
    labels = torch.as_tensor(federation.samples.y[kept]).long()
    if inputs.ndim == 4:
        inputs = F.adaptive_avg_pool2d(inputs.mean(3)[:, None], SIDE)
    inputs = inputs.flatten(1)
    return (inputs - inputs.mean()) / inputs.std(), labels


@dataclass
class Scenario:
    """A federation: who has which samples, and how they train."""

    train: tuple[Tensor, Tensor]  # (clients, samples, features), (clients, samples)
    val: tuple[Tensor, Tensor]
    held: tuple[Tensor, Tensor]  # many more samples of the same clients: rewards without noise
    hidden: int
    classes: int
    lr: float
    epochs: int
    batch: int  # what a user would have set

    @property
    def clients(self) -> int:
        return len(self.train[0])


def scenario(data: tuple[Tensor, Tensor], draws: random.Random) -> Scenario:
    """A federation with drawn numbers of clients and samples, label skew, network and training."""
    inputs, labels = data
    stream = torch.Generator().manual_seed(draws.getrandbits(31))
    classes = int(labels.max()) + 1
    clients, samples = draws.choice([4, 6, 8, 10, 14, 20]), draws.choice([30, 50, 80, 120])
    alpha = math.exp(draws.uniform(math.log(0.1), math.log(5)))
    skew = torch._sample_dirichlet(torch.full((clients, classes), alpha), stream)
    total = samples + max(8, samples // 4) + 100
    by_class = [torch.nonzero(labels == c).flatten() for c in range(classes)]
    drawn = torch.multinomial(skew, total, replacement=True, generator=stream)  # (clients, total)
    chosen = torch.zeros_like(drawn)
    for c, rows in enumerate(by_class):
        here = drawn == c
        chosen[here] = rows[torch.randint(len(rows), (int(here.sum()),), generator=stream)]
    parts = torch.split(chosen, [samples, total - samples - 100, 100], 1)
    train, val, held = ((inputs[part], labels[part]) for part in parts)
    lr = math.exp(draws.uniform(math.log(0.005), math.log(0.2)))
    return Scenario(
        train,
        val,
        held,
        draws.choice([16, 32, 64]),
        classes,
        lr,
        draws.choice([1, 2, 3, 5]),
        draws.choice([10, 16, 20, 32]),
    )


def initial(made: Scenario, draws: random.Random) -> Model:
    stream = torch.Generator().manual_seed(draws.getrandbits(31))
    sizes = [(made.train[0].shape[-1], made.hidden), (made.hidden, made.classes)]
    model: Model = []
    for inputs, outputs in sizes:
        for rows in (inputs, 1):
            model.append(torch.empty(1, rows, outputs).uniform_(-(inputs**-0.5), inputs**-0.5, generator=stream))
    return model


def logits(model: Model, inputs: Tensor) -> Tensor:
    return torch.baddbmm(model[3], torch.relu(torch.baddbmm(model[1], inputs, model[0])), model[2])


def spread_out(model: Model, clients: int) -> Model:
    return [part.expand(clients, -1, -1).contiguous() for part in model]


def trained(model: Model, made: Scenario, batch: int, epochs: int, seed: int) -> Model:
    """Plain SGD of every client from its own model, with the gradients written out."""
    model = [part.clone() for part in model]
    inputs, labels = made.train
    clients, samples = labels.shape
    batch = min(batch, samples)
    rows, stream = torch.arange(clients)[:, None], torch.Generator().manual_seed(seed)
    for _ in range(epochs):
        order = torch.rand(clients, samples, generator=stream).argsort(1)
        for first in range(0, samples, batch):
            chosen = order[:, first : first + batch]
            x, y = inputs[rows, chosen], labels[rows, chosen]
            hidden = torch.relu(torch.baddbmm(model[1], x, model[0]))
            error = torch.baddbmm(model[3], hidden, model[2]).softmax(-1)
            error.scatter_add_(2, y[..., None], torch.full((*y.shape, 1), -1.0))
            error /= y.shape[1]
            back = torch.bmm(error, model[2].transpose(1, 2)) * (hidden > 0)
            model[2].baddbmm_(hidden.transpose(1, 2), error, alpha=-made.lr)
            model[3] -= made.lr * error.sum(1, keepdim=True)
            model[0].baddbmm_(x.transpose(1, 2), back, alpha=-made.lr)
            model[1] -= made.lr * back.sum(1, keepdim=True)
    return model


def scores(model: Model, data: tuple[Tensor, Tensor]) -> tuple[Tensor, Tensor]:
    """Mean loss and accuracy of every client's model on its own data (clients,)."""
    inputs, labels = data
    out = logits(model, inputs)
    loss = F.cross_entropy(out.transpose(1, 2), labels, reduction="none").mean(1)
    return loss, (out.argmax(-1) == labels).float().mean(1)


def mean(model: Model, weights: Tensor | None = None) -> Model:
    if weights is None:
        return [part.mean(0, keepdim=True) for part in model]
    return [torch.einsum("k,kij->ij", weights, part)[None] for part in model]


def distance(model: Model, other: Model) -> Tensor:
    """The norm of the difference of every client's model from another (clients,)."""
    return sum((a - b).square().sum((1, 2)) for a, b in zip(model, other, strict=True)).sqrt()  # type: ignore[union-attr]
