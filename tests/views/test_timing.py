"""Where the time of a run went, as a table."""

from pathlib import Path

import pytest

import fedtailor
from fedtailor.__main__ import main
from fedtailor.errors import UserError
from fedtailor.views.timing import phases_by_round, profile, profile_document, profile_grid


def phase(round: int, name: str, seconds: float) -> dict[str, object]:
    return {"episode": 0, "round": round, "phase": name, "seconds": seconds}


def test_hand_two_rounds() -> None:
    """Rounds of 4 and 6 s: training 5, the database 1, so 4 of 10 s are in no phase; workers: 6 s busy, 2 idle."""
    rows = [phase(1, "train", 2.0), phase(2, "train", 3.0), phase(2, "store", 1.0)]
    found = profile([*rows, phase(1, "busy", 6.0), phase(2, "idle", 2.0)], [4.0, 6.0], "runs/here")
    assert found == {
        "rounds": 2,
        "seconds": 10.0,
        "phases": {"train": 5.0, "store": 1.0, "other": 4.0},
        "workers": {"busy": 6.0, "idle": 2.0},
    }
    cells = {row[0]: row[1:4] for row in profile_grid(found).rows}
    assert cells["train"] == ("5.00", "2.500", "50.0 %")
    assert cells["all"] == ("10.00", "5.000", "100.0 %")
    assert cells["idle"] == ("2.00", "1.000", "25.0 %")


def test_hand_each_worker() -> None:
    """The server waited 5 s for tasks: worker 0 trained for 3 and tested for 1, worker 1 trained for 2."""
    rows = [phase(1, "train", 4.0), phase(1, "evaluate", 1.0), phase(1, "worker 0 train", 3.0)]
    rows += [phase(1, "worker 0 evaluate", 1.0), phase(1, "worker 1 train", 2.0), phase(1, "busy", 6.0)]
    found = profile([*rows, phase(1, "idle", 4.0)], [6.0], "runs/here")
    assert found["phases"] == {"train": 4.0, "evaluate": 1.0, "other": 1.0}
    assert found["each_worker"] == [
        {"worker": 0, "train": 3.0, "evaluate": 1.0, "idle": 1.0},
        {"worker": 1, "train": 2.0, "evaluate": 0.0, "idle": 3.0},
    ]
    assert sum(one["idle"] for one in found["each_worker"]) == found["workers"]["idle"]
    cells = {row[0]: row[1:4] for row in profile_grid(found).rows}
    assert cells["worker 1 idle"] == ("3.00", "3.000", "60.0 %")


def test_hand_every_round_by_phase() -> None:
    """Rounds of 4 and 6 s, of which 2 and 4 are in phases: what is left is 2 and 2."""
    rows = [phase(1, "train", 2.0), phase(2, "train", 3.0), phase(2, "store", 1.0), phase(1, "busy", 6.0)]
    rounds = [{"episode": 0, "round": 1, "seconds": 4.0}, {"episode": 0, "round": 2, "seconds": 6.0}]
    assert phases_by_round(rows, rounds) == {
        "round": [1, 2],
        "phases": {"train": [2.0, 3.0], "store": [0.0, 1.0], "other": [2.0, 2.0]},
        "workers": {"busy": [6.0, 0.0], "idle": [0.0, 0.0]},
    }


def test_the_phases_of_a_run_are_its_time(tmp_path: Path) -> None:
    settings = {"rounds": 2, "data": {"clients": 3, "samples": 100}, "engine": {"kind": "inline"}}
    with fedtailor.run(settings, folder=tmp_path / "run") as run:
        found = profile_document(run)
    assert {"train", "evaluate", "server", "store"} <= found["phases"].keys()
    assert found["workers"]["busy"] > 0
    (alone,) = found["each_worker"]
    assert alone["train"] > 0 < alone["evaluate"]
    assert alone["train"] + alone["evaluate"] == pytest.approx(found["workers"]["busy"])
    assert main(["show", str(tmp_path / "run"), "--profile", "--picture", str(tmp_path / "p.png")]) == 0
    assert (tmp_path / "p.png").read_bytes().startswith(b"\x89PNG")
    assert main(["show", str(tmp_path / "run"), "--picture", "p.png"]) == 2
    assert main(["show", str(tmp_path / "run"), "--profile", "--picture", str(tmp_path / "p.txt")]) == 2


def test_a_run_without_phases_is_told_of() -> None:
    with pytest.raises(UserError, match="runs/old has no measured phases"):
        profile([], [1.0], "runs/old")
