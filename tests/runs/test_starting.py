"""A run starts from another one exactly, or begins with its weights; what does not fit is refused."""

import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import fedtailor
from fedtailor.errors import UserError
from fedtailor.messages.trees import unpack
from fedtailor.methods.fedavg import FedAvg
from fedtailor.runs.store import Store
from tests.support import old_database
from tests.support.fingerprint import fingerprint

RUN: dict[str, Any] = {
    "rounds": 5,
    "data": {"clients": 5, "samples": 200},
    "training": {"epochs": 1, "lr": 0.2, "schedule": {"kind": "exponential"}},
    "participation": {"ratio": 0.6, "dropout": 0.1},
    "engine": {"kind": "inline"},
    "checkpoints": {"every": 2, "keep": 2},
}


@pytest.fixture(scope="module")
def source(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A finished run of FedAvg; only to be looked at."""
    folder = tmp_path_factory.mktemp("source") / "fedavg"
    fedtailor.run({**RUN, "method": {"name": "fedavg"}}, folder=folder).close()
    return folder


def initial(folder: Path) -> dict[str, torch.Tensor]:
    with Store(folder) as store:
        data = store.state("start", "model")
    assert data is not None
    return unpack(data)  # type: ignore[no-any-return]


def later(folder: Path, round: int) -> dict[str, list[dict[str, Any]]]:
    """What a run recorded after a round, and its last state."""
    found = fingerprint(folder)
    after = {table: [row for row in rows if row.get("round", round + 1) > round] for table, rows in found.items()}
    after["state"] = [row for row in after["state"] if not row["scope"].startswith(("kept", "start", "slots"))]
    return after


DEVICES = {"devices": {"speed": 0.01, "failure": 0.1, "availability": {"kind": "daily", "day": 2.0}}}


@pytest.mark.parametrize(
    ("method", "more"), [("fedper", DEVICES), ("pfedrlla", {}), ("fedbabu", {})], ids=["fedper", "pfedrlla", "fedbabu"]
)
def test_a_branch_with_the_same_settings_is_the_other_run_to_the_bit(
    method: str, more: dict[str, Any], tmp_path: Path
) -> None:
    """Scores, decisions, the clock and all states."""
    settings = {**RUN, **more, "method": {"name": method}}
    fedtailor.run(settings, folder=tmp_path / "source").close()
    start = {"path": str(tmp_path / "source"), "round": 2}
    with fedtailor.run(start=start, folder=tmp_path / "branch") as run:
        assert (
            run.summary().notes[0].startswith(f"started from {tmp_path / 'source'} after round 2 (all states; digest")
        )
        assert run.rounds_done == 5
        assert [row["round"] for row in run.rounds()] == [3, 4, 5]
    one, other = later(tmp_path / "source", 2), later(tmp_path / "branch", 2)
    for table in one:
        assert one[table] == other[table], f"{table} differs"
    if method == "fedper":  # its private heads matter
        with fedtailor.run(start={**start, "carry": "weights"}, folder=tmp_path / "warm") as run:
            assert [row["round"] for row in run.rounds()] == [1, 2, 3, 4, 5]
        assert later(tmp_path / "warm", 2)["state"] != one["state"]


@pytest.mark.parametrize("method", ["fedavg", "fedper", "fedprox"])
def test_hand_another_method_begins_with_the_weights(method: str, source: Path, tmp_path: Path) -> None:
    """What clients receive in round 1 is the model that the server had at the end, the head of FedPer included."""
    start = {"path": str(source), "carry": "weights"}
    settings = {**RUN, "rounds": 1, "method": {"name": method}}
    with fedtailor.run(settings, start=start, folder=tmp_path / "warm") as run, fedtailor.Run(source) as before:
        assert run.scores("received", 1) == before.scores("global", 5)
        assert run.warnings == ()
    with fedtailor.run(settings, folder=tmp_path / "cold") as run, fedtailor.Run(source) as before:
        assert run.scores("received", 1) != before.scores("global", 5)


def test_files_give_what_the_run_gives(source: Path, tmp_path: Path) -> None:
    """An exported folder, its safetensors, and a state_dict of torch; in processes too, and after the file is gone."""
    exported = fedtailor.export_global(source, tmp_path / "exported")
    model = fedtailor.load_model(exported)
    torch.save(model.module.state_dict(), tmp_path / "model.pt")
    settings = {**RUN, "rounds": 2, "method": {"name": "fedper"}}
    fedtailor.run(settings, start={"path": str(source)}, folder=tmp_path / "run").close()
    for place in (exported, exported / "model.safetensors", tmp_path / "model.pt"):
        engine = {"kind": "processes", "workers": 1} if place.suffix == ".pt" else RUN["engine"]
        name = f"from-{place.suffix}"
        with fedtailor.run({**settings, "engine": engine}, start=place, folder=tmp_path / name) as run:
            assert "is not known here" in run.warnings[0]
        assert fingerprint(tmp_path / name) == fingerprint(tmp_path / "run")
    (tmp_path / "model.pt").unlink()
    kept = fingerprint(tmp_path / "from-.pt")
    fedtailor.resume(tmp_path / "from-.pt").close()
    assert fingerprint(tmp_path / "from-.pt") == kept
    assert fedtailor.export_client(tmp_path / "from-.pt", 0, tmp_path / "client").is_dir()


def test_a_model_for_other_classes_gives_its_body(source: Path, tmp_path: Path) -> None:
    """The body is that of the start, the head that of the seed."""
    y = np.arange(60) % 3
    x = np.random.RandomState(0).randint(0, 17, (60, 8, 8, 1)).astype(np.uint8)
    federation = fedtailor.Federation.from_clients(dict.fromkeys("ab", (x, y)))
    settings = {**RUN, "rounds": 1, "checkpoints": None, "participation": {}}
    settings = {key: value for key, value in settings.items() if key not in ("data", "checkpoints")}
    for start in ({"path": str(source)}, {"path": str(source), "part": "head"}):
        with pytest.raises(UserError, match=r"has the shape \(10, .*needs \(3, "):
            fedtailor.run(settings, start=start, federation=federation, folder=tmp_path / "no")
    start = {"path": str(source), "part": "body"}
    with fedtailor.run(settings, start=start, federation=federation, folder=tmp_path / "body") as run:
        assert run.start is not None
        assert run.start["carried"].endswith("the others are initial")
        assert "trained on other data" in run.warnings[0]
    assert not (tmp_path / "no").exists()
    found, exported = initial(tmp_path / "body"), fedtailor.export_global(source, tmp_path / "exported")
    before = fedtailor.load_model(exported).module.state_dict()
    alike = {
        name: tensor.shape == before[name].shape and torch.equal(tensor, before[name]) for name, tensor in found.items()
    }
    assert 0 < sum(alike.values()) < len(alike)


def test_the_digest_is_recorded_and_the_recorded_settings_run_again(source: Path, tmp_path: Path) -> None:
    settings = {**RUN, "rounds": 7, "start": str(source)}
    fedtailor.run(settings, folder=tmp_path / "one").close()
    fedtailor.run(tmp_path / "one" / "experiment.toml", folder=tmp_path / "two").close()
    assert fedtailor.diff(tmp_path / "one", tmp_path / "two").equal
    with fedtailor.Run(tmp_path / "one") as run:
        recorded = run.settings["start"]
        assert run.start is not None
        assert recorded["digest"] == run.start["digest"]
    with pytest.raises(UserError, match=r"is not what start\.digest says"):
        fedtailor.run(settings, start={**recorded, "round": 4}, folder=tmp_path / "three")


def test_clients_of_the_same_names_keep_their_states_with_new_data(tmp_path: Path) -> None:
    """The next month: other samples, the same hospitals, and FedPer's private heads. Another name ends that."""

    def federation(seed: int, names: str = "ab") -> fedtailor.Federation:
        random = np.random.RandomState(seed)
        data = {name: (random.rand(30, 4).astype(np.float32), np.arange(30) % 2) for name in names}
        return fedtailor.Federation.from_clients(data)

    settings = {"rounds": 2, "method": {"name": "fedper"}, "engine": {"kind": "inline"}, "model": {"name": "mlp"}}
    fedtailor.run(settings, federation=federation(0), folder=tmp_path / "may").close()
    more, start = {**settings, "rounds": 3}, str(tmp_path / "may")
    with fedtailor.run(more, start=start, federation=federation(1), folder=tmp_path / "june") as run:
        assert run.start is not None
        assert run.start["carried"] == "all states"
        assert "other data" in run.warnings[0]
        assert {row["round"] for row in run.metrics("held")} == {3}
    with fedtailor.run(more, start=start, federation=federation(1, "ac"), folder=tmp_path / "july") as run:
        assert run.start is not None
        assert "tensors of weights" in run.start["carried"]  # the body alone


def test_a_run_does_not_need_its_start_any_more(source: Path, tmp_path: Path) -> None:
    shutil.copytree(source, tmp_path / "source")
    with fedtailor.run(start=tmp_path / "source", folder=tmp_path / "run", source={**RUN, "rounds": 6}):
        shutil.rmtree(tmp_path / "source")
    with fedtailor.resume(tmp_path / "run", rounds=8) as run:
        assert run.rounds_done == 8


@pytest.mark.parametrize(
    ("start", "changes", "sentence"),
    [
        ({"round": 3}, {}, "has no state of round 3: it has those of rounds 2, 4, 5"),
        ({"round": "best"}, {}, r"has no best round: only a run with a table \[stopping\]"),
        ({}, {}, "has done 5 rounds, and rounds = 5: give more rounds"),
        ({"model": "group/0"}, {}, "has no 'group/0' model"),
        ({}, {"method": {"name": "hapfl"}}, "networks of several sizes"),
        ({}, {"model": {"name": "linear"}}, "this run's model does not"),
        ({"path": "nowhere"}, {}, "nowhere is neither a run"),
        (
            {},
            {
                "method": {"name": "fedavg"},
                "privacy": {"level": "client", "noise": 1.0},
                "participation": {"ratio": 0.6},
            },
            "trained on the same clients",
        ),
    ],
    ids=["round", "best", "rounds", "model", "family", "network", "path", "privacy"],
)
def test_what_makes_no_sense_is_refused_and_writes_nothing(
    start: dict[str, Any], changes: dict[str, Any], sentence: str, source: Path, tmp_path: Path
) -> None:
    with pytest.raises(UserError, match=sentence) as error:
        fedtailor.run({**RUN, **changes}, start={"path": str(source), **start}, folder=tmp_path / "run")
    assert "\n" not in str(error.value)
    assert list(tmp_path.iterdir()) == []


def test_runs_without_a_model_on_the_server_are_refused(tmp_path: Path) -> None:
    one = {**RUN, "rounds": 1}
    for method in ("local", "fedamp"):
        fedtailor.run({**one, "method": {"name": method}}, folder=tmp_path / method).close()
        with pytest.raises(UserError, match="has no 'global' model on its server"):
            fedtailor.run({**one, "method": {"name": "fedavg"}}, start=tmp_path / method, folder=tmp_path / "run")


def test_a_run_of_an_earlier_version_and_one_in_its_own_place_are_refused(source: Path, tmp_path: Path) -> None:
    shutil.copytree(source, tmp_path / "old")
    with pytest.raises(UserError, match="cannot be replaced by a run that starts from it"):
        fedtailor.run({**RUN, "rounds": 6}, start=tmp_path / "old", folder=tmp_path / "old", overwrite=True)
    old_database.downgrade(tmp_path / "old")
    with pytest.raises(UserError, match="has schema 3 of an earlier version"):
        fedtailor.run({**RUN, "rounds": 6}, start=tmp_path / "old", folder=tmp_path / "run")


def test_a_run_whose_method_kept_its_state_in_another_layout_is_refused_and_stays(
    source: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    shutil.copytree(source, tmp_path / "old")
    before = fingerprint(tmp_path / "old")
    monkeypatch.setattr(FedAvg, "layout", 2)
    x, y = np.random.RandomState(0).randint(0, 16, (40, 8, 8, 1)).astype(np.uint8), np.arange(40) % 10
    again = [
        lambda: fedtailor.resume(tmp_path / "old", rounds=9),
        lambda: fedtailor.run({**RUN, "rounds": 9}, start=tmp_path / "old", folder=tmp_path / "run"),
        lambda: fedtailor.export_global(tmp_path / "old", tmp_path / "model"),
        lambda: fedtailor.adapt(tmp_path / "old", (x, y), tmp_path / "new"),
    ]
    for use in again:
        with pytest.raises(UserError, match="keeps the state of another version of the method"):
            use()
    assert fingerprint(tmp_path / "old") == before
    assert [path.name for path in tmp_path.iterdir()] == ["old"]


def test_a_comparison_says_where_its_runs_started(source: Path, tmp_path: Path) -> None:
    settings = {**RUN, "rounds": 1, "start": str(source)}
    found = fedtailor.compare(settings, methods=["fedper", "local"], folder=tmp_path / "both").summary()
    (note,) = found.notes
    assert note.rows == ("fedper", "local")
    assert note.sentence.startswith(f"started from {source} after round 5 (weights; digest ")


def test_a_search_and_a_pre_training_are_refused(source: Path, tmp_path: Path) -> None:
    settings = {**RUN, "start": str(source), "method": {"name": "bwa"}}
    with pytest.raises(UserError, match="start: an agent is pre-trained"):
        fedtailor.pretrain(settings, folder=tmp_path / "policy")
