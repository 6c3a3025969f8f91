"""A change of a run is noticed."""

import shutil
from pathlib import Path

from fedtailor.runs.store import Store
from fedtailor.views.dashboard.changes import changed, runs_below, stamp


def test_a_write_changes_the_stamp_and_reading_does_not(compared: Path, tmp_path: Path) -> None:
    folder = tmp_path / "runs" / "one"
    shutil.copytree(compared / "local-s0", folder)
    assert runs_below(tmp_path) == {"runs/one": folder}
    with Store(folder, write=True) as store:
        before = stamp(folder)
        with Store(folder) as reader:
            reader.read("rounds")
        assert stamp(folder) == before
        with store.transaction():
            store.set_meta("note", 1)
        assert stamp(folder) != before


def test_new_gone_and_different_runs_have_changed() -> None:
    assert changed({"a": (1,), "b": (1,), "c": (1,)}, {"a": (1,), "b": (2,), "d": (1,)}) == ["b", "c", "d"]
