"""What `training.together` means for a run, and what a run says about it."""

from pathlib import Path
from typing import Any

import pytest

import fedtailor
from fedtailor import UserError
from fedtailor.runs import Resources
from fedtailor.runs.assembly import job_of

SMALL: dict[str, Any] = {"name": "mlp", "arguments": {"hidden": 12}}


def settings(together: str, **more: Any) -> dict[str, Any]:
    training = {"epochs": 1, "together": together, **more.pop("training", {})}
    usual = {"rounds": 1, "model": SMALL, "data": {"clients": 6, "samples": 120}, "engine": {"kind": "inline"}}
    return {**usual, "training": training, **more}


def test_auto_is_resolved_once_and_recorded_and_the_run_says_so(tmp_path: Path) -> None:
    with fedtailor.run(settings("auto"), folder=tmp_path / "run") as run:
        assert run.experiment.training.together == "on"
        assert run.warnings == (
            "training.together = 'auto' means 'on' here: linear layers 64-12-10, batches of 10, up to 32 clients in a "
            "stack",
        )
    assert 'together = "on"' in (tmp_path / "run" / "experiment.toml").read_text(encoding="utf-8")


@pytest.mark.parametrize("together", ["on", "off"])
def test_a_run_that_was_told_says_nothing(together: str, tmp_path: Path) -> None:
    with fedtailor.run(settings(together), folder=tmp_path / "run") as run:
        assert run.warnings == ()
        assert run.experiment.training.together == together


IMPOSSIBLE = [
    ({"method": {"name": "fedprox"}}, "fedprox has its own way to train"),
    ({"model": {"name": "digits-cnn"}}, "the network is not a sequence of linear layers and ReLUs"),
    ({"training": {"clip": 1.0}}, "training.clip is set"),
]


@pytest.mark.parametrize(("more", "reason"), IMPOSSIBLE)
def test_on_is_refused_where_it_is_impossible(more: dict[str, Any], reason: str, tmp_path: Path) -> None:
    with pytest.raises(UserError, match=f"training.together = 'on': {reason}: use 'off'"):
        fedtailor.run(settings("on", **more), folder=tmp_path / "run")
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize(
    ("more", "reason"),
    [
        *IMPOSSIBLE,
        ({"training": {"batch_size": 300}}, "batches of 300 with 1,280 weights are too large"),
        ({"participation": {"clients": 3}}, "a round has 3 clients, fewer than 4"),
    ],
)
def test_auto_means_off_elsewhere_and_the_run_says_why(more: dict[str, Any], reason: str, tmp_path: Path) -> None:
    with fedtailor.run(settings("auto", **more), folder=tmp_path / "run") as run:
        assert f"training.together = 'auto' means 'off' here: {reason}" in run.warnings
        assert run.experiment.training.together == "off"


@pytest.mark.parametrize(("hidden", "most"), [(12, 32), (600, 21), (5000, 2)])
def test_a_stack_holds_fewer_large_networks(hidden: int, most: int) -> None:
    model = {"name": "mlp", "arguments": {"hidden": hidden}}
    made = fedtailor.experiment(settings("on", model=model))
    assert job_of(made, Resources()).together == most
