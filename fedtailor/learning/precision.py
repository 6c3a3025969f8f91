"""The precision of local training: which devices compute in bf16 natively, and how a network does."""

from contextlib import AbstractContextManager, nullcontext

import torch

from fedtailor.learning.settings import Precision
from fedtailor.models import Network, in_bf16
from fedtailor.models.processor import announced, matrix_units

# torch's names of the instructions: Intel and AMD, Intel's matrix units, ARM
INSTRUCTIONS = ("avx512_bf16", "amx_bf16", "bf16")


def computing(network: Network, precision: Precision) -> AbstractContextManager[None]:
    """Let the network compute in this precision inside the block. Its weights stay in fp32."""
    if precision == "auto":
        raise ValueError("precision = 'auto' is not resolved: see `resolved`")
    return in_bf16(network) if precision == "bf16" else nullcontext()


def fails_in_bf16(network: Network) -> str:
    """Why a forward and backward pass in bf16 is impossible; empty if it is possible."""
    network.module.eval()  # so that running statistics stay as they are
    try:
        with in_bf16(network):
            outputs = network(network.inputs.example())
            torch.autograd.grad(outputs.sum(), list(network.parameters().values()), allow_unused=True)
    except (RuntimeError, TypeError, ValueError) as error:
        return str(error).splitlines()[0]
    return ""


def native_bf16(device: str = "cpu") -> bool:
    """Whether this device has instructions that make bf16 fast. Others emulate it, which is slower than fp32.

    A processor with matrix units that oneDNN does without is slower in bf16 than in fp32 too.
    """
    if device.startswith("cuda"):
        return torch.cuda.is_available() and torch.cuda.is_bf16_supported(including_emulation=False)
    if announced() and not matrix_units():
        return False
    found = torch.cpu.get_capabilities()
    return device == "cpu" and any(found.get(instruction, False) for instruction in INSTRUCTIONS)


def resolved(precision: Precision, device: str) -> Precision:
    """The precision that ``auto`` means on this device: bf16 where it is native, otherwise fp32."""
    if precision != "auto":
        return precision
    return "bf16" if native_bf16(device) else "fp32"
