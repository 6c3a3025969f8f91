"""What differs between two runs is named, and nothing else."""

import shutil
from pathlib import Path
from typing import Any

import pytest

import fedtailor
from fedtailor.errors import UserError
from fedtailor.runs.pruning import delete, prunable
from fedtailor.runs.store import Store
from tests.support import old_database

RUN: dict[str, Any] = {
    "rounds": 2,
    "data": {"clients": 3, "samples": 120},
    "training": {"epochs": 1},
    "engine": {"kind": "inline"},
}


@pytest.fixture(scope="module")
def first(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("first") / "run"
    fedtailor.run(RUN, folder=folder).close()
    return folder


def test_a_second_run_with_another_engine_name_and_checkpoints_is_equal(first: Path, tmp_path: Path) -> None:
    more = {"name": "second", "engine": {"kind": "inline", "workers": 3}, "checkpoints": {"every": 1}}
    fedtailor.run({**RUN, **more}, folder=tmp_path / "second").close()
    found = fedtailor.diff(first, tmp_path / "second")
    assert found.equal
    assert {one.what for one in found.settings} == {"name", "engine.workers", "checkpoints.every", "checkpoints.keep"}
    assert (found.versions, found.data, found.results, found.clients) == ((), (), (), ())


def test_another_rate_is_found_with_the_first_round_and_all_it_changed(first: Path, tmp_path: Path) -> None:
    fedtailor.run({**RUN, "training": {"epochs": 1, "lr": 0.002}}, folder=tmp_path / "other").close()
    found = fedtailor.diff(first, tmp_path / "other")
    assert not found.equal
    assert [(one.what, one.other) for one in found.settings] == [("training.lr", 0.002)]
    assert found.data == found.versions == ()
    named = {one.what for one in found.results}
    # what clients receive in round 1 does not depend on the rate; what they hold after it does
    assert {"final loss", "from round 1 on, global loss", "state of server model"} <= named
    assert {one.what for one in found.clients} >= {f"{client} final loss" for client in range(3)}
    assert found.as_dict()["settings"][0]["counts"] is True


def test_other_data_and_versions_are_found(first: Path, tmp_path: Path) -> None:
    fedtailor.run({**RUN, "seed": 1}, folder=tmp_path / "other").close()
    with Store(tmp_path / "other", write=True) as store, store.transaction():
        store.set_meta("environment", {**store.meta("environment"), "torch": "0.1"})
    found = fedtailor.diff(first, tmp_path / "other")
    assert [one.what for one in found.data] == ["digest"]
    assert [(one.what, one.other) for one in found.versions] == [("torch", "0.1")]


def test_states_that_were_deleted_are_no_difference(first: Path, tmp_path: Path) -> None:
    shutil.copytree(first, tmp_path / "pruned")
    delete([item for item in prunable(tmp_path) if item.kind == "states"])
    assert fedtailor.diff(first, tmp_path / "pruned").equal


def test_an_old_run_is_compared_and_what_is_no_run_refused(first: Path, tmp_path: Path) -> None:
    shutil.copytree(first, tmp_path / "old")
    old_database.downgrade(tmp_path / "old")
    assert fedtailor.diff(first, tmp_path / "old").settings == ()
    with pytest.raises(UserError, match="is not a run"):
        fedtailor.diff(first, tmp_path)
