"""Where a run begins: fresh names, and what --overwrite replaces."""

import fcntl
import os
from pathlib import Path
from typing import Any

import pytest

import fedtailor
from fedtailor.methods import Client, Method
from fedtailor.runs.drafts import lock_folder
from fedtailor.runs.folders import fresh_name

SMALL: dict[str, Any] = {"rounds": 1, "data": {"clients": 2, "samples": 60}, "engine": {"kind": "inline"}}


class Broken(Method):
    """Fails in the round that it is told."""

    breaks: int = 1

    def fit(self, client: Client) -> None:
        if client.round >= self.breaks:
            raise ArithmeticError("my mistake")
        super().fit(client)


def test_a_second_run_gets_a_fresh_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    for name in ("experiment", "experiment-2", "experiment-3"):
        with fedtailor.run(SMALL) as run:
            assert (run.name, run.folder) == (name, Path("runs") / name)
    assert fresh_name(Path("runs"), "other") == "other"


def test_overwrite_replaces_a_run(tmp_path: Path) -> None:
    fedtailor.run(SMALL, folder=tmp_path / "one").close()
    with pytest.raises(fedtailor.UserError, match=r"one exists: resume it .* --overwrite"):
        fedtailor.run(SMALL, folder=tmp_path / "one")
    with fedtailor.run({**SMALL, "seed": 7}, folder=tmp_path / "one", overwrite=True) as run:
        assert run.summary().seed == 7
    assert [path.name for path in tmp_path.iterdir()] == ["one"]


@pytest.mark.parametrize("what", ["folder", "file", "link", "notes", "running", "settings"])
def test_overwrite_replaces_nothing_else(what: str, tmp_path: Path) -> None:
    place, settings, lock = tmp_path / "one", SMALL, None
    if what == "folder":
        place.mkdir()
        (place / "thesis.tex").write_text("mine")
    elif what == "file":
        place.write_text("mine")
    elif what == "link":
        fedtailor.run(SMALL, folder=tmp_path / "two").close()
        place.symlink_to(tmp_path / "two")
    else:
        fedtailor.run(SMALL, folder=place).close()
    if what == "notes":
        (place / "notes.txt").write_text("mine")
    if what == "running":
        lock = os.open(place / "run.lock", os.O_RDWR | os.O_CREAT)
        fcntl.flock(lock, fcntl.LOCK_EX)
    if what == "settings":
        settings = {**SMALL, "engine": {"kind": "inline", "device": "cuda:99"}}
    before = {str(path): path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()}
    with pytest.raises(fedtailor.UserError, match=r"one|cuda:99"):
        fedtailor.run(settings, folder=place, overwrite=True)
    assert {str(path): path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()} == before
    if lock is not None:
        os.close(lock)


def test_a_run_that_fails_in_its_first_round_leaves_nothing(tmp_path: Path) -> None:
    with pytest.raises(fedtailor.UserError, match="every client failed in round 1"):
        fedtailor.run({**SMALL, "method": Broken()}, folder=tmp_path / "one")
    assert list(tmp_path.iterdir()) == []


def test_a_run_that_fails_later_can_be_resumed(tmp_path: Path) -> None:
    with pytest.raises(fedtailor.UserError, match="every client failed in round 2"):
        fedtailor.run({**SMALL, "rounds": 3, "method": Broken(breaks=2)}, folder=tmp_path / "one")
    with fedtailor.Run(tmp_path / "one") as run:
        assert (run.status, run.rounds_done) == ("stopped", 1)


def test_the_folder_of_a_run_is_for_this_account_only(tmp_path: Path) -> None:
    fedtailor.run(SMALL, folder=tmp_path / "run").close()
    assert (tmp_path / "run").stat().st_mode & 0o077 == 0


def test_the_draft_of_a_killed_process_is_removed_and_nothing_else(tmp_path: Path) -> None:
    for name in (".run-abcd1234", ".run-inuse_12", ".run-others12", ".other-abcd1234", ".run-mine"):
        (tmp_path / name).mkdir()
    (tmp_path / ".run-abcd1234" / "experiment.toml").touch()
    (tmp_path / ".run-others12" / "thesis.txt").touch()
    lock = lock_folder(tmp_path / ".run-inuse_12")
    fedtailor.run(SMALL, folder=tmp_path / "run").close()
    os.close(lock)
    left = {path.name for path in tmp_path.iterdir()}
    assert left == {"run", ".run-inuse_12", ".run-others12", ".other-abcd1234", ".run-mine"}
