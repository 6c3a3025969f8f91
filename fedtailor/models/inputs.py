"""The inputs and outputs of a network."""

from dataclasses import dataclass

import torch
from torch import Tensor

from fedtailor.seeding import torch_stream


@dataclass(frozen=True)
class Inputs:
    """The shape of one sample and the number of outputs asked of a network.

    `shape` is (channels, height, width) for images, (features,) for flat data and (tokens,) for text.
    A `vocabulary` above 0 says that samples are token ids in [0, vocabulary), where 0 is padding.
    """

    shape: tuple[int, ...]
    outputs: int
    vocabulary: int = 0

    @property
    def kind(self) -> str:
        """What a sample is: image, text or flat."""
        if self.vocabulary:
            return "text"
        return "image" if len(self.shape) == 3 else "flat"

    @property
    def predicts_tokens(self) -> bool:
        """Whether the classes are the tokens themselves, without padding: next-token prediction."""
        return self.vocabulary > 1 and self.outputs == self.vocabulary - 1

    @property
    def side(self) -> int:
        """The shorter side of an image in pixels."""
        return min(self.shape[1:])

    def example(self, samples: int = 2) -> Tensor:
        """A batch of the right shape with arbitrary content, the same one every time."""
        stream = torch_stream("model", "example")
        size = (samples, *self.shape)
        if self.vocabulary:
            return torch.randint(self.vocabulary, size, generator=stream)
        return torch.randn(size, generator=stream)
