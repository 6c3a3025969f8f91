"""A network as one program: raw samples in; outputs and, for classes, calibrated probabilities out.

It does in torch what `prepared_inputs` does in numpy, so that an exported program needs nothing besides itself.
"""

import numpy as np
import torch
from torch import Tensor, nn

from fedtailor.data.preprocessing import Preprocessing
from fedtailor.data.preprocessing.prepared import UNKNOWN
from fedtailor.learning.temperature import log_probabilities
from fedtailor.learning.tensors import channel_factors


class Program(nn.Module):
    """Pre-processing, the network and the probabilities of classes, in one module.

    Parameters
    ----------
    network
        The network, in evaluation mode.
    preparing
        What is done to raw samples first: `preparing_of`.
    loss
        The kind of loss that the outputs were trained with, as in ``training.loss``; None for a regression.
    temperature
        What outputs are divided by before they become probabilities.
    """

    def __init__(self, network: nn.Module, preparing: nn.Module, loss: str | None, temperature: float = 1.0) -> None:
        super().__init__()
        self.network, self.preparing, self.loss, self.temperature = network, preparing, loss, temperature

    def forward(self, samples: Tensor) -> tuple[Tensor, ...]:
        """The outputs of the network and, for classes, their probabilities."""
        outputs = self.network(self.preparing(samples))
        if self.loss is None:
            return (outputs,)
        return outputs, log_probabilities(self.loss, outputs, self.temperature).exp()


def preparing_of(
    kind: np.dtype[np.generic],
    preprocessing: Preprocessing | None,
    channels: tuple[tuple[float, ...], tuple[float, ...]],
) -> nn.Module:
    """The module that prepares raw samples of this type; ``channels`` are means and deviations of raw images."""
    if kind == np.uint8:
        return Pixels(*(channels if preprocessing is None else preprocessing.channels(0)))
    return nn.Identity() if preprocessing is None else Table(preprocessing)


class Pixels(nn.Module):
    """Bytes (samples, height, width, channels) as standardised floats (samples, channels, height, width)."""

    scale: Tensor
    shift: Tensor

    def __init__(self, mean: tuple[float, ...], std: tuple[float, ...]) -> None:
        super().__init__()
        scale, shift = channel_factors(mean, std)
        self.register_buffer("scale", scale)
        self.register_buffer("shift", shift)

    def forward(self, images: Tensor) -> Tensor:
        return (images.to(torch.float32) * self.scale + self.shift).permute(0, 3, 1, 2)


class Table(nn.Module):
    """The same as `Preprocessing.apply` with the first row of its statistics, in float64 as there."""

    fill: Tensor
    mean: Tensor
    scale: Tensor
    numbers: Tensor
    indicated: Tensor

    def __init__(self, prepared: Preprocessing) -> None:
        super().__init__()
        row = prepared.row(0)  # refuses a model without statistics
        self.standardise, self.indicates = prepared.settings.standardise, bool(prepared.indicated)
        self.one_hot, self.replaces = prepared.settings.categories == "one-hot", prepared.settings.impute != "none"
        self.kept = {j: prepared.kept[j] for j, column in enumerate(prepared.columns) if column.categories}
        self.columns = bool(prepared.columns)
        numbers = [j for j, column in enumerate(prepared.columns) if not column.categories]
        for name in ("fill", "mean", "scale"):
            self.register_buffer(name, torch.tensor(getattr(prepared, name)[row], dtype=torch.float64))
        for name, places in (("numbers", numbers), ("indicated", prepared.indicated)):
            self.register_buffer(name, torch.tensor(places, dtype=torch.int64))
        for j, codes in self.kept.items():
            self.register_buffer(f"kept{j}", torch.tensor(codes, dtype=torch.float64))

    def forward(self, samples: Tensor) -> Tensor:
        values = samples.flatten(1).to(torch.float64)
        absent = values.isnan()
        numbers = torch.where(absent, self.fill, values)
        if self.standardise:
            numbers = (numbers - self.mean) / self.scale
        if not self.columns:
            return numbers.to(torch.float32).view(samples.shape)
        blocks = [numbers.index_select(1, self.numbers)] if len(self.numbers) else []
        blocks += [self._coded(values[:, j], j) for j in self.kept]
        blocks += [absent.index_select(1, self.indicated).to(torch.float64)] if self.indicates else []
        return torch.cat(blocks, 1).to(torch.float32)

    def _coded(self, codes: Tensor, j: int) -> Tensor:
        """The inputs of a column with categories.  # (samples, 1 or kept)"""
        kept: Tensor = getattr(self, f"kept{j}")
        known = codes.unsqueeze(1).eq(kept).any(1)
        codes = torch.where(known, codes, self.fill[j] if self.replaces else torch.full_like(self.fill[j], UNKNOWN))
        ones = codes.unsqueeze(1).eq(kept).to(torch.float64)
        if self.one_hot:
            return ones
        places = torch.arange(kept.shape[0], dtype=torch.float64)
        number = torch.where(ones.sum(1) > 0, ones @ places, self.mean[j]).unsqueeze(1)
        return (number - self.mean[j]) / self.scale[j] if self.standardise else number
