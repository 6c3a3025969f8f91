"""Named random streams: the only source of randomness.

A stream is named by what it is for, such as ``(seed, episode, round, client, task, purpose)``.
Two streams with different names are independent, and the same name gives the same numbers
in every process, whatever ran before.
"""

from hashlib import blake2b
from operator import index
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    import torch


def seed_of(*names: int | str) -> int:
    """A 63-bit seed for the stream with these names; 3 and numpy's 3 are one name, 3 and "3" are two."""
    text = "\x1f".join(f"str:{name}" if isinstance(name, str) else f"int:{index(name)}" for name in names)
    return int.from_bytes(blake2b(text.encode(), digest_size=8).digest(), "big") >> 1


def numpy_stream(*names: int | str) -> np.random.RandomState:
    """A stream for partitions and cohorts.

    ``RandomState`` and not ``Generator``: its sequences are frozen for all versions of numpy.
    """
    seed = seed_of(*names)
    return np.random.RandomState([seed >> 32, seed & 0xFFFFFFFF])


def torch_stream(*names: int | str) -> "torch.Generator":
    """A stream for local training and agents."""
    import torch

    return torch.Generator().manual_seed(seed_of(*names))
