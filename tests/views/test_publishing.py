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


def test_a_label_stands_for_a_method_with_many_settings(tmp_path: Path) -> None:
    methods = ["fedprox", {"name": "fedprox", "mu": 0.5}, {"label": "strong", "name": "fedprox", "mu": 0.9}]
    comparison = fedtailor.compare(SETTINGS, methods=methods, seeds=[0], folder=tmp_path / "two")
    assert [row["method"] for row in comparison.table()] == ["fedprox", "fedprox mu=0.5", "strong"]
    with fedtailor.Run(tmp_path / "two" / "strong-s0") as strong:
        assert strong.experiment.method.mu == 0.9
    page, _ = publish(comparison, tmp_path / "docs", "mine")
    assert "| strong " in page.read_text(encoding="utf-8")


@pytest.mark.parametrize(
    ("methods", "said"),
    [
        ([{"label": "", "name": "fedavg"}], 'give it a text, as in label = "ours"'),
        ([{"label": 3, "name": "fedavg"}], "the label 3"),
        ([{"label": "a b", "name": "fedavg"}, {"label": "a_b", "name": "local"}], "'a_b' twice"),
    ],
)
def test_a_label_that_is_none_is_refused_before_anything_is_written(tmp_path: Path, methods: list, said: str) -> None:
    with pytest.raises(fedtailor.UserError, match=said):
        fedtailor.compare(SETTINGS, methods=methods, seeds=[0], folder=tmp_path / "two")
    assert not (tmp_path / "two").exists()
