"""Memory that is freed stays with the coordinator."""

import platform
import subprocess
import sys

import pytest

FAULTS = """
import resource, sys, torch
from fedtailor.engines.allocation import keep_memory
if sys.argv[1] == "kept":
    keep_memory()
for _ in range(3):
    begin = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
    for _ in range(5):
        models = [torch.ones(2**20) for _ in range(20)]
        del models
print(resource.getrusage(resource.RUSAGE_SELF).ru_minflt - begin)
"""


def faults(how: str) -> int:
    done = subprocess.run([sys.executable, "-c", FAULTS, how], capture_output=True, text=True, check=True)
    return int(done.stdout)


@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="the setting is one of glibc")
def test_freed_models_are_not_fetched_again_from_the_system() -> None:
    assert faults("kept") < 1000 < faults("given back")
