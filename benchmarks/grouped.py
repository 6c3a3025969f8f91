"""How much faster clients train together than one after the other, as ratios of processor time in one run.

A line per network and batch size: ``together`` is the time of `train` for every client over that of `train_together`
for all of them, for as many clients as a stack holds (at most ten); ``two`` is the same for two; ``rule`` says whether
``training.together = "auto"`` trains such clients together. The last lines are tiny CNNs in `torch.func.vmap`, which
FedTailor does not use.

One process with one thread and the environment of a worker; the measured functions take turns, so that whatever else
the machine does hits all of them; medians are compared. Example: ``python benchmarks/grouped.py``. Prints one JSON
document.
"""

from collections.abc import Callable
from typing import Any

import torch
from precision import command, in_turns
from torch import Tensor
from torch.func import functional_call, grad, vmap
from torch.nn.functional import cross_entropy

from fedtailor.learning import TrainingSettings, train
from fedtailor.learning.together import Start, dense_layers, most_together, slow, train_together
from fedtailor.models import Inputs, ModelSettings, Network, build
from fedtailor.runs.environment import environment
from fedtailor.seeding import torch_stream

BATCHES, EPOCHS, CLIENTS = 12, 3, 10  # batches of a pass, passes, clients at most
DIGITS, MNIST, CIFAR10 = (64,), (784,), (3072,)
SHAPES: list[tuple[tuple[int, ...], tuple[int, ...], int]] = [  # inputs, hidden widths, batch
    (DIGITS, (), 10),
    (DIGITS, (64,), 10),
    (DIGITS, (64,), 64),
    (MNIST, (), 10),
    (MNIST, (64,), 10),
    (MNIST, (64,), 64),
    (MNIST, (200,), 10),  # mnist-nn
    (MNIST, (200,), 64),
    (MNIST, (200, 200), 10),
    (CIFAR10, (), 10),
    (CIFAR10, (100,), 10),
]
CNNS = [("digits-cnn", (1, 8, 8)), ("lite", (1, 28, 28))]


def measure(turns: int) -> dict[str, Any]:
    torch.set_num_threads(1)
    found = {}
    for shape, hidden, batch in SHAPES:
        named = {"name": "mlp", "arguments": {"hidden": list(hidden)}} if hidden else {"name": "linear"}
        model = ModelSettings.model_validate(named)
        widths = "-".join(map(str, (*shape, *hidden, 10)))
        found[f"{widths}, batch {batch}"] = ratios(build(model, Inputs(shape, 10), seed=0), batch, turns)
    for name, shape in CNNS:
        network = build(ModelSettings(name=name), Inputs(shape, 10), seed=0)
        found[f"{name}, batch 10"] = {"vmap": in_vmap(network, 10, turns)}
    return {"shapes": found, "goal": ">= 1.2 where the rule says yes", "turns": turns, "environment": environment()}


def ratios(network: Network, batch: int, turns: int) -> dict[str, Any]:
    layers, settings = dense_layers(network.module), TrainingSettings(epochs=EPOCHS, batch_size=batch)
    start, most = network.weights(), min(CLIENTS, most_together(layers))

    def serial(clients: int) -> None:
        for client in range(clients):
            network.load(start)
            train(network, *samples(network, client, batch), settings, torch_stream("batches", client))
            network.weights()

    def together(clients: int) -> None:
        data = [(*samples(network, client, batch), torch_stream("batches", client)) for client in range(clients)]
        train_together(layers, [Start(start, *one) for one in data], settings, settings.lr)

    def gain(clients: int) -> float:
        times = in_turns({"serial": lambda: serial(clients), "together": lambda: together(clients)}, turns)
        return round(times["serial"] / times["together"], 2)

    return {"together": gain(most), "clients": most, "two": gain(2), "rule": not slow(layers, settings)}


def in_vmap(network: Network, batch: int, turns: int) -> float:
    """How much faster ten clients train in `torch.func.vmap`."""
    settings, start = TrainingSettings(epochs=1, batch_size=batch), network.weights()

    def loss(weights: dict[str, Tensor], x: Tensor, y: Tensor) -> Tensor:
        return cross_entropy(functional_call(network.module, weights, (x,)), y)

    def serial() -> None:
        for client in range(CLIENTS):
            network.load(start)
            train(network, *samples(network, client, batch), settings, torch_stream("batches", client))

    def stacked() -> None:
        weights = {name: value.expand(CLIENTS, *value.shape).clone() for name, value in start.items()}
        data = [samples(network, client, batch) for client in range(CLIENTS)]
        x, y = (torch.stack([one[place] for one in data]) for place in (0, 1))
        slopes: Callable[..., dict[str, Tensor]] = vmap(grad(loss))
        for step in range(BATCHES):
            rows = slice(step * batch, (step + 1) * batch)
            found = slopes(weights, x[:, rows], y[:, rows])
            torch._foreach_add_(list(weights.values()), list(found.values()), alpha=-settings.lr)

    times = in_turns({"serial": serial, "stacked": stacked}, turns)
    return round(times["serial"] / times["stacked"], 2)


def samples(network: Network, client: int, batch: int) -> tuple[Tensor, Tensor]:
    stream = torch_stream("samples", client)
    x = torch.randn(BATCHES * batch, *network.inputs.shape, generator=stream)
    return x, torch.randint(network.inputs.outputs, (len(x),), generator=stream)


if __name__ == "__main__":
    command(measure, __doc__)
