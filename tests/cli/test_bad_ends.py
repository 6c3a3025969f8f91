"""The life of a model where something is missing: the right to write, room on the disk, a network, a new database.

What only reads works everywhere. What cannot be done is one sentence, and every file stays as it was.
"""

import shutil
import sqlite3
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import fedtailor
from fedtailor.runs.store import DATABASE
from tests.cli.conftest import Call
from tests.support import cut_off, old_database
from tests.support.cut_off import Ending

SETTINGS: dict[str, Any] = {
    "rounds": 2,
    "data": {"clients": 3, "samples": 240},
    "model": {"name": "mlp", "arguments": {"hidden": 400}},  # 117 kB
    "training": {"epochs": 1},
    "engine": {"kind": "inline"},
    "checkpoints": {"every": 1},
}
READS = [
    "show runs/one",
    "list",
    "diff runs/one runs/one",
    "prune",
    "predict exports/one bern.npz",
]
RESUME = "resume runs/one --rounds 3"
FROM = "run --from runs/one --rounds 3 --name two"
SHRINK = "prune --checkpoints --yes"
DELETE = "prune --run one --yes"
OTHERS = [
    "adapt runs/one --data bern.npz --out new",
    "export runs/one --client 1 --out new --format safetensors,torch",
    "export runs/one --all --out new",
]
FILE = "predict exports/one bern.npz --out predictions.csv"


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A finished run, an export, and the data of a new client."""
    folder = tmp_path_factory.mktemp("made")
    fedtailor.run(SETTINGS, folder=folder / "runs" / "one").close()
    fedtailor.export_client(folder / "runs" / "one", 0, folder / "exports" / "one")
    x = np.random.RandomState(0).randint(0, 17, (40, 8, 8, 1)).astype(np.uint8)
    np.savez(folder / "bern.npz", x=x, y=np.arange(40) % 10)
    return folder


@pytest.fixture
def place(made: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(made, tmp_path / "place"))


def endings(kind: str, place: Path, *commands: str) -> dict[str, Ending]:
    if why := cut_off.missing(kind):
        pytest.skip(f"this machine cannot make a place that is {kind}: {why}")
    return dict(zip(commands, cut_off.call(kind, place, [each.split() for each in commands]), strict=True))


def assert_read(found: dict[str, Ending]) -> None:
    for command in READS:
        assert found[command].code == 0, f"{command}: {found[command].err}"
        assert found[command].changed == []
    assert "finished" in found["list"].out
    assert found["predict exports/one bern.npz"].out.count("\n") == 41


def assert_refused(found: dict[str, Ending], command: str, *words: str) -> None:
    ending = found[command]
    lines = [line for line in ending.err.splitlines() if line.startswith("error: ")]
    assert (ending.code, len(lines)) == (2, 1), f"{command}: {ending.code} {ending.err}"
    assert ending.err.splitlines()[-1] == lines[0], "nothing comes after the sentence"
    for word in words:
        assert word in lines[0], command
    # SQLite's own files beside a database hold nothing
    assert [each for each in ending.changed if not each.startswith(f"runs/one/{DATABASE}-")] == [], command


@pytest.mark.parametrize(
    ("kind", "why"), [("not allowed", "Permission denied"), ("read-only", "Read-only file system")]
)
def test_where_nothing_can_be_written_a_run_is_read_and_stays(kind: str, why: str, place: Path) -> None:
    found = endings(kind, place, *READS, RESUME, FROM, SHRINK, DELETE, *OTHERS, FILE)
    assert_read(found)
    assert_refused(found, RESUME, "runs/one", why)
    assert_refused(found, FROM, "runs/two", why)
    for command in (SHRINK, DELETE):
        assert_refused(found, command, "runs/one", why)
    for command in OTHERS:
        assert_refused(found, command, "new cannot be written", why)
    assert_refused(found, FILE, "predictions.csv cannot be written", why)


def test_what_a_killed_process_left_cannot_be_read_without_writing(place: Path) -> None:
    """SQLite must put the log of writes into the database first; a reader without it would miss rounds."""
    (place / "runs" / "one" / f"{DATABASE}-wal").write_bytes(b"writes of a round")
    found = endings("read-only", place, "show runs/one", "diff runs/one runs/one", OTHERS[0])
    for command in found:
        assert_refused(found, command, "cannot be read where nothing can be written", "copy the run to another disk")


def test_a_run_on_a_full_disk_is_read_and_stays(place: Path) -> None:
    found = endings("full", place, *READS, FROM, SHRINK, *OTHERS, FILE, RESUME, DELETE)
    assert_read(found)
    assert_refused(found, RESUME, "last complete round", "make room, then resume it: fedtailor resume runs/one")
    assert_refused(found, FROM, "runs/two needs at least", "make room")
    assert_refused(found, SHRINK, "delete drafts or whole runs first")
    for command in OTHERS:
        assert_refused(found, command, "new cannot be written: No space left")
    assert_refused(found, FILE, "predictions.csv cannot be written: No space left")
    assert found[DELETE].code == 0, "to delete needs no room"
    assert f"runs/one/{DATABASE}" in found[DELETE].changed


def test_a_disk_that_fills_up_on_the_way_leaves_a_run_at_a_round(place: Path) -> None:
    found = endings("nearly full", place, RESUME, "show runs/one", OTHERS[0], OTHERS[1])
    assert_refused(found, RESUME, "last complete round", "make room, then resume it: fedtailor resume runs/one")
    assert found["show runs/one"].code == 0
    assert "in 2 rounds" in found["show runs/one"].out
    for command in OTHERS[:2]:
        assert_refused(found, command, "new cannot be written: No space left")


def test_nothing_needs_a_network(place: Path) -> None:
    found = endings("no network", place, *READS, *OTHERS[:1], FILE, FROM, RESUME, SHRINK, DELETE)
    assert {command: ending.err for command, ending in found.items() if ending.code} == {}


@pytest.mark.parametrize("schema", [3, 99])
def test_a_database_of_another_version_is_shown_or_refused(schema: int, place: Path, call: Call) -> None:
    one = place / "runs" / "one"
    old_database.downgrade(one)
    for extra in one.glob("new.db*"):
        extra.unlink()
    if schema != 3:
        with sqlite3.connect(one / DATABASE) as db:
            db.execute("UPDATE meta SET value = ? WHERE key = 'schema'", [str(schema)])
        db.close()
    before = (one / DATABASE).read_bytes()
    runs = str(one.parent)
    for words in (
        ["resume", one, "--rounds", "3"],
        ["run", "--from", one, "--rounds", "3", "--name", "two"],
        ["adapt", one, "--data", place / "bern.npz", "--out", "new"],
        ["export", one, "--client", "1", "--out", "new"],
        ["prune", runs, "--checkpoints", "--yes"],
        ["show", one],
        ["diff", one, one],
    ):
        done = call(*words)
        if words[0] == "prune":
            assert (done.code, done.out.strip()) == (0, f"nothing to delete in {runs}")
        elif words[0] in ("show", "diff") and schema == 3:
            assert done.code == 0, done.err
        else:
            assert done.code == 2, words
            (line,) = done.err.splitlines()
            assert line.startswith("error: ")
            assert f"schema {schema}" in line
        assert (one / DATABASE).read_bytes() == before
    assert call("predict", place / "exports" / "one", place / "bern.npz", "--quiet").code == 0
    assert list(Path.cwd().iterdir()) == [place]
