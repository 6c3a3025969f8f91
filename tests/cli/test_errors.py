"""What bad input gets: one sentence, exit code 2, no traceback, nothing written."""

import shutil
import sys
from pathlib import Path

import pytest

BAD = {
    "wrong key": (["run", "--set", "trainng.lr=1"], "training"),
    "wrong type": (["run", "--set", "rounds=many"], "rounds"),
    "out of range": (["run", "--set", "training.lr=-1"], "training.lr"),
    "agent's setting at the method": (
        ["run", "--method", "pfedrlla", "--set", "method.updates=5"],
        "did you mean method.agents.head_weights.updates?",
    ),
    "setting of two agents": (
        ["run", "--method", "hapfl", "--set", "method.clip=0.1"],
        "did you mean method.agents.size.clip or method.agents.intensity.clip?",
    ),
    "wrong key of an agent": (
        ["run", "--method", "pfedrlla", "--set", "method.agents.head-weights.warmpu=1"],
        "method.agents.head-weights.warmpu = 1",
    ),
    "wrong agent": (
        ["run", "--method", "pfedrlla", "--set", "method.agents.hed-weights.warmup=1"],
        "method.agents.hed-weights = ",
    ),
    "wrong key beside a kind": (
        ["run", "--method", "pfedrlla", "--set", "method.embedding.kidn=pca"],
        "did you mean 'kind'?",
    ),
    "layer without units": (
        ["run", "--method", "pfedrlla", "--set", "method.agents.head_weights.hidden=[0]"],
        "method.agents.head_weights.hidden",
    ),
    "unknown method": (["run", "--method", "fedpr"], "did you mean 'fedper'"),
    "unknown source": (["run", "--set", "data.source=minst"], "did you mean 'mnist'"),
    "impossible partition": (["run", "--set", "data.clients=5000"], "5000"),
    "no data": (["run", "--set", "data.source=mnist", "--data-dir", "nowhere"], "fedtailor data get mnist"),
    "missing file": (["run", "nowhere.toml"], "nowhere.toml does not exist"),
    "invalid TOML": (["run", "broken.toml"], "broken.toml"),
    "wrong key in a file": (["run", "wrong.toml"], "wrong.toml"),
    "run folder exists": (["run", "--name", "done"], "fedtailor resume runs/done"),
    "set without equals": (["run", "--set", "rounds"], "key=value"),
    "name with a slash": (["run", "--name", "a/b"], "name"),
    "unknown option": (["run", "--bogus"], "--bogus"),
    "unknown command": (["frobnicate"], "frobnicate"),
    "unknown engine": (["run", "--engine", "gpu"], "inline"),
    "no workers": (["run", "--workers", "0"], "engine.workers"),
    "damaged run, show": (["show", "runs/bad"], "damaged"),
    "damaged run, resume": (["resume", "runs/bad"], "damaged"),
    "damaged run, export": (["export", "runs/bad", "--client", "0"], "damaged"),
    "damaged beginning, show": (["show", "runs/headless"], "damaged"),
    "not a run, show": (["show", "."], "is not a run"),
    "not a run, resume": (["resume", "runs"], "is not a run"),
    "episodes of a run": (["resume", "runs/done", "--episodes", "3"], "not a pre-training"),
    "no episodes": (["resume", "runs/done", "--episodes", "0"], "--episodes"),
    "not a run, export": (["export", "runs", "--client", "0"], "is not a run"),
    "not a run, draw": (["draw", "runs"], "is not a run"),
    "damaged run, draw": (["draw", "runs/bad"], "damaged"),
    "no such client": (["export", "runs/done", "--client", "99"], "0 to 3"),
    "no such server model": (["export", "runs/done", "--group", "group 1"], "group 1"),
    "export of nothing": (["export", "runs/done"], "--client"),
    "export of both": (["export", "runs/done", "--client", "1", "--global"], "--client"),
    "list of nothing": (["list", "nowhere"], "nowhere does not exist"),
    "unknown method card": (["methods", "fedpr"], "did you mean 'fedper'"),
    "unknown data set": (["data", "get", "minst"], "did you mean 'mnist'"),
    "unknown picture": (["data", "show", "--out", "partition.txt"], ".png"),
    "picture nowhere": (["data", "show", "--out", "broken.toml/p.png"], "broken.toml"),
    "no devices": (["devices"], "[devices]"),
    "unknown devices": (["devices", "--set", "devices.profiles=unifrom"], "did you mean 'uniform'"),
    "no file of devices": (["run", "--set", "devices.profiles={kind='csv', file='no.csv'}"], "no.csv cannot be read"),
    "compared method": (["compare", "--methods", "fedavg,fedpr"], "did you mean 'fedper'"),
    "compared twice": (["compare", "--methods", "fedavg,fedavg"], "twice"),
    "seeds that are no numbers": (["compare", "--seeds", "a"], "--seeds"),
    "comparison in a run's folder": (["compare", "--name", "done"], "--name"),
}


@pytest.fixture
def place(finished: Path, tmp_path: Path) -> Path:
    """A folder with a good run, two damaged ones and bad files."""
    for name in ("done", "bad", "headless"):
        shutil.copytree(finished, tmp_path / "runs" / name)
    overwrite(tmp_path / "runs" / "bad" / "run.db", after=65_536)
    overwrite(tmp_path / "runs" / "headless" / "run.db", after=0)
    (tmp_path / "broken.toml").write_text("rounds = = 3")
    (tmp_path / "wrong.toml").write_text("[training]\nlearning_rate = 3")
    return tmp_path


def overwrite(path: Path, after: int) -> None:
    """Put garbage in the place of a database's pages."""
    content = path.read_bytes()
    path.write_bytes(content[:after] + b"\xa5" * (len(content) - after))


def listing(folder: Path) -> dict[str, bytes]:
    return {str(path): path.read_bytes() for path in sorted(folder.rglob("*")) if path.is_file()}


@pytest.mark.parametrize(("words", "said"), BAD.values(), ids=BAD.keys())
def test_bad_input_gets_one_sentence_and_writes_nothing(call, place: Path, words: list[str], said: str) -> None:
    before = listing(place)
    done = call(*words)
    assert done.code == 2
    assert done.out == ""
    assert len(done.err.splitlines()) == 1, done.err
    assert done.err.startswith("error: ")
    assert said in done.err
    assert listing(place) == before


def test_a_comparison_that_cannot_begin_writes_nothing(call, tmp_path: Path) -> None:
    done = call("compare", "--set", "data.clients=5000")
    assert done.code == 2
    assert list(tmp_path.iterdir()) == []


def test_the_author_of_a_method_sees_the_traceback(call, tmp_path: Path, small: list[str]) -> None:
    (tmp_path / "mine.py").write_text(
        "from fedtailor import Method\n"
        "class Mine(Method):\n"
        "    def fit(self, client):\n"
        "        raise ArithmeticError('my mistake')\n"
    )
    try:
        done = call("run", *small, "--method", "mine:Mine", "--quiet")
    finally:
        sys.modules.pop("mine", None)
    assert done.code == 2
    assert "Traceback" in done.err
    assert "raise ArithmeticError('my mistake')" in done.err
    assert done.err.splitlines()[-1].startswith("error: every client failed in round 1")
