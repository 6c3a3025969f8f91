"""`fedtailor draw`: every run has curves, a method shows what it has recorded, and the pictures hold those numbers."""

import json
from pathlib import Path
from typing import Any

import pytest
from torch import Tensor

from fedtailor.__main__ import main
from fedtailor.data import build
from fedtailor.errors import UserError
from fedtailor.runs import Run, run
from fedtailor.views.drawings import draw, drawings
from fedtailor.views.drawings import fedalp as pictures

SMALL: dict[str, Any] = {
    "rounds": 4,
    "method": {"name": "fedalp"},
    "data": {"clients": 20, "partition": {"kind": "one-label", "train": 40, "test": 10}},
    "training": {"batch_size": 20, "lr": 0.05, "epochs": 1},
    "engine": {"kind": "inline"},
}


@pytest.fixture(scope="module")
def done(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("drawings") / "run"
    run(SMALL, folder=folder).close()
    return folder


def texts(axes: Any) -> list[str]:
    return [text.get_text() for text in axes.texts]


def test_every_picture_is_written_in_any_format(done: Path, tmp_path: Path) -> None:
    names = ["curves", "local-and-global", "dendrogram", "groups", "psi"]
    with Run(done) as found:
        assert [path.name for path in draw(found, tmp_path / "new" / "place")] == [f"{name}.png" for name in names]
        assert [path.name for path in draw(found, tmp_path, "svg")] == [f"{name}.svg" for name in names]
    for name in names:
        assert (tmp_path / "new" / "place" / f"{name}.png").read_bytes().startswith(b"\x89PNG")
        assert "<svg" in (tmp_path / f"{name}.svg").read_text()[:1000]


def test_psi_is_drawn_with_its_numbers(done: Path) -> None:
    with Run(done) as found:
        psi, figure = found.server_state()["clustering"]["psi"], pictures.psi(found)
    axes = figure.axes[0]
    assert texts(axes) == [f"{value:.2f}" for row in psi.tolist() for value in row]
    assert [label.get_text() for label in axes.get_yticklabels()] == [str(group) for group in range(len(psi))]
    assert [label.get_text() for label in axes.get_xticklabels()] == ["conv1", "conv2", "fc1", "fc2"]


def test_groups_are_set_beside_the_labels_with_their_agreement(done: Path) -> None:
    with Run(done) as found:
        groups, figure = found.server_state()["groups"]["member"], pictures.groups(found)
        labels = pictures.true_labels(found)
    assert labels is not None
    assert len(set(labels)) == 10
    similar, counts = figure.axes[0], figure.axes[1]
    order = sorted(groups, key=lambda client: (groups[client], client))
    shown = similar.images[0].get_array()
    with Run(done) as found:
        rho = found.server_state()["clustering"]["similarity"]
    assert shown.tolist() == rho[order][:, order].tolist()
    assert counts.images[0].get_array().sum() == 20
    title = counts.get_title(loc="left")
    assert title.endswith(f"adjusted Rand index {pictures.agreement(groups, labels):.3f}")


def test_agreement_is_one_for_the_same_partition_under_other_names() -> None:
    assert pictures.agreement({0: 1, 1: 1, 2: 0, 5: 0}, [7, 7, 3, 9, 9, 3]) == 1.0
    assert pictures.agreement({0: 0, 1: 1, 2: 0, 5: 1}, [7, 7, 3, 9, 9, 3]) < 0.1


def test_the_tree_has_a_leaf_for_every_client_and_says_where_it_was_cut(done: Path) -> None:
    with Run(done) as found:
        state, figure, labels = found.server_state(), pictures.dendrogram(found), pictures.true_labels(found)
    assert labels is not None
    axes, aside = figure.axes
    leaves = [label.get_text() for label in axes.get_xticklabels()]
    assert sorted(leaves) == sorted(f"{client}\n{labels[client]}" for client in range(20))
    count = len(state["clustering"]["psi"])
    assert f"{count} groups, by silhouette" in axes.get_title(loc="left")
    (cut,) = [line for line in axes.lines if line.get_linestyle() == "--"]
    height = cut.get_ydata()[0]
    assert sum(merge > height for merge in state["clustering"]["linkage"][:, 2].tolist()) == count - 1
    assert dict(zip(*aside.lines[0].get_data(), strict=True)) == state["clustering"]["scores"]


def test_local_and_global_accuracy_are_those_of_the_run(done: Path) -> None:
    with Run(done) as found:
        figure = pictures.local_and_global(found)
        wanted = [[100 * row["pooled"] for row in found.metrics(model)] for model in ("received", "global")]
    lines = figure.axes[0].lines
    assert [line.get_ydata().tolist() for line in lines[:2]] == wanted
    assert lines[2].get_xdata() == [2, 2]  # the end of the warm-up


@pytest.mark.parametrize(
    "changes",
    [
        {"method": {"name": "fedalp", "warmup": 1}},
        {"method": {"name": "fedavg"}},
        {"method": {"name": "fedavg-ft"}},
    ],
    ids=["without groups", "without drawings", "with a dash"],
)
def test_there_is_only_what_was_recorded(changes: dict[str, Any], tmp_path: Path) -> None:
    with run({**SMALL, **changes}, folder=tmp_path / "run") as found:
        wanted = ["curves", "local-and-global"] if changes["method"]["name"] == "fedalp" else ["curves"]
        assert list(drawings(found)) == wanted
        draw(found, tmp_path)


@pytest.mark.parametrize(
    "method", [{"groups": 1}, {"groups": 20}, {"beta": 0}, {"choose": "gap", "ward": "condensed"}], ids=str
)
def test_unusual_groups_can_be_drawn(method: dict[str, Any], tmp_path: Path) -> None:
    few = {"clients": 20, "samples": 400, "partition": "iid"}
    with run({**SMALL, "data": few, "method": {"name": "fedalp", **method}}, folder=tmp_path / "run") as found:
        assert len(draw(found, tmp_path)) == 5


def test_without_the_data_the_groups_are_drawn_without_labels(
    done: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Data that are not there, and data that are not those of the run."""

    def nothing(self: Run) -> None:
        raise UserError("no data")

    with Run(done) as found:
        others = build(found.experiment.data, seed=1)
        for federation in (nothing, lambda self: others):
            monkeypatch.setattr(Run, "federation", federation)
            assert pictures.true_labels(found) is None
            assert len(draw(found, tmp_path / "pictures")) == 5
            assert len(pictures.groups(found).axes) == 2  # the similarities and their scale


def test_the_command_prints_what_it_writes(done: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["draw", str(done), "--out", str(tmp_path / "a")]) == 0
    printed = capsys.readouterr().out.split()
    assert len(printed) == 5
    assert all(Path(path).is_file() for path in printed)
    assert main(["draw", str(done), "--json", "--format", "svg"]) == 0
    written = json.loads(capsys.readouterr().out)["written"]
    assert [Path(path).parent for path in written] == [done / "drawings"] * 5
    assert {Path(path).suffix for path in written} == {".svg"}


@pytest.mark.parametrize(
    ("words", "said"),
    [(["draw", "nowhere"], "is not a run"), (["draw", "RUN", "--out", "FILE"], "cannot be written")],
    ids=["not a run", "nowhere to write"],
)
def test_bad_input_gets_one_sentence(
    words: list[str], said: str, done: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "file").write_text("")
    places = {"RUN": str(done), "FILE": str(tmp_path / "file" / "below")}
    assert main([places.get(word, word) for word in words]) == 2
    captured = capsys.readouterr()
    assert captured.out == ""
    assert len(captured.err.splitlines()) == 1
    assert said in captured.err


def test_the_server_state_of_a_run_can_be_read_objects_included(done: Path, tmp_path: Path) -> None:
    with Run(done) as found:
        state = found.server_state()
    assert isinstance(state["model"]["fc2.weight"], Tensor)
    assert state["clustering"]["round"] == 2
    settings = {**SMALL, "rounds": 1, "method": {"name": "feddrl"}}
    with run(settings, folder=tmp_path / "agent") as found:
        assert found.agents()["impact"].keys() >= {"networks", "replay"}
