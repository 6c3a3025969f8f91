"""Labels of the methods of a comparison."""

from pathlib import Path

import pytest

import fedtailor

SETTINGS = {
    "name": "two",
    "rounds": 2,
    "data": {"clients": 4, "samples": 200},
    "training": {"epochs": 1},
    "engine": {"kind": "inline"},
}


def test_a_label_stands_for_a_method_with_many_settings(tmp_path: Path) -> None:
    methods = ["fedprox", {"name": "fedprox", "mu": 0.5}, {"label": "strong", "name": "fedprox", "mu": 0.9}]
    comparison = fedtailor.compare(SETTINGS, methods=methods, seeds=[0], folder=tmp_path / "two")
    assert [row.method for row in comparison.table()] == ["fedprox", "fedprox mu=0.5", "strong"]
    with fedtailor.Run(tmp_path / "two" / "strong-s0") as strong:
        assert strong.experiment.method.mu == 0.9


@pytest.mark.parametrize(
    ("methods", "said"),
    [
        ([{"label": "", "name": "fedavg"}], 'as in label = "ours"'),
        ([{"label": 3, "name": "fedavg"}], "the label 3"),
        ([{"label": ["a"], "name": "fedavg"}], "the label"),
        ([{"label": "...", "name": "fedavg"}], "the label"),
        ([{"label": "long" * 30, "name": "fedavg"}], "at most 100 characters"),
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
