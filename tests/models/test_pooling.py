"""The fast pool gives the bits of torch's, and only where it is meant to be used."""

import pytest
import torch
from torch import Tensor, nn

from fedtailor.models import pooling
from fedtailor.models.pooling import Pool


def images(samples: int, side: int, dtype: torch.dtype = torch.bfloat16) -> Tensor:
    """Few different values, so that many windows have two largest ones; no zeros."""
    made = torch.randint(1, 5, (samples, 32, side, side), generator=torch.Generator().manual_seed(samples))
    return made.to(dtype).to(memory_format=torch.channels_last)


def pooled(pool: nn.Module, x: Tensor) -> tuple[Tensor, Tensor]:
    """The output, and the gradient for arbitrary slopes."""
    given = x.clone().requires_grad_()
    outputs = pool(given)
    slopes = torch.randn(outputs.shape, generator=torch.Generator().manual_seed(1)).to(x.dtype)
    return outputs.detach(), torch.autograd.grad(outputs, given, slopes)[0]


@pytest.mark.parametrize(("samples", "side"), [(30, 24), (520, 6)])
def test_outputs_and_gradients_have_the_bits_of_torch(samples: int, side: int) -> None:
    x = images(samples, side)
    assert pooling._suits(x)
    for ours, theirs in zip(pooled(Pool(), x), pooled(nn.MaxPool2d(2), x), strict=True):
        assert torch.equal(ours, theirs)
        assert ours.stride() == theirs.stride()


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float32], ids=str)
@pytest.mark.parametrize(("samples", "side"), [(2, 24), (30, 24), (520, 6)])
def test_without_a_gradient_outputs_have_the_bits_of_torch(samples: int, side: int, dtype: torch.dtype) -> None:
    x = images(samples, side, dtype)
    x[0, 0, 0, 0], x[1, 1, 1, 1], x[1, 2, 3, 3] = torch.nan, torch.inf, -torch.inf
    with torch.inference_mode():
        assert pooling._suits(x)
        ours, theirs = Pool()(x), nn.MaxPool2d(2)(x)
    assert torch.equal(ours.nan_to_num(-7), theirs.nan_to_num(-7))
    assert ours.isnan().sum() == 1
    assert ours.stride() == theirs.stride()


@pytest.mark.parametrize(
    "x",
    [
        images(2, 24),  # small: the calls cost more than they save
        images(30, 25),  # an odd side
        images(30, 24, torch.float32),
        images(30, 24).contiguous(),
    ],
    ids=["small", "odd", "fp32", "not channels-last"],
)
def test_everything_else_is_pooled_by_torch(x: Tensor) -> None:
    assert not pooling._suits(x)
    assert torch.equal(Pool()(x), nn.MaxPool2d(2)(x))
