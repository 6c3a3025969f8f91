"""A finished run whose clients have validation samples, and an export of one client in every format."""

from pathlib import Path
from typing import Any

import pytest

import fedtailor

SETTINGS: dict[str, Any] = {
    "name": "small",
    "rounds": 2,
    "data": {"clients": 3, "samples": 360, "split": {"train": 0.5, "val": 0.25, "test": 0.25}},
    "training": {"epochs": 2, "lr": 0.1},
    "method": {"name": "fedper"},
    "engine": {"kind": "inline"},
}


@pytest.fixture(scope="package")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("exporting") / "run"
    fedtailor.run(SETTINGS, folder=folder).close()
    return folder


@pytest.fixture(scope="package")
def exported(run: Path) -> Path:
    """The export of client 1; only to be looked at."""
    pytest.importorskip("onnxruntime")
    pytest.importorskip("onnxscript")
    return fedtailor.export_client(
        run, 1, run.parent / "export", formats=["safetensors", "torch", "onnx"], licence="CC BY 4.0"
    )
