"""Runs whose clients have names that are markup, and a browser."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import fedtailor
from tests.support.browser import chromium

EVIL = ("<script>alert(1)</script>", '"><img src=x onerror=alert(2)>', "</script><b>c", "plain & simple")


@pytest.fixture(scope="session")
def named_run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A finished run whose clients' names are markup."""
    random = np.random.RandomState(0)
    clients = {}
    for shift, name in enumerate(EVIL):
        y = random.randint(0, 2, 40)
        clients[name] = (random.normal(y[:, None] * 2.0 + shift, 1.0, (40, 3)).astype(np.float32), y)
    federation = fedtailor.Federation.from_clients(clients)
    settings = {"name": "a & b", "rounds": 3, "engine": {"kind": "inline"}, "model": {"name": "mlp"}}
    folder = tmp_path_factory.mktemp("named") / "run"
    fedtailor.run(settings, folder=folder, federation=federation).close()
    return folder


@pytest.fixture(scope="session")
def compared(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A finished comparison of two methods with three seeds."""
    settings = {"name": "two", "rounds": 2, "data": {"clients": 4, "samples": 200}, "engine": {"kind": "inline"}}
    folder = tmp_path_factory.mktemp("compared") / "two"
    methods = ["local", {"name": "fedprox", "mu": 0.5, "label": "<b>strong</b>"}]
    fedtailor.compare(settings, methods=methods, seeds=[0, 1, 2], folder=folder)
    return folder


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    with chromium() as found:
        yield found
