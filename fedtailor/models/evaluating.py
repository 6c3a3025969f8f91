"""Evaluate a module without changing it."""

from collections.abc import Iterator
from contextlib import contextmanager

import torch
from torch import nn


@contextmanager
def evaluating(module: nn.Module) -> Iterator[None]:
    """Evaluation mode without gradients; afterwards every layer is back in its previous mode."""
    modes = {layer: layer.training for layer in module.modules()}
    module.eval()
    try:
        with torch.no_grad():
            yield
    finally:
        for layer, mode in modes.items():
            layer.training = mode
