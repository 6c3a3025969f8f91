"""The layers of the catalogue's networks."""

from collections import OrderedDict
from collections.abc import Callable
from math import prod
from typing import Self

import torch
from torch import Tensor, nn

from fedtailor.models.inputs import Inputs
from fedtailor.models.pooling import Pool


class Layers:
    """Layers in the order they are added, named `conv1`, `pool1`, `relu1`, `fc1`, ..."""

    def __init__(self, inputs: Inputs) -> None:
        self._layers: OrderedDict[str, nn.Module] = OrderedDict()
        self._shape = inputs.shape

    def add(self, name: str, layer: nn.Module) -> Self:
        self._layers[name] = layer
        return self

    def convolution(self, channels: int, kernel: int = 3, padding: int = 0, stride: int = 1, bias: bool = True) -> Self:
        given, height, width = self._shape
        height, width = ((side + 2 * padding - kernel) // stride + 1 for side in (height, width))
        self._now((channels, height, width))
        layer = nn.Conv2d(given, channels, kernel, stride=stride, padding=padding, bias=bias)
        return self._number("conv", layer)

    def pool(self) -> Self:
        """A pool before the ReLU: they commute, so the bits are the same for a quarter of the ReLU's work."""
        channels, height, width = self._shape
        self._now((channels, height // 2, width // 2))
        return self._number("pool", Pool())

    def norm(self, layer: nn.Module) -> Self:
        return self._number("norm", layer)

    def relu(self) -> Self:
        return self._number("relu", nn.ReLU())

    def flatten(self) -> Self:
        self._now((prod(self._shape),))
        return self.add("flatten", nn.Flatten())

    def linear(self, width: int, given: int | None = None, bias: bool = True) -> Self:
        given = self._shape[0] if given is None else given
        self._now((width,))
        return self._number("fc", nn.Linear(given, width, bias=bias))

    def sequential(self) -> nn.Sequential:
        return nn.Sequential(self._layers)

    def _now(self, shape: tuple[int, ...]) -> None:
        if min(shape) < 1:
            raise ValueError(f"layer {len(self._layers) + 1} has an empty output of shape {shape}")
        self._shape = shape

    def _number(self, kind: str, layer: nn.Module) -> Self:
        count = sum(name.startswith(kind) for name in self._layers)
        return self.add(f"{kind}{count + 1}", layer)


PADDING = 0  # the token id of padding


class MeanEmbedding(nn.Embedding):
    """The mean of the embeddings of a text's tokens; padding is ignored, and an empty text gives 0.

    `EmbeddingBag` is no faster here and cannot be trained for many clients at once by `vmap`.
    """

    def forward(self, tokens: Tensor) -> Tensor:
        present = tokens.ne(PADDING).unsqueeze(-1)  # (batch, tokens, 1)
        total = (super().forward(tokens) * present).sum(-2)  # (batch, dimensions)
        return total.div(present.sum(-2).clamp(min=1))


class LastState(nn.GRU):
    """The state of a GRU after the last token of a text (Cho et al., 2014); padding stands at the end.

    The embedding is a layer of its own inside, because it alone sees which tokens are padding.
    """

    def __init__(self, vocabulary: int, dimensions: int, hidden: int, layers: int = 1) -> None:
        super().__init__(dimensions, hidden, num_layers=layers, batch_first=True)
        self.embedding = nn.Embedding(vocabulary, dimensions, padding_idx=PADDING)

    def forward(self, tokens: Tensor) -> Tensor:  # type: ignore[override]
        states, _ = super().forward(self.embedding(tokens))  # (batch, tokens, hidden)
        last = tokens.ne(PADDING).sum(-1).clamp(min=1) - 1
        # Not len(tokens): it would make the number of samples a constant of an exported program.
        return states[torch.arange(tokens.shape[0], device=tokens.device), last]  # type: ignore[no-any-return]

    @property
    def work(self) -> int:
        """Multiply-adds per token."""
        return sum(value.numel() for name, value in self.named_parameters() if name.startswith("weight"))


class ResidualBlock(nn.Module):
    """Two 3x3 convolutions with a skip connection (He et al., 2016)."""

    def __init__(self, given: int, width: int, stride: int, norm: Callable[[int], nn.Module]) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(given, width, 3, stride=stride, padding=1, bias=False)
        self.norm1 = norm(width)
        self.conv2 = nn.Conv2d(width, width, 3, padding=1, bias=False)
        self.norm2 = norm(width)
        self.shortcut = nn.Sequential()
        if given != width or stride != 1:
            self.shortcut.append(nn.Conv2d(given, width, 1, stride=stride, bias=False)).append(norm(width))

    def forward(self, x: Tensor) -> Tensor:
        y = torch.relu(self.norm1(self.conv1(x)))
        return torch.relu(self.norm2(self.conv2(y)) + self.shortcut(x))


def batch_norm(channels: int) -> nn.Module:
    return nn.BatchNorm2d(channels)


def group_norm(groups: int) -> Callable[[int], nn.Module]:
    return lambda channels: nn.GroupNorm(groups, channels)
