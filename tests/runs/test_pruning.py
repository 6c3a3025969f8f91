"""Prune deletes what it lists and nothing else, and what it leaves stays readable and honest."""

import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import fedtailor
from fedtailor.errors import UserError
from fedtailor.runs import pruning
from fedtailor.runs.drafts import lock_folder
from fedtailor.runs.pruning import Item, choose, delete, prunable
from fedtailor.runs.store import DATABASE, Store
from tests.support import old_database
from tests.support.fingerprint import fingerprint

RUN: dict[str, Any] = {
    "rounds": 3,
    "method": {"name": "fedper"},
    "data": {"clients": 3, "samples": 120},
    "training": {"epochs": 1},
    "engine": {"kind": "inline"},
    "checkpoints": {"every": 1},
    "stopping": {},
}


@pytest.fixture(scope="module")
def kept(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("kept") / "one"
    fedtailor.run(RUN, folder=folder).close()
    return folder


@pytest.fixture
def runs(kept: Path, tmp_path: Path) -> Path:
    """A folder with one finished run."""
    shutil.copytree(kept, tmp_path / "runs" / "one")
    return tmp_path / "runs"


def of(runs: Path, *kinds: str) -> list[Item]:
    return choose(prunable(runs), kinds, [], runs)


def read(folder: Path) -> tuple[Any, ...]:
    with fedtailor.Run(folder) as run:
        return run.summary().metrics, run.scores("final"), run.rounds(), run.tasks(), run.summary().best


def test_the_list_has_sizes_and_deletes_nothing(runs: Path) -> None:
    before = fingerprint(runs / "one")
    found = {item.kind: item for item in prunable(runs)}
    assert list(found) == ["checkpoints", "models", "states", "run"]
    assert all(item.bytes > 0 and item.name == "one" for item in found.values())
    assert found["run"].bytes == sum(path.stat().st_size for path in (runs / "one").rglob("*"))
    states = [row for row in before["state"] if row["scope"].startswith("kept ") and "best" not in row["scope"]]
    assert found["checkpoints"].bytes == sum(len(row["data"]) for row in states)
    assert fingerprint(runs / "one") == before


def test_checkpoints_go_alone(runs: Path, tmp_path: Path) -> None:
    results = read(runs / "one")
    freed = delete(of(runs, "checkpoints"))
    assert freed > 0
    assert read(runs / "one") == results
    with pytest.raises(UserError, match=r"no state of round 1 \('fedtailor prune' deleted its checkpoints\)"):
        fedtailor.run(start={"path": str(runs / "one"), "round": 1}, folder=tmp_path / "new")
    with fedtailor.resume(runs / "one", rounds=4) as run:  # its last state is there
        assert run.rounds_done == 4


def test_models_go_and_a_client_trains_once_more(runs: Path, tmp_path: Path) -> None:
    before = fedtailor.export_client(runs / "one", 1, tmp_path / "before")
    delete(of(runs, "models"))
    after = fedtailor.export_client(runs / "one", 1, tmp_path / "after")
    assert (before / "model.safetensors").read_bytes() == (after / "model.safetensors").read_bytes()


@pytest.mark.parametrize(
    "use",
    [
        lambda run, out: fedtailor.resume(run, rounds=9),
        lambda run, out: fedtailor.resume(run),
        lambda run, out: fedtailor.run(start=run, folder=out),
        lambda run, out: fedtailor.export_global(run, out),
        lambda run, out: fedtailor.export_client(run, 0, out),
        lambda run, out: fedtailor.adapt(run, (np.zeros((16, 8, 8, 1), np.uint8), np.arange(16) % 10), out),
    ],
    ids=["rounds", "resume", "start", "global", "client", "adapt"],
)
def test_without_states_nothing_begins_anew_and_results_stay(
    use: Callable[[Path, Path], object], runs: Path, tmp_path: Path
) -> None:
    """A run whose states are gone must never go on from its initial model as if nothing had happened."""
    results = read(runs / "one")
    delete(of(runs, "states", "models"))
    with pytest.raises(UserError, match="has no states any more"):
        use(runs / "one", tmp_path / "out")
    assert read(runs / "one") == results
    assert not (tmp_path / "out").exists()


def test_whole_runs_go_by_name_only(runs: Path) -> None:
    shutil.copytree(runs / "one", runs / "two")
    assert choose(prunable(runs), [], [], runs) == []
    delete(choose(prunable(runs), [], ["two"], runs))
    assert [path.name for path in runs.iterdir()] == ["one"]
    with pytest.raises(UserError, match="unknown run 'tow'"):
        choose(prunable(runs), [], ["tow"], runs)
    (runs / "one" / "notes.txt").write_text("mine")
    with pytest.raises(UserError, match=r"also holds notes\.txt"):
        delete(choose(prunable(runs), [], ["one"], runs))
    assert (runs / "one" / "notes.txt").exists()


def test_nothing_of_a_running_run_is_listed_or_deleted(runs: Path) -> None:
    items = prunable(runs)
    with Store(runs / "one", write=True):
        assert prunable(runs) == []
        with pytest.raises(UserError, match="is running"):
            choose(prunable(runs), [], ["one"], runs)
        for kind in ("states", "run"):  # it began after the list was made
            with pytest.raises(UserError, match="is in use"):
                delete([item for item in items if item.kind == kind])
    assert prunable(runs) == items


def test_the_states_of_a_stopped_run_stay(runs: Path) -> None:
    items = of(runs, "states")
    with Store(runs / "one", write=True) as store, store.transaction():
        store.set_meta("finished", False)
    assert [item.kind for item in prunable(runs)] == ["checkpoints", "run"]
    with pytest.raises(UserError, match="not finished any more"):
        delete(items)


def test_drafts_of_killed_processes_go_and_those_in_the_making_stay(runs: Path) -> None:
    for name in (".one-abcd1234", ".one-removed-17", ".one-inmaking", ".other-abcd1234"):
        (runs / name).mkdir()
        (runs / name / "experiment.toml").write_text("rounds = 1")
    (runs / ".other-abcd1234" / "thesis.tex").write_text("mine")
    held = lock_folder(runs / ".one-inmaking")
    try:
        drafts = of(runs, "drafts")
        assert [item.name for item in drafts] == [".one-abcd1234", ".one-removed-17"]
        delete(drafts)
    finally:
        os.close(held)
    assert sorted(path.name for path in runs.iterdir()) == [".one-inmaking", ".other-abcd1234", "one"]


def test_a_killed_prune_leaves_all_or_nothing(runs: Path) -> None:
    """SIGKILL in the middle of the transaction; the run is as before, and the next prune does it."""
    script = (
        "import os, signal, sys\nfrom pathlib import Path\n"
        "from fedtailor.runs.pruning import choose, delete, prunable\n"
        "from fedtailor.runs.store import Store\n"
        "Store.set_meta = lambda *_: os.kill(os.getpid(), signal.SIGKILL)\n"
        "runs = Path(sys.argv[1])\ndelete(choose(prunable(runs), ['states'], [], runs))\n"
    )
    before = fingerprint(runs / "one")
    assert subprocess.run([sys.executable, "-c", script, str(runs)]).returncode == -signal.SIGKILL
    assert fingerprint(runs / "one") == before
    assert delete(of(runs, "states")) > 0


def test_a_full_disk_is_said_before_anything_is_deleted(runs: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    before = fingerprint(runs / "one")
    with monkeypatch.context() as patch:
        patch.setattr(pruning, "free_bytes", lambda _: 1000)
        with pytest.raises(UserError, match=r"to shrink.*delete drafts or whole runs first"):
            delete(of(runs, "states"))
    assert fingerprint(runs / "one") == before
    delete(choose(prunable(runs), [], ["one"], runs))  # needs no room
    assert not (runs / "one").exists()


def test_old_and_damaged_runs_can_only_go_as_a_whole(runs: Path) -> None:
    shutil.copytree(runs / "one", runs / "old")
    old_database.downgrade(runs / "old")
    for path in [*(runs / "old").glob("new.db*")]:
        path.unlink()
    shutil.copytree(runs / "one", runs / "broken")
    (runs / "broken" / DATABASE).write_bytes(b"nonsense")
    assert {(item.name, item.kind) for item in prunable(runs) if item.name != "one"} == {
        ("old", "run"),
        ("broken", "run"),
    }
    delete(choose(prunable(runs), [], ["old", "broken"], runs))
    assert [path.name for path in runs.iterdir()] == ["one"]
