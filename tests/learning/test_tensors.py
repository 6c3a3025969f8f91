"""Samples as the tensors a network takes."""

import numpy as np
import torch

from fedtailor.data import Samples
from fedtailor.learning.tensors import inputs_of, normalise, tensors

MEAN, STD = (0.1, 0.5, 0.9), (0.2, 0.3, 0.4)


def pictures() -> Samples:
    x = np.random.RandomState(0).randint(0, 256, (6, 4, 5, 3)).astype(np.uint8)
    return Samples(x, np.arange(6) % 2, ("a", "b"), np.zeros(6, bool), mean=MEAN, std=STD)


def test_images_are_scaled_to_one_then_standardised_by_channel() -> None:
    samples = pictures()
    x, y = tensors(samples, np.array([4, 1]))
    textbook = (samples.x[[4, 1]].astype(np.float64) / 255 - np.array(MEAN)) / np.array(STD)
    assert x.dtype == torch.float32
    np.testing.assert_allclose(x.numpy(), textbook.transpose(0, 3, 1, 2), rtol=1e-5, atol=1e-5)
    assert y.tolist() == [0, 1]


def test_images_are_channels_last_in_memory_so_that_nothing_is_copied() -> None:
    x, _ = tensors(pictures(), np.arange(6))
    assert x.shape == (6, 3, 4, 5)
    assert x.is_contiguous(memory_format=torch.channels_last)


def test_images_without_statistics_are_scaled_to_one() -> None:
    x = torch.tensor([0, 51, 255], dtype=torch.uint8).reshape(1, 1, 3, 1)
    torch.testing.assert_close(normalise(x, (), ()).flatten(), torch.tensor([0.0, 0.2, 1.0]))


def test_samples_are_copied_and_never_changed() -> None:
    samples = pictures()
    kept = samples.x.copy()
    tensors(samples, np.arange(6))[0].zero_()
    assert np.array_equal(samples.x, kept)
    floats = Samples(np.ones((3, 2), np.float32), np.zeros(3, np.int64), ("a",), np.zeros(3, bool))
    tensors(floats, np.arange(3))[0].zero_()
    assert floats.x.sum() == 6


def test_vectors_tokens_and_targets_are_used_as_they_are() -> None:
    floats = Samples(np.eye(3, dtype=np.float32), np.eye(3, 2, dtype=np.float32), (), np.zeros(3, bool))
    x, y = tensors(floats, np.array([2, 0]))
    assert torch.equal(x, torch.eye(3)[[2, 0]])
    assert torch.equal(y, torch.eye(3, 2)[[2, 0]])
    words = Samples(np.array([[1, 2, 0]], np.int32), np.array([0]), ("a", "b"), np.zeros(1, bool), vocabulary=3)
    assert tensors(words, np.array([0]))[0].tolist() == [[1, 2, 0]]


def test_what_a_network_must_accept_and_give_follows_from_the_samples() -> None:
    made = inputs_of(pictures())
    assert (made.shape, made.outputs, made.kind) == ((3, 4, 5), 2, "image")
    floats = Samples(np.eye(3, dtype=np.float32), np.eye(3, 2, dtype=np.float32), (), np.zeros(3, bool))
    assert (inputs_of(floats).shape, inputs_of(floats).outputs) == ((3,), 2)
    line = Samples(np.eye(3, dtype=np.float32), np.zeros(3, np.float32), (), np.zeros(3, bool))
    assert inputs_of(line).outputs == 1
