"""Small runs of methods that have panels, made once."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import fedtailor

SMALL: dict[str, Any] = {
    "rounds": 3,
    "data": {"clients": 6, "samples": 240, "partition": {"kind": "dirichlet", "alpha": 0.5}},
    "model": {"name": "mlp"},
    "training": {"epochs": 2},
    "engine": {"kind": "inline"},
}
DEVICES = {"speed": 0.001, "profiles": {"kind": "uniform", "spread": 10}}
CHANGES: dict[str, dict[str, Any]] = {
    "pfedrlla": {"participation": {"ratio": 0.7, "dropout": 0.2}},
    "fedalp": {"method": {"name": "fedalp", "groups": 2}},
    "fedah": {},
    "bwa": {"participation": {"ratio": 0.5}},
    "hapfl": {"method": {"name": "hapfl", "sizes": ["small", "large"]}, "devices": DEVICES},
    "feddrl": {},
    "ifca": {},
    "fedavg": {},
}

Made = Callable[..., Path]


@pytest.fixture(scope="session")
def made(tmp_path_factory: pytest.TempPathFactory) -> Made:
    """The folder of a finished run of a method; further settings make another one."""
    found: dict[str, Path] = {}

    def folder(name: str, **more: Any) -> Path:
        key = f"{name}{more}"
        if key not in found:
            place = tmp_path_factory.mktemp("panels") / "run"
            fedtailor.run({**SMALL, "method": {"name": name}, **CHANGES[name], **more}, folder=place).close()
            found[key] = place
        return found[key]

    return folder
