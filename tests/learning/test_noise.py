"""Gaussian noise of a stream and of the operating system."""

import math
import os

import pytest
import torch

from fedtailor.learning.noise import seeded_noise, system_noise


def test_seeded_noise_repeats_and_system_noise_does_not():
    like = torch.zeros(1000)
    one = seeded_noise(torch.Generator().manual_seed(3))(like)
    assert torch.equal(one, seeded_noise(torch.Generator().manual_seed(3))(like))
    assert not torch.equal(system_noise(like), system_noise(like))


@pytest.mark.parametrize("byte", [0, 255])
def test_system_noise_is_finite_whatever_the_system_draws(byte, monkeypatch):
    monkeypatch.setattr(os, "urandom", lambda count: bytes([byte]) * count)
    assert system_noise(torch.zeros(3)).isfinite().all()


def test_system_noise_is_standard_normal():
    """100,000 numbers: the mean is within 5 / sqrt(n), the variance within 5 sqrt(2 / n), in all but 1e-6 of runs."""
    values = system_noise(torch.zeros(100, 1000, dtype=torch.float64))
    assert values.shape == (100, 1000)
    assert abs(float(values.mean())) < 5 / math.sqrt(1e5)
    assert abs(float(values.var()) - 1) < 5 * math.sqrt(2 / 1e5)
    assert 0.66 < float((values.abs() < 1).double().mean()) < 0.70
