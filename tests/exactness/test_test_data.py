"""Test data never influence training, selection or rewards."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

import fedtailor
from fedtailor.data import DataSettings, Federation, build
from fedtailor.methods import catalogue
from tests.support.fingerprint import fingerprint


def with_shuffled_test_labels(federation: Federation) -> Federation:
    labels = federation.samples.y.copy()
    tested = federation.test.indices
    labels[tested] = (labels[tested] + 1 + np.arange(len(tested)) % 8) % 10
    return replace(federation, samples=replace(federation.samples, y=labels))


@pytest.mark.parametrize("method", sorted(catalogue()))
def test_other_test_labels_change_test_metrics_only(method: str, tmp_path: Path) -> None:
    data = DataSettings.model_validate({"clients": 6, "samples": 300})
    real = build(data, 0, needs_validation=catalogue()[method].needs_validation)
    settings = {
        "rounds": 3,
        "method": {"name": method},
        "training": {"lr": 0.05, "epochs": 1},
        "engine": {"kind": "inline"},
    }
    fedtailor.run(settings, folder=tmp_path / "real", federation=real).close()
    fedtailor.run(settings, folder=tmp_path / "wrong", federation=with_shuffled_test_labels(real)).close()
    one, other = fingerprint(tmp_path / "real"), fingerprint(tmp_path / "wrong")
    for table in ("rounds", "tasks", "events", "decisions", "state"):
        assert one[table] == other[table], f"{table} depends on test data"
    assert one["metrics"] != other["metrics"]
