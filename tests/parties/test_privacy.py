"""The private mean, with values derived by hand."""

import math

import torch

from fedtailor.parties.privacy import private_mean

START = {"a": torch.tensor([1.0]), "b": torch.tensor([1.0])}


def model(a: float, b: float):
    return {"a": torch.tensor([a]), "b": torch.tensor([b])}


def test_changes_are_clipped_together_and_divided_by_the_expected_number():
    """Changes (3, 4) of length 5 and (0.3, 0.4) of length 0.5; clip 1: (0.6, 0.8) + (0.3, 0.4) = (0.9, 1.2), over 3."""
    found = private_mean(START, {0: model(4, 5), 1: model(1.3, 1.4)}, 1.0, 0.0, 3.0, torch.zeros_like)
    assert math.isclose(found["a"].item(), 1 + 0.9 / 3, rel_tol=1e-6)
    assert math.isclose(found["b"].item(), 1 + 1.2 / 3, rel_tol=1e-6)


def test_noise_is_that_many_clips_on_the_sum():
    """Noise 2 with clip 0.5 adds 1 times a standard normal, here always 1, divided by 4 clients."""
    found = private_mean(START, {}, 0.5, 2.0, 4.0, torch.ones_like)
    assert found["a"].item() == 1.25


def test_one_client_moves_the_mean_by_at_most_the_clip():
    """Whatever a client sends, with it or without it, the sums differ by at most the clip."""
    others = {0: model(1.2, 0.7), 1: model(0.4, 1.1)}
    without = private_mean(START, others, 1.0, 0.0, 1.0, torch.zeros_like)
    for wild in (model(1e30, -1e30), model(1.0001, 1.0), model(-7.0, 900.0)):
        with_it = private_mean(START, {**others, 2: wild}, 1.0, 0.0, 1.0, torch.zeros_like)
        assert math.hypot(*(float(with_it[n] - without[n]) for n in START)) <= 1 + 1e-6
