"""Matrix units of the processor that exist but do not work.

Some virtual machines announce Intel's matrix units (AMX) and stop a process that uses them with an illegal
instruction. oneDNN, which computes for torch, uses them for bf16 wherever they are announced. So a process of its own
tries them once, before torch computes anything here; where it dies, oneDNN is told to do without them.
"""

import json
import os
import platform
import signal
import subprocess
import sys
from contextlib import suppress
from pathlib import Path

import torch

LIMIT = "ONEDNN_MAX_CPU_ISA"  # read by oneDNN when it computes for the first time; child processes inherit it
ALL, WITHOUT = "DEFAULT", "AVX512_CORE_BF16"
TRIAL = """
import resource
resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
import torch
torch.set_num_threads(1)
for size in (16, 64, 256):
    square = torch.ones(size, size, dtype=torch.bfloat16)
    square @ square
layer = torch.nn.Conv2d(32, 64, 5).bfloat16()
layer(torch.ones(4, 32, 12, 12, dtype=torch.bfloat16)).sum().backward()
"""


def matrix_units() -> bool:
    """Whether this processor announces matrix units for bf16, and oneDNN may use them."""
    limit = os.environ.get(LIMIT, ALL).upper()
    return announced() and (limit in (ALL, "ALL") or "AMX" in limit)


def announced() -> bool:
    """Whether this processor announces matrix units for bf16."""
    return bool(torch.cpu.get_capabilities().get("amx_bf16", False))


def avoid_broken_units(trial: str = TRIAL) -> None:
    """Try announced matrix units once per start of the machine, and do without them where the trial dies."""
    if LIMIT not in os.environ and announced():
        os.environ[LIMIT] = ALL if _known(trial) else WITHOUT


def survives(trial: str) -> bool:
    """Whether a Python process runs these lines without an illegal instruction. One that cannot start tells nothing."""
    if not sys.executable:
        return True
    nothing = subprocess.DEVNULL
    try:
        ended = subprocess.run(
            [sys.executable, "-c", trial], timeout=600, check=False, stdin=nothing, stdout=nothing, stderr=nothing
        )
    except (OSError, subprocess.TimeoutExpired):
        return True
    return ended.returncode != -signal.SIGILL  # other signals, as when memory is full, say nothing of the units


def _known(trial: str) -> bool:
    """The result of the trial, from a file if this version of torch was tried since the machine started."""
    home = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    file, boot = Path(home) / "fedtailor" / "matrix-units.json", Path("/proc/sys/kernel/random/boot_id")
    with suppress(OSError, ValueError):
        key = [boot.read_text().strip(), torch.__version__, platform.release(), trial]
        with suppress(OSError, ValueError):
            found = json.loads(file.read_text())
            if isinstance(found, dict) and found.get("key") == key:
                return bool(found.get("works"))
        works = survives(trial)
        with suppress(OSError):
            file.parent.mkdir(parents=True, exist_ok=True)
            draft = file.with_suffix(f".{os.getpid()}")
            draft.write_text(json.dumps({"key": key, "works": works}))
            draft.replace(file)
        return works
    return survives(trial)
