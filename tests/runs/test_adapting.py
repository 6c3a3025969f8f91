"""A client that never took part gets a model, the run stays as it is, and wrong data are one sentence."""

import json
import re
from hashlib import blake2b
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import fedtailor
from fedtailor.errors import UserError
from tests.support.problem import targets

SMALL: dict[str, Any] = {
    "rounds": 2,
    "data": {"clients": 4, "samples": 240},
    "training": {"epochs": 1, "lr": 0.1},
    "engine": {"kind": "inline"},
}


def digests(folder: Path) -> dict[str, str]:
    return {file.name: blake2b(file.read_bytes()).hexdigest() for file in sorted(folder.iterdir())}


def digits(classes: int = 10, samples: int = 40) -> tuple[np.ndarray, np.ndarray]:
    stream = np.random.RandomState(0)
    return stream.randint(0, 17, (samples, 8, 8, 1)).astype(np.uint8), np.arange(samples) % classes


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("adapting")
    for method in ("fedavg", "fedper"):
        fedtailor.run({**SMALL, "method": {"name": method}}, folder=folder / method).close()
    return folder


def test_hand_adapt(tmp_path: Path) -> None:
    """The targets 0, 4, 4, 4 pull w from 1 to 2 in round 1: each client goes half of the way, the mean target is 3.

    A new client with target 8 goes half of the way in a pass: 2 -> 5 -> 6.5, where (6.5 - 8)^2 / 2 = 1.125.
    """
    settings = {
        "rounds": 1,
        "model": {"name": "tests.support.problem:Scalar"},
        "engine": {"kind": "inline"},
        "training": {"lr": 0.5, "epochs": 1, "batch_size": 1000, "loss": "squared-error"},
    }
    fedtailor.run(settings, folder=tmp_path / "run", federation=targets([0.0], [4.0, 4.0, 4.0])).close()
    here = np.ones((2, 1), np.float32), np.full((2, 1), 8, np.float32)
    arrays = {"x": here[0], "y": here[1], "x_test": here[0][:1], "y_test": here[1][:1]}
    done = fedtailor.adapt(tmp_path / "run", arrays, tmp_path / "out", passes=2)
    assert [score["passes"] for score in done.scores] == [0, 1, 2]
    assert [score["loss"] for score in done.scores] == pytest.approx([18.0, 4.5, 1.125])
    assert float(next(iter(fedtailor.load_model(done.folder).module.state_dict().values()))) == pytest.approx(6.5)


def test_the_run_stays_as_it_is_and_test_samples_change_no_weight(place: Path, tmp_path: Path) -> None:
    before = digests(place / "fedavg")
    x, y = digits()
    models = []
    for name, shift in (("one", 0), ("other", 1)):
        arrays = {"x": x, "y": y, "x_test": x[:5], "y_test": (y[:5] + shift) % 10, "classes": [*map(str, range(10))]}
        done = fedtailor.adapt(place / "fedavg", arrays, tmp_path / name)
        models.append((done.folder / "model.safetensors").read_bytes())
    assert models[0] == models[1]
    assert digests(place / "fedavg") == before


def test_fedper_trains_a_head_on_the_frozen_body(place: Path, tmp_path: Path) -> None:
    done = fedtailor.adapt(place / "fedper", digits(), tmp_path / "out", name="bern", passes=3)
    own = fedtailor.load_model(done.folder).module.state_dict()
    with fedtailor.Run(place / "fedper") as run:
        body = run.server_state()["model"]
    assert all(torch.equal(own[name], tensor) for name, tensor in body.items())
    card = json.loads((done.folder / "card.json").read_text())
    assert (card["name"], card["new_client"], card["passes"], card["scores"]) == ("bern", True, 3, done.scores)


def test_hapfl_chooses_the_size_by_the_device(tmp_path: Path) -> None:
    sizes = [{"name": "mlp", "arguments": {"hidden": [n]}} for n in (16, 256)]
    method = {"name": "hapfl", "sizes": sizes, "agents": {"size": {"decider": "search"}}}
    devices = {"speed": 1.0, "noise": 0.0, "profiles": {"kind": "uniform", "spread": 2}}
    fedtailor.run({**SMALL, "method": method, "devices": devices}, folder=tmp_path / "run").close()
    widths = []
    for speed in (0.001, 1000.0):
        done = fedtailor.adapt(tmp_path / "run", digits(), tmp_path / f"{speed}", speed=speed)
        weights = fedtailor.load_model(done.folder).module.state_dict().values()
        widths.append(max(tensor.shape[0] for tensor in weights))
    assert widths == [16, 256]


@pytest.mark.parametrize(
    ("arrays", "sentence"),
    [
        ({"x": np.zeros((9, 7, 8, 1), np.uint8), "y": np.arange(9)}, "7 x 8 pixels"),
        ({"x": np.zeros((9, 3), np.float32), "y": np.arange(9)}, "3 features"),
        ({"x": digits()[0], "y": np.arange(40) + 5}, "the class '10', which the run was not trained on"),
        ({"x": digits()[0], "y": np.arange(40) / 7}, "numbers as labels"),
        ({"x": digits(samples=1)[0], "y": [3]}, "too few samples"),
        ({"x": digits()[0][:0], "y": []}, "no samples"),
    ],
    ids=["pixels", "features", "class", "regression", "one", "empty"],
)
def test_data_that_do_not_fit_are_one_sentence(arrays: Any, sentence: str, place: Path, tmp_path: Path) -> None:
    with pytest.raises(UserError, match=sentence):
        fedtailor.adapt(place / "fedavg", arrays, tmp_path / "out")
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(
    ("rows", "sentence"),
    [
        ("51,f,ill\nold,m,well\n49,m,well\n", "has 'old' in the column 'age', where the run has numbers"),
        ("51,0,ill\n50,1,well\n49,1,well\n", "has numbers in the column 'sex', where the run has words"),
        ("51,x,ill\n50,m,well\n49,m,well\n", "has the category of 'sex', 'x', which the run was not trained on"),
    ],
    ids=["word", "number", "category"],
)
def test_a_column_of_another_kind_is_named_with_its_value(rows: str, sentence: str, tmp_path: Path) -> None:
    (tmp_path / "clients").mkdir()
    for name in ("basel", "bern"):
        lines = [f"{40 + n},{'fm'[n % 2]},{('ill', 'well')[n // 2 % 2]}\n" for n in range(20)]
        (tmp_path / "clients" / f"{name}.csv").write_text("age,sex,label\n" + "".join(lines))
    data = {"source": "folder", "folder": str(tmp_path / "clients")}
    fedtailor.run({"rounds": 1, "data": data, "engine": {"kind": "inline"}}, folder=tmp_path / "run").close()
    (tmp_path / "new.csv").write_text("age,sex,label\n" + rows)
    with pytest.raises(UserError, match=re.escape(sentence)):
        fedtailor.adapt(tmp_path / "run", tmp_path / "new.csv", tmp_path / "out")
    assert not (tmp_path / "out").exists()


def test_a_full_disk_leaves_nothing(place: Path, tmp_path: Path) -> None:
    import resource

    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (100, before[1]))
    try:
        with pytest.raises(UserError, match="cannot be written"):
            fedtailor.adapt(place / "fedavg", digits(), tmp_path / "out")
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
    assert not list(tmp_path.iterdir())
