"""The models of the final pass are stored, and an export hands out exactly those."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import fedtailor
from fedtailor.data import DataSettings, Federation, build
from fedtailor.errors import UserError
from fedtailor.runs.store import Store
from tests.support import old_database

SETTINGS: dict[str, Any] = {
    "rounds": 2,
    "data": {"clients": 4, "samples": 200},
    "training": {"epochs": 1},
    "method": {"name": "fedper"},
    "engine": {"kind": "inline"},
}
NOTHING_KEPT = {**SETTINGS, "evaluation": {"keep_models": 0}}


def federation() -> Federation:
    """Data that no setting describes: the digits, upside down."""
    made = build(DataSettings(clients=4, samples=200), 0)
    return replace(made, samples=replace(made.samples, x=np.ascontiguousarray(made.samples.x[:, ::-1])))


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("deployed") / "run"
    fedtailor.run(SETTINGS, folder=folder, federation=federation()).close()
    return folder


def weights(run: Path, client: int, folder: Path) -> dict[str, torch.Tensor]:
    return fedtailor.load_model(fedtailor.export_client(run, client, folder)).module.state_dict()


def test_an_export_is_the_model_that_was_scored_and_needs_no_data(run: Path, tmp_path: Path) -> None:
    """The settings of this run describe other data: the stored models are handed out all the same."""
    data = federation()
    with fedtailor.Run(run) as done:
        reported = {row["client"]: row["correct"] for row in done.scores("final")}
    for client in range(4):
        model = fedtailor.load_model(fedtailor.export_client(run, client, tmp_path / str(client)))
        rows = data.test[client]
        said = model.predict(data.samples.x[rows])
        truth = [data.samples.classes[label] for label in data.samples.y[rows]]
        assert sum(s == t for s, t in zip(said, truth, strict=True)) == reported[client]


def test_a_model_that_was_not_stored_is_trained_again_to_the_bit(tmp_path: Path) -> None:
    fedtailor.run(SETTINGS, folder=tmp_path / "kept").close()
    fedtailor.run(NOTHING_KEPT, folder=tmp_path / "none").close()
    with Store(tmp_path / "kept") as kept, Store(tmp_path / "none") as none:
        assert len(kept.read("deployed")) == 4
        assert none.read("deployed") == none.rows("SELECT * FROM models") == []
    first, second = (weights(tmp_path / name, 2, tmp_path / f"{name}-2") for name in ("kept", "none"))
    assert all(torch.equal(first[name], second[name]) for name in first)
    other = weights(tmp_path / "kept", 1, tmp_path / "other")
    assert not all(torch.equal(first[name], other[name]) for name in first)


def test_a_model_that_was_not_stored_is_not_trained_on_other_data(tmp_path: Path) -> None:
    """One file is gone from the folder and another came: client 2 would be another one."""
    data = tmp_path / "data"
    data.mkdir()
    for name in ("a", "c", "d"):
        np.savez(data / f"{name}.npz", x=np.eye(8, dtype=np.float32), y=np.arange(8) % 2)
    described = {**NOTHING_KEPT, "data": {"source": "folder", "folder": str(data)}}
    fedtailor.run(described, folder=tmp_path / "run").close()
    (data / "d.npz").rename(data / "b.npz")
    for export in (
        lambda: fedtailor.export_client(tmp_path / "run", 2, tmp_path / "out"),
        lambda: fedtailor.Run(tmp_path / "run").federation(),
    ):
        with pytest.raises(UserError, match=r"the data in 'folder' are not those it began with") as error:
            export()
        assert "\n" not in str(error.value)
    assert not (tmp_path / "out").exists()
    (data / "b.npz").rename(data / "d.npz")
    fedtailor.export_client(tmp_path / "run", 2, tmp_path / "out")


def test_data_given_in_python_are_asked_for_again_and_compared(tmp_path: Path) -> None:
    fedtailor.run(NOTHING_KEPT, folder=tmp_path / "run", federation=federation()).close()
    with pytest.raises(UserError, match="federation="):
        fedtailor.export_client(tmp_path / "run", 2, tmp_path / "out")
    other = build(DataSettings(clients=4, samples=200), 0)
    with pytest.raises(UserError, match="are not those it began with"):
        fedtailor.export_client(tmp_path / "run", 2, tmp_path / "out", federation=other)
    fedtailor.export_client(tmp_path / "run", 2, tmp_path / "out", federation=federation())


def test_models_above_the_limit_are_not_stored(tmp_path: Path) -> None:
    fedtailor.run({**SETTINGS, "evaluation": {"keep_models": 0.001}}, folder=tmp_path / "run").close()
    with Store(tmp_path / "run") as store:
        assert store.read("deployed") == []


def test_equal_models_are_stored_once(tmp_path: Path) -> None:
    """Without training every client deploys what it receives, the global model."""
    settings = {**SETTINGS, "method": {"name": "fedavg"}, "training": {"epochs": 0}}
    fedtailor.run(settings, folder=tmp_path / "run").close()
    with Store(tmp_path / "run") as store:
        assert len(store.rows("SELECT name FROM models")) == 1
        assert len({row["model"] for row in store.read("deployed")}) == 1
        assert [row["client"] for row in store.read("deployed")] == [0, 1, 2, 3]


@pytest.mark.parametrize("client", [-1, 4])
def test_a_client_that_does_not_exist_has_no_model(run: Path, client: int, tmp_path: Path) -> None:
    with pytest.raises(UserError, match=f"there is no client {client}: this run has clients 0 to 3"):
        fedtailor.export_client(run, client, tmp_path / "out")


def test_a_client_that_failed_in_the_final_pass_has_no_model(tmp_path: Path) -> None:
    settings = {**SETTINGS, "method": {"name": "tests.runs.test_deployed:Refusing"}}
    fedtailor.run(settings, folder=tmp_path / "run").close()
    with pytest.raises(UserError, match=r"client 1 has no model: it failed .*\(ValueError: not today\)"):
        fedtailor.export_client(tmp_path / "run", 1, tmp_path / "out")
    fedtailor.export_client(tmp_path / "run", 2, tmp_path / "out")


class Refusing(fedtailor.Method):
    """Client 1 fails in the final pass."""

    def fit(self, client: fedtailor.Client) -> None:
        if client.id == 1 and client.round > 2:
            raise ValueError("not today")


def test_a_run_of_an_earlier_version_is_shown_and_not_exported(tmp_path: Path) -> None:
    fedtailor.run(SETTINGS, folder=tmp_path / "run").close()
    with fedtailor.Run(tmp_path / "run") as run:
        before = run.summary().as_dict(), run.scores(), run.tasks()
    old_database.downgrade(tmp_path / "run")
    with fedtailor.Run(tmp_path / "run") as run:
        assert (run.summary().as_dict(), run.scores(), run.tasks()) == before
        assert run.names == ()
        assert run.warnings == ()
        assert run.phases() == []
    for act in (
        lambda: fedtailor.export_client(tmp_path / "run", 0, tmp_path / "out"),
        lambda: fedtailor.resume(tmp_path / "run"),
    ):
        with pytest.raises(UserError, match="has schema 3 of an earlier version"):
            act()


def test_where_the_time_of_a_round_went_is_recorded(run: Path) -> None:
    with fedtailor.Run(run) as done:
        phases = done.phases()
    for round in (1, 2):
        spent = {row["phase"]: row["seconds"] for row in phases if row["round"] == round}
        workers = {phase for phase in spent if phase.startswith("worker 0 ")}
        assert {"worker 0 train"} <= workers <= {"worker 0 train", "worker 0 evaluate"}
        assert spent.keys() - workers == {"server", "train", "evaluate", "codec", "store", "busy", "idle"}
        assert min(spent.values()) >= 0


def test_clients_with_names_are_recorded_and_others_cost_nothing(run: Path, tmp_path: Path) -> None:
    names = ("cairo", "oslo", "lima", "rome")
    given = replace(federation(), labels=names)
    with fedtailor.run(SETTINGS, folder=tmp_path / "run", federation=given) as named, fedtailor.Run(run) as unnamed:
        assert named.names == names
        sizes = [int(size) for size in given.train.sizes]
        assert [(row["client"], row["train"]) for row in named.clients()] == list(enumerate(sizes))
        assert unnamed.clients() == []


def test_what_a_method_warned_about_is_recorded_once(tmp_path: Path) -> None:
    settings = {**SETTINGS, "method": {"name": "fedprox", "mu": 0}}
    with fedtailor.run(settings, folder=tmp_path / "run") as run:
        (warning,) = run.warnings
    assert warning.startswith("fedprox: ")
    with fedtailor.resume(tmp_path / "run") as run:
        assert run.warnings == (warning,)
