"""Samples as the tensors a network takes."""

import numpy as np
import torch
from torch import Tensor

from fedtailor.data import Samples
from fedtailor.data.preprocessing import Preprocessing
from fedtailor.models import Inputs


def inputs_of(samples: Samples) -> Inputs:
    """The inputs and outputs of a network for these samples, after pre-processing."""
    shape = samples.x.shape[1:]
    if samples.preprocessing is not None:
        shape = samples.preprocessing.shape(shape)
    if samples.x.dtype == np.uint8:
        shape = (shape[2], shape[0], shape[1])
    outputs = len(samples.classes) or int(np.prod(samples.y.shape[1:], dtype=int))
    return Inputs(shape=tuple(int(n) for n in shape), outputs=outputs, vocabulary=samples.vocabulary)


def tensors(samples: Samples, indices: np.ndarray, device: str = "cpu", client: int = 0) -> tuple[Tensor, Tensor]:
    """The inputs and targets of these samples of a client, pre-processed; images are channels-last."""
    x = prepared_inputs(samples.x[indices], samples.preprocessing, (samples.mean, samples.std), client)
    return x.to(device), torch.from_numpy(samples.y[indices]).to(device)


def prepared_inputs(
    x: np.ndarray,
    preprocessing: Preprocessing | None,
    channels: tuple[tuple[float, ...], tuple[float, ...]],
    client: int = 0,
) -> Tensor:
    """Raw inputs of a client as a network takes them; ``channels`` are means and deviations of raw images."""
    if x.dtype == np.uint8:
        return normalise(torch.from_numpy(x), *(channels if preprocessing is None else preprocessing.channels(client)))
    return torch.from_numpy(x if preprocessing is None else preprocessing.apply(x, client))


def normalise(images: Tensor, mean: tuple[float, ...], std: tuple[float, ...]) -> Tensor:
    """Bytes (samples, height, width, channels) as standardised floats (samples, channels, height, width)."""
    scale, shift = channel_factors(mean, std)
    floats = images.to(torch.float32).mul_(scale).add_(shift)
    return floats.permute(0, 3, 1, 2)


def channel_factors(mean: tuple[float, ...], std: tuple[float, ...]) -> tuple[Tensor, Tensor]:
    """What a byte of each channel is multiplied by, and what is then added to it, to standardise it."""
    deviation = torch.tensor(std or (1.0,), dtype=torch.float64)
    shift = -torch.tensor(mean or (0.0,), dtype=torch.float64) / deviation
    return (1 / (255 * deviation)).float(), shift.float()
