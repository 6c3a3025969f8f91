"""The database of a run."""

import math
import sqlite3
import subprocess
import sys
from pathlib import Path

import pytest
import torch

from fedtailor.errors import UserError
from fedtailor.learning import Score
from fedtailor.messages.digests import digest
from fedtailor.messages.trees import pack
from fedtailor.runs.store import DATABASE, Store, in_use
from tests.support import old_database


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    Store.create(tmp_path, {"clients": 3, "experiment": {"rounds": 2}})
    return tmp_path


def score_row(round: int, client: int, correct: int, model: str = "held", loss: float = 0.5, episode: int = 0) -> dict:
    place = {"episode": episode, "round": round, "model": model, "client": client}
    return {**place, "correct": correct, "loss": loss, "samples": 10}


def one_sentence(error: pytest.ExceptionInfo[UserError], folder: Path) -> None:
    text = str(error.value)
    assert "\n" not in text
    assert str(folder) in text


def test_what_is_written_is_there_when_the_run_is_opened_again(folder: Path) -> None:
    with Store(folder, write=True) as store, store.transaction():
        store.set_meta("finished", True)
        store.set_state("client", 3, b"abc")
        store.insert("scores", [score_row(1, 0, 4)])
    with Store(folder) as store:
        assert (store.meta("finished"), store.meta("clients"), store.meta("unknown")) == (True, 3, None)
        assert store.meta("experiment") == {"rounds": 2}
        assert store.state("client", 3) == b"abc"
        assert store.state_keys("client") == ["3"]
        assert store.state("client", 4) is None
        assert store.scores("held", 0, 1) == {0: Score(4, 0.5, 10)}


def interrupted_round(store: Store) -> None:
    with store.transaction():
        store.set_state("server", "model", b"new")
        store.set_meta("finished", True)
        store.insert("scores", [score_row(1, 0, 4)])
        raise KeyboardInterrupt


def too_large_round(store: Store) -> None:
    with store.transaction():
        store.set_state("server", "model", b"new")
        store.set_state("client", 1, bytes(1_000_000))


def test_a_transaction_is_all_or_nothing(folder: Path) -> None:
    with Store(folder, write=True) as store:
        with store.transaction():
            store.set_state("server", "model", b"old")
        with pytest.raises(KeyboardInterrupt):
            interrupted_round(store)
        assert store.state("server", "model") == b"old"
        assert store.meta("finished") is None
        assert store.scores("held", 0, 1) == {}
        with store.transaction():
            store.set_state("server", "model", b"newer")
        assert store.state("server", "model") == b"newer"


def test_a_killed_writer_leaves_the_last_complete_round_and_no_lock(folder: Path) -> None:
    script = (
        "import os, signal, sys\nfrom pathlib import Path\nfrom fedtailor.runs.store import Store\n"
        "store = Store(Path(sys.argv[1]), write=True)\n"
        "with store.transaction():\n    store.set_state('server', 'model', b'round 1')\n"
        "with store.transaction():\n    store.set_state('server', 'model', b'round 2')\n"
        "    os.kill(os.getpid(), signal.SIGKILL)\n"
    )
    assert subprocess.run([sys.executable, "-c", script, str(folder)]).returncode == -9
    with Store(folder, write=True) as store:
        assert store.state("server", "model") == b"round 1"


def test_a_full_disk_is_said_in_one_sentence_and_the_last_round_stands(folder: Path) -> None:
    with Store(folder, write=True) as store:
        with store.transaction():
            store.set_state("server", "model", b"old")
        pages = store.rows("PRAGMA page_count")[0]["page_count"]
        store.rows(f"PRAGMA max_page_count = {pages + 2}")
        with pytest.raises(UserError, match=r"full.*make room.*fedtailor resume") as error:
            too_large_round(store)
        one_sentence(error, folder)
        assert store.state("server", "model") == b"old"
        store.rows("PRAGMA max_page_count = 1000000")
        with store.transaction():
            store.set_state("server", "model", b"new")
        assert store.state("server", "model") == b"new"


def test_after_a_full_disk_a_federation_is_served_again(folder: Path) -> None:
    with Store(folder, write=True) as store:
        with store.transaction():
            store.set_meta("nodes", [{"name": "anna"}])
        pages = store.rows("PRAGMA page_count")[0]["page_count"]
        store.rows(f"PRAGMA max_page_count = {pages + 2}")
        with pytest.raises(UserError, match=r"make room, then start the same 'fedtailor serve' again"):
            too_large_round(store)


def test_a_lock_that_leads_elsewhere_is_not_followed(folder: Path, tmp_path_factory: pytest.TempPathFactory) -> None:
    elsewhere = tmp_path_factory.mktemp("elsewhere") / "file"
    (folder / "run.lock").symlink_to(elsewhere)
    with pytest.raises(UserError, match="cannot be written"):
        Store(folder, write=True)
    assert not elsewhere.exists()


def test_a_state_that_has_not_changed_is_not_written_again(folder: Path) -> None:
    state = pack({"w": torch.ones(5)})
    with Store(folder, write=True) as store:
        store.set_state("client", 1, state)
        written = store._db.total_changes
        store.set_state("client", 1, pack({"w": torch.ones(5)}))
        assert store._db.total_changes == written
        store.set_state("client", 1, pack({"w": torch.zeros(5)}))
        assert store._db.total_changes > written
        store.set_state("client", 2, state)
        store.set_state("server", 1, state)
        assert len(store.rows("SELECT * FROM state")) == 3


def test_a_state_is_forgotten_when_it_is_none(folder: Path) -> None:
    with Store(folder, write=True) as store:
        store.set_state("client", 1, b"a")
        store.set_state("client", 2, b"b")
        store.set_state("client", 1, None)
        store.set_state("client", 9, None)
        assert store.state("client", 1) is None
        assert store.state_keys("client") == ["2"]


def test_a_second_writer_is_refused_in_this_process_and_in_another(folder: Path) -> None:
    script = (
        "import sys\nfrom pathlib import Path\nfrom fedtailor.errors import UserError\n"
        "from fedtailor.runs.store import Store\n"
        "try:\n    Store(Path(sys.argv[1]), write=True)\nexcept UserError as error:\n    print(error)\n"
    )
    with Store(folder, write=True):
        with pytest.raises(UserError, match="in use") as error:
            Store(folder, write=True)
        one_sentence(error, folder)
        there = subprocess.run([sys.executable, "-c", script, str(folder)], capture_output=True, text=True, check=True)
        assert "in use" in there.stdout
    Store(folder, write=True).close()


def test_a_reader_sees_the_last_round_while_a_writer_is_in_the_middle_of_the_next(folder: Path) -> None:
    with Store(folder, write=True) as writer, Store(folder) as reader:
        with writer.transaction():
            writer.set_state("server", "model", b"round 1")
        with writer.transaction():
            writer.set_state("server", "model", b"round 2")
            writer.set_state("client", 1, bytes(8_000_000))  # more than fits into SQLite's cache
            assert reader.state("server", "model") == b"round 1"
            with Store(folder) as late:
                assert late.state("server", "model") == b"round 1"
        assert reader.state("server", "model") == b"round 2"


def test_the_latest_score_of_every_client_is_that_of_its_last_round(folder: Path) -> None:
    with Store(folder, write=True) as store:
        rows = [(1, 0, 1), (1, 1, 2), (2, 0, 9), (3, 0, 3), (10, 2, 5), (9, 2, 7)]
        store.insert("scores", [score_row(*row) for row in rows])
        store.insert("scores", [score_row(50, 0, 8, model="received"), score_row(50, 0, 8, episode=1)])
        latest = store.latest_scores("held", 0)
        assert {client: score.correct for client, score in latest.items()} == {0: 3, 1: 2, 2: 5}
        assert store.latest_scores("held", 2) == {}


@pytest.mark.parametrize("loss", [math.nan, math.inf])
def test_the_loss_of_a_model_that_has_diverged_is_stored(folder: Path, loss: float) -> None:
    with Store(folder, write=True) as store, store.transaction():
        store.insert("scores", [score_row(1, 0, 1, loss=loss)])
        for found in (store.scores("held", 0, 1), store.latest_scores("held", 0)):
            assert str(found[0].loss) == str(loss)


def test_the_training_loss_of_a_model_that_has_diverged_is_stored(folder: Path) -> None:
    numbers = dict.fromkeys(("episode", "round", "client", "steps", "samples", "bytes_down", "bytes_up", "seconds"), 1)
    with Store(folder, write=True) as store:
        store.insert("tasks", [{**numbers, "loss": math.nan}])
        assert len(store.rows("SELECT * FROM tasks")) == 1


def test_a_round_written_twice_is_there_once(folder: Path) -> None:
    with Store(folder, write=True) as store:
        store.insert("scores", [score_row(1, 0, 1)])
        store.insert("scores", [score_row(1, 0, 2)])
        store.insert("scores", [])
        assert store.scores("held", 0, 1) == {0: Score(2, 0.5, 10)}


# Bad files


def refused(folder: Path, write: bool) -> pytest.ExceptionInfo[UserError]:
    with pytest.raises(UserError) as error:
        Store(folder, write=write)
    one_sentence(error, folder)
    return error


BAD = {
    "empty": lambda data: b"",
    "not sqlite": lambda data: b"this is no database at all\n" * 100,
    "truncated": lambda data: data[: len(data) // 2 // 4096 * 4096 + 100],
    "no header": lambda data: bytes(100) + data[100:],
}


@pytest.mark.parametrize("write", [True, False])
@pytest.mark.parametrize("kind", BAD)
def test_a_file_that_is_no_database_is_refused_in_one_sentence(folder: Path, kind: str, write: bool) -> None:
    file = folder / DATABASE
    file.write_bytes(BAD[kind](file.read_bytes()))
    refused(folder, write)


def filled(folder: Path) -> bytes:
    with Store(folder, write=True) as store:
        for client in range(5):
            store.set_state("client", client, bytes([65 + client]) * 100_000)
        store.insert("scores", [score_row(round, 0, 1) for round in range(5000)])
    return (folder / DATABASE).read_bytes()


def read_states(folder: Path) -> None:
    with Store(folder, write=True) as store:
        for client in range(5):
            store.state("client", client)


def test_garbage_in_the_pages_is_found_before_anything_is_written(folder: Path) -> None:
    data = filled(folder)
    page = 65536
    garbage = (bytes(range(256)) * page)[:page]
    for number in range(1, len(data) // page):
        (folder / DATABASE).write_bytes(data[: number * page] + garbage + data[(number + 1) * page :])
        with pytest.raises(UserError, match="is damaged") as error:
            read_states(folder)
        one_sentence(error, folder)


def test_a_state_that_is_not_what_was_written_is_refused(folder: Path) -> None:
    data = filled(folder)
    place = data.index(b"C" * 1000)
    (folder / DATABASE).write_bytes(data[: place + 10] + b"x" + data[place + 11 :])
    with Store(folder, write=True) as store:
        assert store.state("client", 1) == b"B" * 100_000
        with pytest.raises(UserError, match=r"is damaged .*client 2") as error:
            store.state("client", 2)
        one_sentence(error, folder)


ROWS: dict[str, dict] = {
    "rounds": {"episode": 0, "round": 1, "cohort": "[0, 7]", "bytes_down": 5, "bytes_up": 6, "seconds": 1},
    "metrics": {"episode": 0, "round": 1, "model": "held", "accuracy": 0.5, "loss": math.nan, "clients": 3}
    | {"samples": 30, "untrained": 0},
    "measures": {
        "episode": 0,
        "round": 1,
        "model": "held",
        "measure": "auroc",
        "mean": -0.0,
        "clients": 2,
        "undefined": 1,
    },
    "scores": score_row(1, 0, 4) | {"measures": '{"auroc": null}'},
    "tasks": dict.fromkeys(("episode", "round", "client", "steps", "samples", "bytes_down", "bytes_up", "seconds"), 1),
    "phases": {"episode": 0, "round": 1, "phase": "train", "seconds": 0.25},
    "clock": {"episode": 0, "round": 1, "begin": 0, "seconds": math.inf},
    "times": {"episode": 0, "round": 1, "client": 2, "compute": 3.0, "transfer": 4.5},
    "events": {"episode": 0, "round": 1, "client": 2, "kind": "failed", "detail": "no answer"},
    "decisions": {"episode": 0, "round": 1, "name": "size", "observation": b"abc", "action": b"def", "about": None},
    "clients": {"client": 7, "name": "cairo", "train": 70, "val": 0, "test": 30},
    "warnings": {"text": "mu = 0 makes it FedAvg"},
    "deployed": {"client": 7, "network": "", "model": "0123"},
}


@pytest.mark.parametrize("table", ROWS)
def test_a_row_that_is_not_what_was_written_is_refused(folder: Path, table: str) -> None:
    """Every value of every table in turn; unchanged rows are read as they were written, NaN as nothing."""
    row = ROWS[table]
    with Store(folder, write=True) as store:
        store.insert(table, [row])
        (found,) = store.read(table)
        assert {name: None if value != value else value for name, value in row.items()}.items() <= found.items()
    for name in row:
        with sqlite3.connect(folder / DATABASE) as db:
            before = db.execute(f"SELECT {name} FROM {table}").fetchone()
            db.execute(f"UPDATE {table} SET {name} = ?", [5 if row[name] != 5 else 4])
        with Store(folder) as store, pytest.raises(UserError, match=f"is damaged .*a row of {table}") as error:
            store.read(table)
        one_sentence(error, folder)
        db.execute(f"UPDATE {table} SET {name} = ?", before)
        db.commit()
        db.close()


def test_the_name_of_a_state_is_checked_before_a_run_continues(folder: Path) -> None:
    filled(folder)
    with sqlite3.connect(folder / DATABASE) as db:
        db.execute("UPDATE state SET key = '9' WHERE key = '2'")
    db.close()
    assert "is damaged (the name of the state of client 9" in str(refused(folder, True).value)


def test_a_late_reward_belongs_to_its_decision_and_its_row_is_sound(folder: Path) -> None:
    decisions = [ROWS["decisions"] | {"about": client, "reward": None} for client in (1, None)]
    with Store(folder, write=True) as store:
        store.insert("decisions", decisions)
        store.reward([(0.5, 0, 1, "size", None), (0.7, 0, 1, "other", None)])
        assert [row["reward"] for row in store.read("decisions", "ORDER BY id")] == [None, 0.5]


def everything(folder: Path) -> list:
    """All that a resumed run reads."""
    with Store(folder, write=True) as store:
        read: list = [store.read(table) for table in [*ROWS, "meta"]]
        read += [store.state("client", key) for key in store.state_keys("client")]
        read += [store.model(row["model"]) for row in read[list(ROWS).index("deployed")]]
    return read


def test_a_flipped_bit_anywhere_is_noticed_or_harmless(folder: Path) -> None:
    """Of 400 bits spread over the used parts of the file, none changes what is read."""
    with Store(folder, write=True) as store:
        for table, row in ROWS.items():
            store.insert(table, [row])
        store.insert_model(digest(b"model" * 100), b"model" * 100)
        store.insert("deployed", [{"client": 7, "network": "", "model": digest(b"model" * 100)}])
        store.set_state("client", 3, b"state" * 100)
    data, whole = (folder / DATABASE).read_bytes(), everything(folder)
    used = [place for place, byte in enumerate(data) if byte and place > 100]
    sentences = []
    for place in used[:: len(used) // 400]:
        flipped = bytearray(data)
        flipped[place] ^= 1 << place % 8
        (folder / DATABASE).write_bytes(flipped)
        try:
            assert everything(folder) == whole, f"byte {place}"
        except UserError as error:
            sentences.append(str(error))
    assert len(sentences) > 200
    assert not any("\n" in sentence or len(sentence) > 500 for sentence in sentences)


def test_settings_that_cannot_be_read_are_damage(folder: Path) -> None:
    with sqlite3.connect(folder / DATABASE) as db:
        db.execute("UPDATE meta SET value = '{\"rou' WHERE key = 'experiment'")
    db.close()
    with Store(folder) as store, pytest.raises(UserError, match="is damaged"):
        store.meta("experiment")


@pytest.mark.parametrize("write", [True, False])
@pytest.mark.parametrize("version", [5, 0, None, "x"])
def test_another_schema_version_is_refused(folder: Path, version: object, write: bool) -> None:
    with Store(folder, write=True) as store:
        store.set_meta("schema", version)
    assert "has schema" in str(refused(folder, write).value)


@pytest.mark.parametrize("version", [1, 2, 3])
def test_a_run_of_an_earlier_version_is_shown_and_not_continued(tmp_path: Path, version: int) -> None:
    folder = tmp_path
    old_database.create(folder, {"clients": 3}, version)
    with Store(folder) as store:
        assert store.meta("schema") == version
        for table in ("clients", "warnings", "phases", "measures", "deployed", "scores"):
            assert store.read(table) == []
    assert "cannot resume, export or adapt it" in str(refused(folder, True).value)
    with Store(folder) as store:
        assert store.meta("schema") == version  # nothing was changed


def test_a_folder_without_a_database_is_not_a_run(tmp_path: Path) -> None:
    assert "is not a run" in str(refused(tmp_path, True).value)
    assert list(tmp_path.iterdir()) == []


def test_a_refused_run_is_not_left_locked(folder: Path) -> None:
    file = folder / DATABASE
    good = file.read_bytes()
    file.write_bytes(b"garbage" * 100)
    assert "is damaged" in str(refused(folder, True).value)
    assert "is damaged" in str(refused(folder, True).value)
    file.write_bytes(good)
    Store(folder, write=True).close()


@pytest.mark.parametrize("name", ["a#b", "50%25", "what?", "with space", "é"])
def test_a_folder_may_have_any_name(tmp_path: Path, name: str) -> None:
    folder = tmp_path / name
    folder.mkdir()
    Store.create(folder, {"clients": 3})
    with Store(folder, write=True) as store:
        store.set_meta("finished", True)
    assert {path.name for path in tmp_path.iterdir()} == {name}
    with Store(folder) as store:
        assert store.meta("finished") is True


def test_a_run_is_in_use_as_long_as_it_is_open_for_writing(folder: Path) -> None:
    assert not in_use(folder)
    with Store(folder, write=True):
        assert in_use(folder)
    assert not in_use(folder)
    assert not in_use(folder / "nowhere")


def test_states_are_copied_under_their_new_names_and_what_is_gone_goes(folder: Path) -> None:
    with Store(folder, write=True) as store:
        for scope, key, data in (("server", "model", b"new"), ("server", "same", b"s"), ("good", "same", b"s")):
            store.set_state(scope, key, data)
        store.set_state("good", "old", b"old")
        store.copy_states("server", to="good")
        assert {key: store.state("good", key) for key in store.state_keys("good")} == {"model": b"new", "same": b"s"}
        assert store.state("server", "model") == b"new"
    with Store(folder, write=True):  # checks the label of every state
        pass
