"""A run that gets more rounds ends as if it had been meant to have them, to the bit; otherwise it is refused."""

import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

import fedtailor
from fedtailor.errors import UserError
from fedtailor.methods import Method
from fedtailor.runs.pruning import delete, prunable
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


KILLED = """
import os, signal, sys
from pathlib import Path
import fedtailor
from fedtailor.runs import extending
from tests.support.killable import die_at

folder = Path(sys.argv[1])
for count in (1, -1, 3, 30):  # writes: in the transaction that grows the run, and in rounds
    if not os.fork():
        if count < 0:  # the settings are stored, and their file is not
            extending.os.replace = lambda *_: os.kill(os.getpid(), signal.SIGKILL)
        else:
            die_at(count)
        fedtailor.resume(folder, rounds=5)
        os._exit(3)
    _, ended = os.wait()
    assert os.waitstatus_to_exitcode(ended) == -signal.SIGKILL, (count, ended)
    with fedtailor.Run(folder) as run:
        print(run.rounds_done, run.settings["rounds"], flush=True)
"""


def test_a_run_that_is_killed_while_it_gets_more_rounds_loses_nothing(tmp_path: Path) -> None:
    settings = {**SHORT, "method": {"name": "fedper"}}
    fedtailor.run(settings, folder=tmp_path / "grown").close()
    script = [sys.executable, "-c", KILLED, str(tmp_path / "grown")]
    done = subprocess.run(script, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    seen = [tuple(map(int, line.split())) for line in done.stdout.splitlines()]
    assert seen[0] == (2, 2), "the first kill changed something"
    assert [rounds for _, rounds in seen[1:]] == [5, 5, 5]
    assert 2 < seen[3][0] < 5
    fedtailor.resume(tmp_path / "grown", rounds=5).close()
    fedtailor.run({**settings, "rounds": 5}, folder=tmp_path / "meant").close()
    assert_same(tmp_path / "grown", tmp_path / "meant")
    assert "rounds = 5" in (tmp_path / "grown" / "experiment.toml").read_text()
    (tmp_path / "grown" / ".experiment.toml").touch()  # of a kill that nobody resumed
    (item,) = [item for item in prunable(tmp_path) if item.name == "grown" and item.kind == "run"]
    delete([item])
    assert not (tmp_path / "grown").exists(), "what a kill left does not keep the run from being deleted"


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
        ({"method": {"name": "tests.runs.test_extending:Waning"}}, r"uses \.rounds"),
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
