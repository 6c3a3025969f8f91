"""Max-pooling that is fast in bf16, and in fp32 where there is no gradient.

torch looks for the place of each maximum, and pools bf16 images element by element. Here a 2 x 2 pool is two maxima of
halves, of columns and then of rows, and its gradient goes where a half has the bits of its maximum. Outputs and
gradients have the bits of torch's pool; where a window holds 0 and -0 as its largest values, the output may be either,
and either may get the gradient.
"""

from typing import Any

import torch
from torch import Tensor, nn

LARGE = 2**19  # elements from which the dozen calls of the fast form cost less than they save
MEDIUM = 2**15  # the same without a gradient, which takes two calls


class Pool(nn.MaxPool2d):
    """A 2 x 2 max-pool; many channels-last images with even sides are pooled faster, fp32 only without a gradient."""

    def __init__(self) -> None:
        super().__init__(2)

    def forward(self, x: Tensor) -> Tensor:
        pooled: Tensor
        if not _suits(x):
            pooled = super().forward(x)
        elif torch.is_grad_enabled():
            pooled = _HalvedTwice.apply(x)  # type: ignore[no-untyped-call]
        else:
            pooled = _halved_twice(x)[2].permute(0, 3, 1, 2)
        return pooled


def _suits(x: Tensor) -> bool:
    learns = torch.is_grad_enabled()
    return (
        (x.dtype == torch.bfloat16 or (x.dtype == torch.float32 and not learns))
        and x.numel() >= (LARGE if learns else MEDIUM)
        and x.device.type == "cpu"
        and x.dim() == 4
        and x.shape[2] % 2 == x.shape[3] % 2 == 0
        and x.is_contiguous(memory_format=torch.channels_last)
    )


def _halved_twice(x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """The windows, their maxima of columns and the whole maxima; of equal values that which torch takes, the first."""
    samples, channels, height, width = x.shape
    cells = x.permute(0, 2, 3, 1).view(samples, height // 2, 2, width // 2, 2, channels)
    columns = torch.maximum(cells[..., 1, :], cells[..., 0, :])  # (samples, height / 2, 2, width / 2, channels)
    largest = torch.maximum(columns[:, :, 1], columns[:, :, 0])  # (samples, height / 2, width / 2, channels)
    return cells, columns, largest


class _HalvedTwice(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        cells, columns, largest = _halved_twice(x)
        ctx.save_for_backward(cells, columns, largest)
        return largest.permute(0, 3, 1, 2)

    @staticmethod
    def backward(ctx: Any, slope: Tensor) -> Tensor:
        cells, columns, largest = (tensor.view(torch.int16) for tensor in ctx.saved_tensors)
        slopes = slope.permute(0, 2, 3, 1).contiguous().view(torch.int16)
        by_column = _divide(slopes, columns[:, :, 0], largest, torch.empty_like(columns), -3)
        divided = _divide(by_column, cells[..., 0, :], columns, torch.empty_like(cells), -2)
        samples, height, _, width, _, channels = cells.shape
        found = divided.view(torch.bfloat16).view(samples, 2 * height, 2 * width, channels)
        return found.permute(0, 3, 1, 2)


def _divide(slopes: Tensor, first: Tensor, largest: Tensor, out: Tensor, dim: int) -> Tensor:
    """The slopes, as bits, for the first half where it is the largest, otherwise for the second."""
    here = torch.eq(first, largest, out=torch.empty_like(largest))  # 1 or 0
    torch.mul(slopes, here, out=out.select(dim, 0))
    torch.bitwise_xor(slopes, out.select(dim, 0), out=out.select(dim, 1))
    return out
