"""Trainings of several clients at once: values by hand, the serial loop as the reference, and the bits of a client."""

import math
from itertools import pairwise

import pytest
import torch
from torch import Tensor, nn

from fedtailor.learning import Trace, TrainingSettings, TrainOptions, together, train
from fedtailor.learning.together import Dense, Start, dense_layers, most_together, slow, train_together, unfit
from fedtailor.models import Inputs, Network
from fedtailor.seeding import torch_stream
from tests.support.networks import cnn, network, normalised, with_dropout

SETTINGS = TrainingSettings(epochs=2, batch_size=10, lr=0.1)
SIZES = (45, 10, 1, 83, 30)  # training samples of clients


def perceptron(*widths: int, bias: bool = True) -> Network:
    layers: list[nn.Module] = [nn.Flatten()]
    for given, made in pairwise(widths):
        layers += [nn.Linear(given, made, bias=bias), nn.ReLU()]
    return network(nn.Sequential(*layers[:-1]), (str(len(layers) - 2),), Inputs((widths[0],), widths[-1]))


def samples(client: int, count: int, net: Network) -> tuple[Tensor, Tensor]:
    stream = torch_stream("samples", client)
    x = torch.randn(count, *net.inputs.shape, generator=stream)
    return x, torch.randint(net.inputs.outputs, (count,), generator=stream)


def starts(net: Network, sizes: tuple[int, ...] = SIZES, which: tuple[int, ...] = ()) -> list[Start]:
    """Clients with data, streams and weights of their own."""
    found = []
    for client in which or range(len(sizes)):
        noise = torch_stream("noise", client)
        weights = {name: w + 0.1 * torch.randn(w.shape, generator=noise) for name, w in net.weights().items()}
        found.append(Start(weights, *samples(client, sizes[client], net), torch_stream("batches", client)))
    return found


def grouped(net: Network, settings: TrainingSettings, begun: list[Start]) -> list[tuple[dict[str, Tensor], Trace]]:
    return train_together(dense_layers(net.module), begun, settings, settings.lr)


def same(one: tuple[dict[str, Tensor], Trace], other: tuple[dict[str, Tensor], Trace]) -> bool:
    return one[1] == other[1] and all(torch.equal(one[0][name], other[0][name]) for name in one[0])


def test_a_step_of_a_linear_layer_by_hand() -> None:
    """From zero weights both classes have probability 1/2: the gradient is (1/2 - 1, 1/2) times the input (1, 2)."""
    net = perceptron(2, 2)
    zero = {name: torch.zeros_like(value) for name, value in net.weights().items()}
    start = Start(zero, torch.tensor([[1.0, 2.0]]), torch.tensor([0]), torch_stream("batches"))
    ((weights, trace),) = grouped(net, TrainingSettings(epochs=1, lr=0.1), [start])
    torch.testing.assert_close(weights["1.weight"], torch.tensor([[0.05, 0.1], [-0.05, -0.1]]))
    torch.testing.assert_close(weights["1.bias"], torch.tensor([0.05, -0.05]))
    assert (trace.steps, trace.samples, trace.loss) == (1, 1, pytest.approx(math.log(2)))
    assert not zero["1.weight"].any(), "the weights of the start are unchanged"


@pytest.mark.parametrize(
    "more",
    [
        {},
        {"momentum": 0.9},
        {"weight_decay": 0.1},
        {"optimiser": "adam", "lr": 0.01, "weight_decay": 0.01},
        {"steps": 7},
        {"batch_size": 1, "lr": 0.02},
        {"batch_size": 64},
        {"epochs": 9},  # more steps than are prepared at once
    ],
)
@pytest.mark.parametrize("net", [perceptron(33, 7), perceptron(33, 20, 26, 7), perceptron(16, 5, 2, bias=False)])
def test_every_client_has_the_weights_of_the_serial_loop_up_to_rounding(net: Network, more: dict) -> None:
    settings = TrainingSettings(**{**SETTINGS.model_dump(), **more})
    begun, reference = starts(net), starts(net)
    for start, (weights, trace) in zip(reference, grouped(net, settings, begun), strict=True):
        net.load(start.weights)
        serial = train(net, start.x, start.y, settings, start.stream, TrainOptions(lr=settings.lr))
        for name, value in net.weights().items():
            torch.testing.assert_close(weights[name], value, rtol=1e-4, atol=2e-5)
        assert (trace.steps, trace.samples) == (serial.steps, serial.samples)
        assert trace.loss == pytest.approx(serial.loss, rel=1e-4)


@pytest.mark.parametrize(
    ("widths", "size", "more"),
    [
        ((64, 64, 10), 10, {}),
        ((13, 26), 2, {"momentum": 0.9, "weight_decay": 0.1}),
        ((7, 1, 100, 3), 2, {"optimiser": "adam"}),
        ((784, 33, 26), 10, {"steps": 3}),
        ((13, 100, 26), 2, {"momentum": 0.9}),
        ((64, 10), 1, {}),
    ],
)
def test_the_bits_of_a_client_do_not_depend_on_the_others(widths: tuple[int, ...], size: int, more: dict) -> None:
    net, sizes = perceptron(*widths), (12, 5, 1, 23, 7)
    settings = TrainingSettings(epochs=2, batch_size=size, lr=0.01, **more)
    all_of_them = grouped(net, settings, starts(net, sizes))
    assert not same(all_of_them[0], all_of_them[1])
    for group in [(0,), (2,), (3,), (4, 1), (3, 3), (1, 2, 0), (0,) * 9]:
        for client, result in zip(group, grouped(net, settings, starts(net, sizes, group)), strict=True):
            assert same(result, all_of_them[client]), f"client {client} in the group {group}"


def test_large_inputs_are_held_for_a_few_clients_at_a_time(monkeypatch: pytest.MonkeyPatch) -> None:
    net, held = perceptron(33, 7), []
    at_once = grouped(net, SETTINGS, starts(net))
    original = together._Group

    def watch(layers: tuple[Dense, ...], group: list[Start], *more: object) -> together._Group:
        held.append([len(start.y) for start in group])
        return original(layers, group, *more)

    monkeypatch.setattr(together, "_Group", watch)
    monkeypatch.setattr(together, "HELD", 80 * 33)
    in_portions = grouped(net, SETTINGS, starts(net))
    assert held == [[83], [45, 30], [10, 1]]
    assert all(same(one, other) for one, other in zip(at_once, in_portions, strict=True))


def test_a_client_without_samples_keeps_its_weights() -> None:
    net = perceptron(5, 3)
    first, second = grouped(net, SETTINGS, starts(net, (0, 10)))
    assert same(first, (starts(net, (0, 10))[0].weights, Trace()))
    assert second[1].steps == 2


@pytest.mark.parametrize("more", [{"epochs": 0}, {"steps": 0}])
def test_without_steps_all_keep_their_weights(more: dict) -> None:
    net = perceptron(5, 3)
    for start, result in zip(starts(net), grouped(net, TrainingSettings(**more), starts(net)), strict=True):
        assert same(result, (start.weights, Trace()))


def test_images_are_flattened_as_the_network_does_it() -> None:
    net = network(nn.Sequential(nn.Flatten(), nn.Linear(12, 3)), ("1",), Inputs((3, 2, 2), 3))
    x, y = samples(0, 20, net)
    x = x.contiguous(memory_format=torch.channels_last)
    ((weights, _),) = grouped(net, SETTINGS, [Start(net.weights(), x, y, torch_stream("batches"))])
    train(net, x, y, SETTINGS, torch_stream("batches"))
    torch.testing.assert_close(weights["1.weight"], net.weights()["1.weight"])


def test_a_client_that_diverges_does_not_disturb_the_others() -> None:
    net = perceptron(5, 3)
    calm, wild = starts(net, (10, 10))
    wild.x[:] = torch.inf
    (found, _), (lost, _) = grouped(net, SETTINGS, [calm, wild])
    assert found["1.weight"].isfinite().all()
    assert not lost["1.weight"].isfinite().all()


def test_networks_of_linear_layers_are_known() -> None:
    assert dense_layers(perceptron(4, 6, 3).module) == (
        Dense("1.weight", "1.bias", 4, 6),
        Dense("3.weight", "3.bias", 6, 3),
    )
    assert dense_layers(perceptron(4, 3, bias=False).module) == (Dense("1.weight", None, 4, 3),)
    assert dense_layers(nn.Sequential(nn.Linear(4, 3)))


@pytest.mark.parametrize(
    "module",
    [
        cnn().module,
        normalised().module,
        with_dropout(2).module,
        nn.Linear(2, 2),
        nn.Sequential(),
        nn.Sequential(nn.Flatten()),
        nn.Sequential(nn.Linear(2, 2), nn.ReLU()),
        nn.Sequential(nn.Linear(2, 2), nn.Linear(2, 2)),
        nn.Sequential(nn.Linear(2, 2), nn.Tanh(), nn.Linear(2, 2)),
        nn.Sequential(nn.Linear(2, 2), nn.Flatten(), nn.Linear(2, 2)),
        nn.Sequential(nn.Linear(2, 2).requires_grad_(False)),
    ],
)
def test_other_networks_are_known_too(module: nn.Module) -> None:
    assert dense_layers(module) == ()
    assert unfit(module, SETTINGS) == "the network is not a sequence of linear layers and ReLUs"


@pytest.mark.parametrize(
    ("more", "reason"),
    [
        ({}, ""),
        ({"loss": "cross-entropy", "momentum": 0.9}, ""),
        ({"loss": "mse"}, "the loss is mse"),
        ({"precision": "bf16"}, "training.precision is set"),
        ({"clip": 1.0}, "training.clip is set"),
        ({"dp_sgd": {}}, "training.dp_sgd is set"),
    ],
)
def test_settings_that_it_does_not_have_are_named(more: dict, reason: str) -> None:
    assert unfit(perceptron(4, 3).module, TrainingSettings(**more)) == reason


@pytest.mark.parametrize(
    ("widths", "batch", "reason", "most"),
    [
        ((64, 64, 10), 10, "", 32),
        ((784, 200, 10), 10, "", 6),
        ((784, 200, 10), 64, "batches of 64 with 166,400 weights are too large", 6),
        ((64, 10), 257, "batches of 257 with 1,024 weights are too large", 32),
        ((3072, 100, 10), 10, "the network has 345,856 weights, more than 262,144", 3),
        ((3072, 2000, 10), 10, "the network has 6,176,000 weights, more than 262,144", 1),
    ],
)
def test_the_rule_on_shapes(widths: tuple[int, ...], batch: int, reason: str, most: int) -> None:
    layers = dense_layers(perceptron(*widths).module)
    assert slow(layers, TrainingSettings(batch_size=batch)) == reason
    assert most_together(layers) == most
