"""Differentially private SGD, with values derived by hand."""

import pytest
import torch
from torch import nn

from fedtailor.learning import TrainingSettings, TrainOptions, train, why_not_private
from fedtailor.learning import private as private_sgd
from fedtailor.models import Inputs, Network


def linear_network() -> Network:
    """y = w x + b with w = b = 0."""
    module = nn.Sequential(nn.Linear(1, 1))
    nn.init.zeros_(module[0].weight)
    nn.init.zeros_(module[0].bias)
    return Network(module, ("0",), Inputs((1,), 1))


def trained(x, y, options=None, **settings):
    """The weights of a linear model that starts at 0, after a training."""
    network = linear_network()
    defaults = {"epochs": 1, "batch_size": len(x), "lr": 1.0, "loss": "squared-error"}
    made = TrainingSettings(**{**defaults, **settings})
    trace = train(network, x, y, made, torch.Generator().manual_seed(0), options or TrainOptions())
    return network.weights(), trace


X, Y = torch.tensor([[1.0], [1.0]]), torch.tensor([[0.3], [4.0]])


def test_gradients_of_single_samples_are_clipped():
    """y = w x + b from 0: the gradients (w, b) are (-0.3, -0.3) and (-4, -4), of length 0.42 and 5.66. With clip 1 the
    second becomes (-0.707, -0.707). All samples are in the batch: the step is the mean, (0.3 + 0.707) / 2."""
    weights, trace = trained(X, Y, dp_sgd={"clip": 1.0, "noise": 0.0})
    step = (0.3 + 2**-0.5) / 2
    assert {name: tensor.item() for name, tensor in weights.items()} == pytest.approx(dict.fromkeys(weights, step))
    assert (trace.steps, trace.samples) == (1, 2)
    assert trace.loss == pytest.approx((0.3**2 + 4**2) / 4)


def test_without_clipping_and_noise_a_full_batch_is_plain_sgd():
    private, _ = trained(X, Y, dp_sgd={"clip": 1e6, "noise": 0.0})
    plain, _ = trained(X, Y)
    for name, tensor in plain.items():
        assert torch.allclose(private[name], tensor)


def test_noise_is_that_many_clips_on_the_sum(monkeypatch):
    """Noise of 1 everywhere: the second gradient is clipped to 2, the sum (-0.3 - 1.414, ...) gets 3 x 2."""
    monkeypatch.setattr(private_sgd, "seeded_noise", lambda _stream: torch.ones_like)
    weights, _ = trained(X, Y, dp_sgd={"clip": 2.0, "noise": 3.0})
    step = -(3 * 2 - 0.3 - 2**0.5) / 2
    assert {name: tensor.item() for name, tensor in weights.items()} == pytest.approx(dict.fromkeys(weights, step))


def test_an_empty_batch_is_a_step_of_noise_alone(monkeypatch):
    """A sample is in a batch of size 1 with probability 1/1000: a third of the batches are empty. Noise of 1
    everywhere is 3 x 2 on the sum, and a step is that over the batch size; without a pull by samples, 20 steps add up.
    """
    monkeypatch.setattr(private_sgd, "seeded_noise", lambda _stream: torch.ones_like)
    x, y, clip = torch.zeros(1000, 1), torch.zeros(1000, 1), 1e-5  # no gradient counts
    options = {"batch_size": 1, "lr": 0.1, "dp_sgd": {"clip": clip, "noise": 6 / clip}}
    weights, trace = trained(x, y, TrainOptions(steps=20), **options)
    assert trace.steps == 20
    assert 0 < trace.samples < 60
    assert [tensor.item() for tensor in weights.values()] == pytest.approx([-12.0, -12.0], rel=1e-4)


def test_one_sample_moves_the_sum_by_at_most_the_clip():
    """With n fixed and without noise, weights with and without a wild sample differ by at most lr clip / batch."""
    one, _ = trained(X, Y, dp_sgd={"clip": 1.0, "noise": 0.0})
    other, _ = trained(X, torch.tensor([[0.3], [-1e6]]), dp_sgd={"clip": 1.0, "noise": 0.0})
    gap = torch.cat([(one[name] - other[name]).flatten() for name in one]).norm()
    assert float(gap) <= 2 * 1.0 / 2 + 1e-6


def test_batches_are_drawn_sample_by_sample():
    """1000 samples, batches of 100: 40 steps see 100 samples on average, with a deviation of sqrt(90)."""
    x, y = torch.ones(1000, 1), torch.zeros(1000, 1)
    _, trace = trained(x, y, batch_size=100, epochs=4, dp_sgd={"noise": 0.0})
    assert trace.steps == 40
    assert abs(trace.samples / 40 - 100) < 5 * 90**0.5 / 40**0.5
    assert trace.samples != 4000


def test_only_the_trained_part_moves():
    weights, _ = trained(X, Y, TrainOptions(frozenset({next(iter(linear_network().weights()))})), dp_sgd={"noise": 1.0})
    moved = [bool(tensor.abs().sum()) for tensor in weights.values()]
    assert moved == [True, False]


def test_other_steps_and_objectives_are_refused():
    with pytest.raises(ValueError, match="plain SGD"):
        trained(X, Y, TrainOptions(objective=lambda network, x, y: network(x).sum()), dp_sgd={})


def test_networks_that_mix_samples_are_refused():
    assert "BatchNorm" in why_not_private(nn.Sequential(nn.Linear(2, 2), nn.BatchNorm1d(2)))
    assert "recurrent" in why_not_private(nn.GRU(2, 2))
    assert why_not_private(nn.Sequential(nn.Conv2d(1, 2, 3), nn.Dropout(0.1))) == ""
