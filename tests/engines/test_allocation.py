"""Memory that is freed stays with the coordinator."""

import platform
import subprocess
import sys

import pytest

# glibc's mallinfo2 returns ten numbers; the fourth counts the blocks that the system gave directly, and gets back.
MAPPED = """
import ctypes, sys, torch
from fedtailor.engines.allocation import keep_memory
class Info(ctypes.Structure):
    _fields_ = [(f"n{i}", ctypes.c_size_t) for i in range(10)]
library = ctypes.CDLL(None)
library.mallinfo2.restype = Info
if sys.argv[1] == "kept":
    keep_memory()
before = library.mallinfo2().n3
model = torch.ones(30 * 2**18)
print(library.mallinfo2().n3 - before)
"""


def mapped(how: str) -> int:
    done = subprocess.run([sys.executable, "-c", MAPPED, how], capture_output=True, text=True, check=True)
    return int(done.stdout)


@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="the setting is one of glibc")
def test_the_memory_of_a_model_is_not_given_back_to_the_system() -> None:
    assert (mapped("kept"), mapped("given back")) == (0, 1)
