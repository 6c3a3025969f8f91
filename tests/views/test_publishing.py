"""Results as pages that a command writes."""

from pathlib import Path

import pytest

import fedtailor
from fedtailor.views.publishing import publish, took

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
    row = next(row for row in comparison.table() if row.method == "fedavg")
    assert f"{100 * row.accuracy['final'].mean:.1f}" in text
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
    assert [row.method for row in comparison.table()] == ["fedprox", "fedprox mu=0.5", "strong"]
    with fedtailor.Run(tmp_path / "two" / "strong-s0") as strong:
        assert strong.experiment.method.mu == 0.9
    page, _ = publish(comparison, tmp_path / "docs", "mine")
    assert "| strong " in page.read_text(encoding="utf-8")


@pytest.mark.parametrize(
    ("methods", "said"),
    [
        ([{"label": "", "name": "fedavg"}], 'as in label = "ours"'),
        ([{"label": 3, "name": "fedavg"}], "the label 3"),
        ([{"label": ["a"], "name": "fedavg"}], "the label"),
        ([{"label": "...", "name": "fedavg"}], "the label"),
        ([{"label": "long" * 30, "name": "fedavg"}], "at most 100 letters"),
        ([{"label": "a b", "name": "fedavg"}, {"label": "a_b", "name": "local"}], "'a_b' twice"),
    ],
)
def test_a_label_that_is_none_is_refused_before_anything_is_written(tmp_path: Path, methods: list, said: str) -> None:
    with pytest.raises(fedtailor.UserError, match=said):
        fedtailor.compare(SETTINGS, methods=methods, seeds=[0], folder=tmp_path / "two")
    assert not (tmp_path / "two").exists()


def test_a_label_cannot_stand_for_other_settings_later(tmp_path: Path) -> None:
    def strong(mu: float) -> list[dict[str, object]]:
        return [{"label": "strong", "name": "fedprox", "mu": mu}]

    fedtailor.compare(SETTINGS, methods=strong(0.5), seeds=[0], folder=tmp_path / "two")
    plan = (tmp_path / "two" / "comparison.toml").read_text()
    with pytest.raises(fedtailor.UserError, match="strong-s0 holds a run with other settings"):
        fedtailor.compare(SETTINGS, methods=["local", *strong(0.9)], seeds=[0], folder=tmp_path / "two")
    assert (tmp_path / "two" / "comparison.toml").read_text() == plan
    assert not (tmp_path / "two" / "local-s0").exists()
    assert fedtailor.compare(SETTINGS, methods=strong(0.5), seeds=[0], folder=tmp_path / "two").table()


def test_the_last_line_of_a_gathered_page_counts_runs_and_their_seconds(tmp_path: Path) -> None:
    fedtailor.compare(SETTINGS, methods=["local", "fedavg"], seeds=[0], folder=tmp_path / "two")
    line = took((tmp_path / "two").rglob("run.db"), [0, 4])
    assert line.startswith("Seeds 0, 4; the rounds of 2 runs took ")
    assert "torch 2" in line
