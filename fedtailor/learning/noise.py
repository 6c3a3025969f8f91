"""Gaussian noise for differential privacy."""

import math
import os
from collections.abc import Callable

import numpy as np
import torch
from torch import Tensor

Noise = Callable[[Tensor], Tensor]  # standard normal numbers of the shape and type of a tensor


def seeded_noise(stream: torch.Generator) -> Noise:
    """Noise of a random stream."""
    return lambda like: torch.randn(like.shape, generator=stream, dtype=like.dtype)


def system_noise(like: Tensor) -> Tensor:
    """Noise of the operating system's generator, by the method of Box and Muller."""
    count = like.numel()
    raw = np.frombuffer(os.urandom(16 * count), dtype=np.uint64).reshape(2, count)
    uniform = ((raw >> np.uint64(11)).astype(np.float64) + 0.5) / 2**53  # in (0, 1)
    values = np.sqrt(-2 * np.log(uniform[0])) * np.cos(2 * math.pi * uniform[1])
    return torch.from_numpy(values).to(like.dtype).reshape(like.shape)
