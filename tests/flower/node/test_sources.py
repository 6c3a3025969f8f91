"""Three hospitals whose data come in three ways, with labels that not all of them have."""

from pathlib import Path

import numpy as np
import pytest

pytest.importorskip("flwr", reason="needs the extra 'flower'")

from fedtailor import load_model
from fedtailor.data.readers import Roles
from fedtailor.errors import UserError
from fedtailor.flower.coordinator.serving import serve_on
from fedtailor.flower.node.node import Node
from fedtailor.flower.node.sources import load_data
from tests.support.federation import Wire, settings


def patients(seed: int, kinds: list[str], count: int = 60) -> tuple[np.ndarray, np.ndarray]:
    """Eight measurements of each patient, which tell the kind of illness."""
    draw = np.random.default_rng(seed)
    y = draw.integers(0, len(kinds), count)
    x = draw.normal(0, 0.1, (count, 8)).astype(np.float32)
    for row, kind in enumerate(y):
        x[row, ord(kinds[kind][0]) % 8] += 1
    return x, np.array(kinds)[y]


class Carla:
    """A data set with a length and items."""

    def __init__(self) -> None:
        self.x, self.y = patients(2, ["flu", "gout"])

    def __len__(self) -> int:
        return len(self.y)

    def __getitem__(self, index: int) -> tuple[np.ndarray, str]:
        return self.x[index], self.y[index]


def test_a_file_a_folder_and_a_function_make_a_federation(tmp_path: Path) -> None:
    x, y = patients(0, ["acne", "flu"])
    np.savez(tmp_path / "anna.npz", x=x, y=y)
    x, y = patients(1, ["flu", "gout"])
    (tmp_path / "bert").mkdir()
    rows = [",".join([*map(str, values), label]) for values, label in zip(x, y, strict=True)]
    (tmp_path / "bert" / "data.csv").write_text("\n".join(rows))
    sources = {
        "anna": str(tmp_path / "anna.npz"),
        "bert": str(tmp_path / "bert"),
        "carla": "tests.flower.node.test_sources:Carla",
    }
    nodes = {n: Node(name, data, tmp_path / name / "state") for n, (name, data) in enumerate(sources.items())}
    made = settings("fedper", rounds=8, data={"clients": 3}, training={"epochs": 2, "lr": 0.2}, validation=False)
    with serve_on(Wire(nodes), made, tmp_path / "run") as run:
        assert run.nodes == ["anna", "bert", "carla"]
        assert run.metrics("final")[-1]["accuracy"] > 0.9
    for name, data in sources.items():
        model = load_model(tmp_path / name / "state" / "federation" / "model")
        assert model.card["classes"] == ["acne", "flu", "gout"]
        samples, _ = load_data(data)
        right = np.array(model.predict(samples.x)) == np.array(samples.classes)[samples.y]
        assert right.mean() > 0.9


def test_tables_of_nodes_are_read_as_their_owners_say(tmp_path: Path) -> None:
    """Columns with a name, a label in the middle, categories that only one node has, and missing values."""
    for name, smoker in (("cairo", "former"), ("lima", "never")):
        rows = [f"{name}-{k},{k % 2},{'' if k % 7 == 0 else 40 + 20 * (k % 2)},{smoker}" for k in range(30)]
        (tmp_path / f"{name}.csv").write_text("\n".join(["patient,died,age,smoker", *rows]))
    roles = Roles(label="died", ignore=("patient",))
    nodes = {
        n: Node(name, str(tmp_path / f"{name}.csv"), tmp_path / name, roles=roles)
        for n, name in enumerate(("cairo", "lima"))
    }
    data = {"clients": 2, "preprocess": {"impute": "mean", "standardise": True}}
    made = settings("fedper", rounds=2, data=data, validation=False)
    with serve_on(Wire(nodes), made, tmp_path / "run") as run:
        assert [row["name"] for row in run.scores()] == ["cairo", "lima"]
        assert (run.client("lima"), run.settings["data"]["source"]) == (1, "nodes")
    with pytest.raises(UserError, match=r"data\.label is about the columns of CSV files"):
        load_data("tests.flower.node.test_sources:Carla", roles)


class Waits(Exception):
    """The coordinator waits for another node."""


def test_a_node_whose_data_do_not_fit_does_not_count_and_is_named(tmp_path: Path) -> None:
    for name, width in (("anna", 8), ("bert", 9)):
        np.savez(tmp_path / f"{name}.npz", x=np.zeros((20, width), np.float32), y=np.arange(20) % 2)
    nodes = {n: Node(name, str(tmp_path / f"{name}.npz"), tmp_path / name) for n, name in enumerate(("anna", "bert"))}

    def say(sentence: str) -> None:
        if "does not count" in sentence:
            raise Waits(sentence)

    with pytest.raises(Waits, match="does not count: its data have another form than those of"):
        serve_on(Wire(nodes), settings(data={"clients": 2}), tmp_path / "run", say=say)
    assert not (tmp_path / "run").exists()
