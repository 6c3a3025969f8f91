"""Private folders: nobody else opens them, and those of killed processes do not stay."""

import os
import signal
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

from fedtailor.flower.folders import TemporaryFolder, make_private

HOLD = "from fedtailor.flower.folders import TemporaryFolder as T; t = T(); print(t.path, flush=True); input()"


def test_the_folder_of_a_killed_process_is_removed_by_the_next(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    with subprocess.Popen(
        [sys.executable, "-c", HOLD], env={**os.environ, "TMPDIR": str(tmp_path)}, stdin=-1, stdout=-1, text=True
    ) as other:
        assert other.stdout is not None
        theirs = Path(other.stdout.readline().strip())
        mine = TemporaryFolder()
        assert theirs.is_dir()  # in use
        other.send_signal(signal.SIGKILL)
        other.wait()
    again = TemporaryFolder()
    assert not theirs.exists()
    assert mine.path.is_dir()
    assert mine.path.stat().st_mode & 0o077 == 0
    mine.close()
    again.close()
    assert list(tmp_path.iterdir()) == []


def test_a_folder_becomes_private(tmp_path: Path) -> None:
    (tmp_path / "old").mkdir(mode=0o755)
    for name in ("old", "new"):
        make_private(tmp_path / name)
        assert (tmp_path / name).stat().st_mode & 0o077 == 0
