"""Curves hold the numbers of the runs, and pictures can be drawn of any run."""

from pathlib import Path
from statistics import fmean, stdev
from typing import Any

import pytest

from fedtailor.runs import Comparison, Run, compare, run
from fedtailor.views.curves import comparison_curves, draw_comparison, draw_run
from fedtailor.views.report import report, write_report

SMALL: dict[str, Any] = {
    "rounds": 3,
    "data": {"clients": 4},
    "training": {"batch_size": 64},
    "engine": {"kind": "inline"},
}


@pytest.fixture(scope="module")
def comparison(tmp_path_factory: pytest.TempPathFactory) -> Comparison:
    folder = tmp_path_factory.mktemp("views") / "cmp"
    return compare({**SMALL, "name": "cmp"}, methods=["local", "fedavg"], seeds=[0, 1], folder=folder)


def is_picture(path: Path) -> bool:
    return path.read_bytes().startswith(b"\x89PNG") and path.stat().st_size > 5000


def values(comparison: Comparison, method: str, model: str, round: int) -> list[float]:
    found = []
    for seed in (0, 1):
        with Run(comparison.folder / f"{method}-s{seed}") as one:
            found += [100 * row["accuracy"] for row in one.metrics(model) if row["round"] == round]
    return found


def test_a_curve_is_the_mean_over_seeds_of_the_held_model(comparison: Comparison) -> None:
    curves = {curve.label: curve for curve in comparison_curves(comparison)}
    for method, curve in curves.items():
        assert curve.rounds == [1, 2, 3]
        last = values(comparison, method, "held", 3)
        assert curve.means[-1] == pytest.approx(fmean(last))
        assert curve.spreads[-1] == pytest.approx(stdev(last))
        assert sorted(curve.final) == pytest.approx(sorted(values(comparison, method, "final", 3)))


def test_the_best_method_comes_first(comparison: Comparison) -> None:
    ends = [fmean(curve.final) for curve in comparison_curves(comparison)]
    assert ends == sorted(ends, reverse=True)


def test_a_comparison_is_drawn(comparison: Comparison, tmp_path: Path) -> None:
    assert is_picture(draw_comparison(comparison, tmp_path / "c.png"))


@pytest.mark.parametrize(
    "changes",
    [
        {},
        {"rounds": 1},
        {"evaluation": {"every": 0}},
        {"evaluation": {"every": 0, "final": False}},
        {"evaluation": {"models": ["received"], "final": False}},
        {"participation": {"clients": 1, "dropout": 0.5}},
    ],
    ids=str,
)
def test_every_run_can_be_drawn_and_reported(tmp_path: Path, changes: dict[str, Any]) -> None:
    with run({**SMALL, **changes}, folder=tmp_path / "run") as done:
        assert is_picture(draw_run(done, tmp_path / "r.png"))
        assert [path.name for path in write_report(done)] == ["curves.png", "report.md"]
        text = report(done)
    assert "## Versions" in text
    if "participation" in changes:
        assert "dropped out" in text
        assert "never trained" in text
