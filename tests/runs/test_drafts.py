"""Drafts: those of killed processes go, and nothing else does."""

import os
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from fedtailor.errors import UserError
from fedtailor.runs import drafts
from fedtailor.runs.drafts import file_at_once, folder_at_once, is_of_a_file, new_draft, remove_drafts
from fedtailor.runs.exporting.writing import is_of_exports


def names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


def test_what_may_be_the_users_stays(tmp_path: Path) -> None:
    """A draft of this name, that no process holds, with nothing but files of an export: each word counts."""
    for name in (".one-abcd1234", ".one-notes123", ".one-links123", ".one-deeper12", ".two-abcd1234", ".one-short"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "card.json").touch()
    (tmp_path / ".one-notes123" / "notes.txt").touch()
    (tmp_path / "mine").mkdir()
    (tmp_path / ".one-links123" / "model.onnx").symlink_to(tmp_path / "mine")
    (tmp_path / ".one-deeper12" / "anna" / "inner").mkdir(parents=True)
    (tmp_path / ".one-asafile1").touch()
    (tmp_path / ".one-alink123").symlink_to(tmp_path / "mine")
    before = names(tmp_path)
    with folder_at_once(tmp_path / "one", is_of_exports) as draft:
        assert set(names(tmp_path)) == {*before, draft.name} - {".one-abcd1234"}
    assert set(names(tmp_path)) == {*before, "one"} - {".one-abcd1234"}


def test_an_old_folder_is_removed_only_when_the_new_one_is_complete(tmp_path: Path) -> None:
    """A process that died between the two renames left the old model under another name, and no new one."""
    old = tmp_path / ".model-abcd1234-old"
    old.mkdir()
    (old / "card.json").touch()

    def fails() -> None:
        with folder_at_once(tmp_path / "model", is_of_exports, again=True):
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        fails()
    assert names(tmp_path) == [old.name]
    with folder_at_once(tmp_path / "model", is_of_exports, again=True):
        assert old.exists()
    assert names(tmp_path) == ["model"]


def test_a_draft_that_is_taken_away_before_it_is_locked_is_made_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Another process may take a folder without a lock for one that was left: before, in and after the locking."""
    really, seen = drafts.lock_folder, []

    def late(folder: Path) -> int:
        seen.append(folder)
        if len(seen) == 1:
            shutil.rmtree(folder)
        if len(seen) == 2:
            raise BlockingIOError
        handle = really(folder)
        if len(seen) == 3:
            shutil.rmtree(folder)
        return handle

    monkeypatch.setattr(drafts, "lock_folder", late)
    draft, handle = new_draft(tmp_path / "one")
    assert draft == seen[3]
    assert draft.is_dir()
    assert handle is not None
    monkeypatch.undo()
    remove_drafts(tmp_path / "one", is_of_exports)
    assert names(tmp_path) == [draft.name]
    os.close(handle)
    remove_drafts(tmp_path / "one", is_of_exports)
    assert names(tmp_path) == []


def test_a_disk_without_locks_can_be_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuses(folder: Path) -> int:
        raise OSError(37, "No locks available")

    monkeypatch.setattr(drafts, "lock_folder", refuses)
    (tmp_path / ".one-abcd1234").mkdir()  # nobody can tell whose it is
    with folder_at_once(tmp_path / "one", is_of_exports) as draft:
        (draft / "card.json").touch()
    assert names(tmp_path) == [".one-abcd1234", "one"]


def test_a_folder_below_a_file_is_one_sentence(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(UserError, match="file is not a folder"), folder_at_once(tmp_path / "file" / "a", is_of_exports):
        pass


KILLED = """
import os, signal, sys
from pathlib import Path
from fedtailor.runs.drafts import file_at_once

with file_at_once(Path(sys.argv[1])) as draft:
    draft.write_text("half")
    os.kill(os.getpid(), signal.SIGKILL)
"""


def test_the_draft_of_a_file_goes_with_the_next(tmp_path: Path) -> None:
    place = tmp_path / "found.csv"
    assert subprocess.run([sys.executable, "-c", KILLED, place]).returncode == -signal.SIGKILL
    (draft,) = tmp_path.iterdir()
    assert is_of_a_file(draft)
    (tmp_path / ".found.csv-abcd1234").mkdir()
    (tmp_path / ".found.csv-abcd1234" / "mine.csv").touch()
    with file_at_once(place) as file:
        file.write_text("whole")
    assert names(tmp_path) == [".found.csv-abcd1234", "found.csv"]
    assert place.read_text() == "whole"


def test_a_file_that_cannot_be_written_is_named(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError) as error, file_at_once(tmp_path / "gone" / "found.csv"):
        pass
    assert error.value.filename == str(tmp_path / "gone" / "found.csv")
