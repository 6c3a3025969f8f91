"""Samples as the tensors a network takes."""

import numpy as np
import torch
from torch import Tensor

from fedtailor.data import Samples
from fedtailor.models import Inputs


def inputs_of(samples: Samples) -> Inputs:
    """The inputs and outputs of a network for these samples."""
    shape = samples.x.shape[1:]
    if samples.x.dtype == np.uint8:
        shape = (shape[2], shape[0], shape[1])
    outputs = len(samples.classes) or int(np.prod(samples.y.shape[1:], dtype=int))
    return Inputs(shape=tuple(int(n) for n in shape), outputs=outputs, vocabulary=samples.vocabulary)


def tensors(samples: Samples, indices: np.ndarray, device: str = "cpu") -> tuple[Tensor, Tensor]:
    """The inputs and targets of these samples; images are normalised and channels-last."""
    x, y = torch.from_numpy(samples.x[indices]), torch.from_numpy(samples.y[indices])
    if samples.x.dtype == np.uint8:
        x = normalise(x, samples.mean, samples.std)
    return x.to(device), y.to(device)


def normalise(images: Tensor, mean: tuple[float, ...], std: tuple[float, ...]) -> Tensor:
    """Bytes (samples, height, width, channels) as standardised floats (samples, channels, height, width)."""
    scale = 1 / (255 * torch.tensor(std or (1.0,), dtype=torch.float64))
    shift = -torch.tensor(mean or (0.0,), dtype=torch.float64) / torch.tensor(std or (1.0,), dtype=torch.float64)
    floats = images.to(torch.float32).mul_(scale.float()).add_(shift.float())
    return floats.permute(0, 3, 1, 2)
