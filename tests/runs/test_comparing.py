"""What a comparison makes sure of before it begins."""

from pathlib import Path
from typing import ClassVar

import pytest

import fedtailor
from fedtailor.methods import Method
from fedtailor.views.comparison import comparison_grid
from fedtailor.views.report import report


class Lacking(Method):
    """A method that needs what is not here."""

    name: ClassVar = "lacking"

    def check(self) -> None:
        raise fedtailor.UserError("lacking needs a library")


def test_what_the_last_method_lacks_is_said_before_the_first_runs(tmp_path: Path) -> None:
    settings = {"rounds": 1, "data": {"clients": 4, "samples": 200}, "engine": {"kind": "inline"}}
    methods = ["local", {"name": "tests.runs.test_comparing:Lacking"}]
    with pytest.raises(fedtailor.UserError, match="needs a library"):
        fedtailor.compare(settings, methods=methods, folder=tmp_path / "two")
    assert not (tmp_path / "two").exists()


def test_a_folder_holds_one_comparison_however_long_agents_learn_elsewhere(tmp_path: Path) -> None:
    settings = {"rounds": 1, "data": {"clients": 2, "samples": 80}, "engine": {"kind": "inline"}}
    fedtailor.compare(settings, methods=["local"], folder=tmp_path / "one")
    longer = {**settings, "pretrain": {"episodes": 7}}
    assert fedtailor.compare(longer, methods=["local", "fedavg"], folder=tmp_path / "one").finished()
    with pytest.raises(fedtailor.UserError, match="holds something else"):
        fedtailor.compare({**settings, "rounds": 2}, methods=["local"], folder=tmp_path / "one")


SMALL = {"rounds": 1, "data": {"clients": 4, "samples": 200}, "engine": {"kind": "inline"}, "training": {"lr": 0.1}}


def test_rows_that_are_equal_by_construction_are_noted_with_the_reason(tmp_path: Path) -> None:
    settings = {**SMALL, "training": {"epochs": 5, "lr": 0.1}}
    methods = ["local", "fedavg", "fedavg-ft"]
    found = fedtailor.compare(settings, methods=methods, folder=tmp_path / "five").summary()
    (note,) = found.notes
    assert note.rows == ("fedavg", "fedavg-ft")
    assert "every client has the same score" in note.sentence
    assert "ft_epochs = 5 is the local training of FedAvg" in note.sentence
    settings["training"]["epochs"] = 2
    assert fedtailor.compare(settings, methods=methods, folder=tmp_path / "two").summary().notes == ()


def test_what_a_method_warned_about_is_stored_and_stands_below_every_table(tmp_path: Path) -> None:
    learner = {"label": "bwa", "name": "bwa", "policy": "none"}
    made = fedtailor.compare(SMALL, methods=["fedavg", learner], folder=tmp_path / "one")
    (note,) = made.summary().notes
    assert note.rows == ("bwa",)
    assert "without a policy it only explores" in note.sentence
    assert note.sentence in "\n".join(comparison_grid(made.summary()).notes)
    with fedtailor.Run(tmp_path / "one" / "bwa-s0") as run:
        assert run.warnings == run.summary().warnings == (note.sentence,)
        assert f"Warning: {note.sentence}" in report(run)


def test_rows_are_sorted_and_compared_with_the_baseline_that_is_chosen(tmp_path: Path) -> None:
    settings = {**SMALL, "compare": {"baseline": "local"}}
    found = fedtailor.compare(settings, methods=["fedavg", "local"], seeds=[0, 1, 2], folder=tmp_path / "one").summary()
    means = [row.headline["final"].mean for row in found.table]
    assert means == sorted(means, reverse=True)  # type: ignore[type-var]
    assert found.row("local").difference is None
    row = found.row("fedavg")
    assert row.difference is not None
    assert row.wins is not None
    gap = found.row("fedavg").headline["final"].mean - found.row("local").headline["final"].mean  # type: ignore[operator]
    assert row.difference.mean == pytest.approx(100 * gap)
    assert row.wins.won + row.wins.tied + row.wins.lost == 12
    assert found.as_dict()["comparisons"] == 1


def test_a_baseline_that_is_not_compared_is_refused(tmp_path: Path) -> None:
    settings = {**SMALL, "compare": {"baseline": "fedprox"}}
    with pytest.raises(fedtailor.UserError, match=r"compare.baseline = 'fedprox'"):
        fedtailor.compare(settings, methods=["fedavg"], folder=tmp_path / "one")
    assert not (tmp_path / "one").exists()


def test_runs_that_have_not_begun_keep_the_engine_when_a_comparison_is_resumed(tmp_path: Path) -> None:
    fedtailor.compare(SMALL, methods=["local"], folder=tmp_path / "one")
    kept = fedtailor.Comparison(tmp_path / "one").experiment
    assert kept.engine.kind == "inline"
    fedtailor.compare(kept, methods=["local", "fedavg"], folder=tmp_path / "one")
    with fedtailor.Run(tmp_path / "one" / "fedavg-s0") as run:
        assert run.settings["engine"]["kind"] == "inline"
