"""Small networks and data for tests of training and evaluation."""

import torch
from torch import Tensor, nn

from fedtailor.models import Inputs, Network
from fedtailor.seeding import torch_stream

IMAGE = Inputs((3, 8, 8), 4)
FLAT = Inputs((5,), 3)


def images(count: int = 50) -> tuple[Tensor, Tensor]:
    stream = torch_stream("images")
    x = torch.randn(count, *IMAGE.shape, generator=stream)
    return x, torch.randint(IMAGE.outputs, (count,), generator=stream)


def vectors(count: int = 20) -> tuple[Tensor, Tensor]:
    stream = torch_stream("vectors")
    x = torch.randn(count, *FLAT.shape, generator=stream)
    return x, torch.randint(FLAT.outputs, (count,), generator=stream)


def network(module: nn.Module, head: tuple[str, ...], inputs: Inputs) -> Network:
    """The module with weights that are the same every time."""
    stream = torch_stream("weights")
    with torch.no_grad():
        for parameter in module.parameters():
            parameter.copy_(torch.randn(parameter.shape, generator=stream) * 0.2)
    return Network(module, head, inputs)


def cnn() -> Network:
    layers = [nn.Conv2d(3, 6, 3), nn.MaxPool2d(2), nn.ReLU(), nn.Flatten(), nn.Linear(54, 8), nn.ReLU()]
    return network(nn.Sequential(*layers, nn.Linear(8, 4)), ("6",), IMAGE)


def normalised() -> Network:
    """Batch normalisation in the body and in the head."""
    layers = [nn.Linear(5, 6), nn.BatchNorm1d(6), nn.ReLU(), nn.Linear(6, 6), nn.BatchNorm1d(6), nn.ReLU()]
    return network(nn.Sequential(*layers, nn.Linear(6, 3)), ("3", "4", "6"), FLAT)


def with_dropout(place: int) -> Network:
    """Two linear layers, with dropout before (place 0), between (2) or after (3) them."""
    layers = [nn.Linear(5, 8), nn.ReLU(), nn.Linear(8, 3)]
    layers.insert(place, nn.Dropout(0.5))
    head = next(str(i) for i in (3, 2) if isinstance(layers[i], nn.Linear))
    return network(nn.Sequential(*layers), (head,), FLAT)


def line() -> Network:
    """y = w x without bias, from w = (1, 2)."""
    module = nn.Sequential(nn.Linear(2, 1, bias=False))
    made = Network(module, ("0",), Inputs((2,), 1))
    made.load({"0.weight": torch.tensor([[1.0, 2.0]])})
    return made
