"""Whether trackers are installed."""

import sys
from pathlib import Path

import pytest

from fedtailor.__main__ import main
from fedtailor.errors import UserError
from fedtailor.runs.tracking.trackers import check_trackers


def test_a_missing_extra_is_named_before_anything_is_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setitem(sys.modules, "wandb", None)
    monkeypatch.setattr("fedtailor.runs.tracking.trackers.find_spec", lambda name: None)
    monkeypatch.chdir(tmp_path)
    for command in (["run", "--track", "wandb"], ["compare", "--track", "tensorboard,wandb"]):
        assert main([*command, "--rounds", "1"]) == 2
        assert "pip install 'fedtailor[" in capsys.readouterr().err
    assert list(tmp_path.iterdir()) == []


def test_a_folder_of_the_same_name_is_not_the_package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "fancytracker").mkdir()
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setattr("fedtailor.runs.tracking.trackers.PACKAGES", {"wandb": ("fancytracker",)})
    with pytest.raises(UserError, match=r"pip install 'fedtailor\[wandb\]'"):
        check_trackers(["wandb"])


def test_an_unknown_tracker_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert main(["run", "--track", "neptune", "--rounds", "1"]) == 2
    assert list(tmp_path.iterdir()) == []
