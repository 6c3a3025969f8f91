"""The versions that a result depends on."""

import platform
from collections.abc import Mapping
from typing import Any

from fedtailor.version import __version__


def environment() -> dict[str, Any]:
    """Versions of FedTailor and of the libraries it computes with, and the kind of CPU."""
    import numpy
    import torch

    return {
        "fedtailor": __version__,
        "python": platform.python_version(),
        "torch": torch.__version__,
        "numpy": numpy.__version__,
        "platform": f"{platform.system()} {platform.machine()}",
        "cpu": torch.backends.cpu.get_cpu_capability(),
    }


def differences(recorded: Mapping[str, Any]) -> str:
    """The recorded versions that differ from those of this process, as text; empty if none differs."""
    now = environment()
    return ", ".join(f"{key} {value}" for key, value in recorded.items() if now.get(key) != value)
