"""The work that all peers do: network, local training, testing and the data of the clients. Plain torch and numpy.

A peer is a program that does one round for every line on its standard input, ``train`` or ``evaluated``, and answers
each with the line ``done``; before the first it answers ``ready``.
"""

import os
import sys
from functools import cache
from pathlib import Path

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn

sys.path.insert(0, str(Path(__file__).parents[1]))
from raw_loop import BATCH, LR, network

EPOCHS = int(os.environ["PEERS_EPOCHS"])
CLIENTS, COHORT = 100, 10
Data = tuple[Tensor, Tensor]


@cache
def data() -> tuple[list[Data], list[Data]]:
    """Training and test samples of all clients, loaded once per process."""
    torch.set_num_threads(1)
    arrays = np.load(os.environ["PEERS_DATA"])

    def clients(part: str) -> list[Data]:
        x = torch.from_numpy(arrays[f"{part}_x"]).float().div_(255).permute(0, 1, 4, 2, 3)
        y = torch.from_numpy(arrays[f"{part}_y"])
        return list(zip(x, y, strict=True))

    return clients("train"), clients("test")


def model() -> nn.Sequential:
    return network(1, 28, 10)


def train(module: nn.Module, samples: Data) -> None:
    """Epochs of SGD in mini-batches of ten."""
    x, y = samples
    optimiser = torch.optim.SGD(module.parameters(), lr=LR, foreach=True)
    for _ in range(EPOCHS):
        order = torch.randperm(len(y))
        images, labels = x[order], y[order]
        for start in range(0, len(y), BATCH):
            optimiser.zero_grad()
            F.cross_entropy(module(images[start : start + BATCH]), labels[start : start + BATCH]).backward()
            optimiser.step()


def test(module: nn.Module, samples: Data) -> tuple[int, float]:
    """The number of correct predictions and the sum of the losses."""
    with torch.inference_mode():
        outputs = module(samples[0])
        return int((outputs.argmax(1) == samples[1]).sum()), float(
            F.cross_entropy(outputs, samples[1], reduction="sum")
        )


def say(word: str) -> None:
    print(word, flush=True)
