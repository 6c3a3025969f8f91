"""A run that gets more rounds ends as if it had been meant to have them, to the bit; otherwise it is refused."""

from pathlib import Path
from typing import Any

import pytest

import fedtailor
from fedtailor.errors import UserError
from fedtailor.methods import Method
from tests.support.fingerprint import assert_same, fingerprint

SHORT: dict[str, Any] = {
    "rounds": 2,
    "data": {"clients": 6, "samples": 240},
    "training": {"epochs": 1, "lr": 0.1, "schedule": {"kind": "exponential"}},
    "participation": {"ratio": 0.5, "dropout": 0.2},
    "evaluation": {"every": 3, "new_clients": 0.1},
    "engine": {"kind": "inline"},
}


@pytest.mark.parametrize("method", ["fedper", "pfedrlla", "feddrl"])
def test_more_rounds_are_those_of_a_run_that_was_meant_so(method: str, tmp_path: Path) -> None:
    """Round 2 is evaluated only because it is the last; the run of five rounds evaluates 3 and 5."""
    settings = {**SHORT, "method": {"name": method}}
    fedtailor.run(settings, folder=tmp_path / "grown").close()
    assert any(row["round"] == 2 for row in fingerprint(tmp_path / "grown")["metrics"])
    with fedtailor.resume(tmp_path / "grown", rounds=5) as run:
        assert run.finished
        assert run.settings["rounds"] == 5
        assert run.has_model(0)
    fedtailor.run({**settings, "rounds": 5}, folder=tmp_path / "meant").close()
    assert_same(tmp_path / "grown", tmp_path / "meant")
    assert "rounds = 5" in (tmp_path / "grown" / "experiment.toml").read_text()


class Waning(Method):
    """A user's own method that depends on the number of rounds and does not say so."""

    def fit(self, client: Any) -> None:
        client.train(lr=0.1 / client.rounds)


@pytest.mark.parametrize(
    ("changes", "sentence"),
    [
        ({"method": {"name": "fedalp"}}, "its warm-up is a share of all rounds"),
        ({"method": {"name": "fedphp"}}, "inherited model"),
        ({"method": {"name": "bwa", "policy": "none"}}, "ends with its last round"),
        ({"method": {"name": "fedddrl", "policy": "none"}}, "ends with its last round"),
        ({"method": {"name": "tests.runs.test_growing:Waning"}}, r"uses \.rounds"),
        ({"training": {"epochs": 1, "schedule": {"kind": "cosine"}}}, "cosine"),
    ],
    ids=["fedalp", "fedphp", "bwa", "fedddrl", "own", "cosine"],
)
def test_a_run_that_depends_on_its_length_is_refused_and_stays(
    changes: dict[str, Any], sentence: str, tmp_path: Path
) -> None:
    few = {"rounds": 1, "data": {"clients": 3, "samples": 90}, "evaluation": {"every": 0}}
    fedtailor.run({**SHORT, **few, **changes}, folder=tmp_path / "run").close()
    before = fingerprint(tmp_path / "run")
    with pytest.raises(UserError, match=sentence):
        fedtailor.resume(tmp_path / "run", rounds=3)
    with fedtailor.Run(tmp_path / "run") as run:
        assert run.finished
    assert fingerprint(tmp_path / "run") == before


def test_fewer_rounds_are_refused(tmp_path: Path) -> None:
    fedtailor.run({**SHORT, "evaluation": {"every": 0, "final": False}}, folder=tmp_path / "run").close()
    with pytest.raises(UserError, match="it can have more"):
        fedtailor.resume(tmp_path / "run", rounds=1)
