"""States of earlier rounds: the right ones are kept, whole, and the file does not grow with their number."""

from pathlib import Path
from typing import Any

import fedtailor
from fedtailor.runs.checkpoints import drop, keep, keep_round, kept_rounds, kept_scopes, live_scopes
from fedtailor.runs.store import Store
from tests.support.fingerprint import fingerprint

SMALL: dict[str, Any] = {
    "rounds": 5,
    "method": {"name": "fedper"},
    "data": {"clients": 4, "samples": 160},
    "training": {"epochs": 1},
    "participation": {"ratio": 0.5},
    "engine": {"kind": "inline"},
}


def round_of(store: Store, round: int, clients: int = 3) -> None:
    for client in range(clients):
        store.set_state("client", client, bytes([round]) * 70_000)
    store.set_state("server", "model", bytes([round]))


def test_only_the_latest_are_kept_and_the_file_does_not_grow(tmp_path: Path) -> None:
    Store.create(tmp_path, {})
    pages = {}
    with Store(tmp_path, write=True) as store:
        for round in range(1, 41):
            with store.transaction():
                round_of(store, round)
                keep_round(store, round, most=3)
            pages[round] = store.rows("PRAGMA page_count")[0]["page_count"]
        assert kept_rounds(store) == [38, 39, 40]
        assert store.state("kept 38 client", 2) == bytes([38]) * 70_000
        assert live_scopes(store) == ["client", "server"]
    assert pages[40] == pages[6]


def test_a_state_that_is_kept_again_is_replaced_whole(tmp_path: Path) -> None:
    """A scope that has gone, and a client that has no state any more, do not stay behind."""
    Store.create(tmp_path, {})
    with Store(tmp_path, write=True) as store:
        round_of(store, 1)
        store.set_state("memory", 0, b"old")
        keep(store, "best")
        store.set_state("memory", 0, None)
        store.set_state("client", 2, None)
        keep(store, "best")
        assert kept_scopes(store, "best") == {"kept best client": "client", "kept best server": "server"}
        assert store.state_keys("kept best client") == ["0", "1"]
        drop(store, "best")
        assert kept_scopes(store, "best") == {}
        assert live_scopes(store) == ["client", "server"]


def test_checkpoints_change_nothing_else(tmp_path: Path) -> None:
    fedtailor.run(SMALL, folder=tmp_path / "without").close()
    fedtailor.run({**SMALL, "checkpoints": {"every": 2, "keep": 1}}, folder=tmp_path / "with").close()
    one, other = fingerprint(tmp_path / "without"), fingerprint(tmp_path / "with")
    kept = [row for row in other["state"] if row["scope"].startswith("kept ")]
    assert {row["scope"] for row in kept} == {"kept 4 client", "kept 4 good", "kept 4 server"}
    assert {**other, "state": [row for row in other["state"] if row not in kept]} == one
