"""Results as pages that a command writes."""

from pathlib import Path

import pytest

import fedtailor
from fedtailor.views.publishing import publish

SETTINGS = {
    "name": "two",
    "rounds": 2,
    "data": {"clients": 4, "samples": 200},
    "training": {"epochs": 1},
    "engine": {"kind": "inline"},
}


def test_a_comparison_is_published_with_table_picture_settings_versions_and_time(tmp_path: Path) -> None:
    comparison = fedtailor.compare(SETTINGS, methods=["local", "fedavg"], seeds=[0], folder=tmp_path / "two")
    page, picture = publish(comparison, tmp_path / "docs", "mine")
    text = page.read_text(encoding="utf-8")
    row = next(row for row in comparison.table() if row["method"] == "fedavg")
    assert f"{100 * row['final']:.1f}" in text
    assert "| local " in text
    assert "torch" in text
    assert "![accuracy over rounds](mine.png)" in text
    assert picture.read_bytes().startswith(b"\x89PNG")
    assert str(tmp_path) not in text  # no path of the machine


def test_a_comparison_without_a_finished_run_is_not_published(tmp_path: Path) -> None:
    comparison = fedtailor.compare(SETTINGS, methods=["local"], seeds=[0], folder=tmp_path / "two")
    for path in (tmp_path / "two").glob("local-s0/*"):
        path.unlink()
    with pytest.raises(fedtailor.UserError, match="no finished run"):
        publish(comparison, tmp_path / "docs")
    assert not (tmp_path / "docs").exists()
