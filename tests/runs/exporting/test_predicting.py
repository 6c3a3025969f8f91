"""From a file to predictions: classes with probabilities, or numbers, the same whatever computes them."""

import csv
import json
import resource
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import fedtailor
from fedtailor.errors import UserError
from tests.runs.exporting.conftest import SETTINGS


@pytest.fixture(scope="module")
def heart(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Hospitals with tables: categories, missing values, standardised numbers; with an export of one in all formats."""
    place = tmp_path_factory.mktemp("heart")
    data = {"source": "heart-disease", "split": {"train": 0.5, "val": 0.25, "test": 0.25}}
    fedtailor.run({**SETTINGS, "data": data, "rounds": 1}, folder=place / "run").close()
    pytest.importorskip("onnxscript")
    fedtailor.export_client(place / "run", 0, place / "export", formats=["safetensors", "onnx"])
    with fedtailor.Run(place / "run") as run:
        federation = run.federation()
    samples, rows = federation.samples, federation.test[0]
    with (place / "new.csv").open("w", newline="") as file:  # columns in another order, with a number of the patient
        writer = csv.writer(file)
        order = list(reversed(range(len(samples.columns))))
        writer.writerow(["patient", *(samples.columns[j].name for j in order)])
        for row in rows:
            cells = [_cell(samples.x[row, j], samples.columns[j].categories) for j in order]
            writer.writerow([f"p{row}", *cells])
    np.save(place / "rows.npy", samples.x[rows])
    return place


def _cell(value: float, categories: tuple[str, ...]) -> str:
    return "" if np.isnan(value) else categories[int(value)] if categories else repr(float(value))


def test_a_table_gives_what_the_model_gives_for_its_arrays(heart: Path) -> None:
    raw = np.load(heart / "rows.npy")
    assert np.isnan(raw).any()
    model = fedtailor.load_model(heart / "export")
    done = fedtailor.predict(heart / "export", heart / "new.csv")
    assert done.predictions == model.predict(raw)
    assert done.probabilities.tobytes() == model.probabilities(raw).numpy().tobytes()
    assert done.calibrated == ("not_calibrated" not in model.card["calibration"])
    assert done.notes == ("left out: patient",)
    by_onnx = fedtailor.predict(heart / "export", heart / "new.csv", format="onnx")
    assert by_onnx.predictions == done.predictions
    np.testing.assert_allclose(by_onnx.probabilities, done.probabilities, atol=1e-5)


def test_predictions_as_csv_and_as_json(heart: Path, monkeypatch: pytest.MonkeyPatch, capsys: Any) -> None:
    from fedtailor.__main__ import main

    monkeypatch.chdir(heart)
    assert main(["predict", "export", "new.csv"]) == 0
    printed = capsys.readouterr()
    rows = list(csv.DictReader(printed.out.splitlines()))
    assert main(["predict", "export", "new.csv", "--json"]) == 0
    document = json.loads(capsys.readouterr().out)
    assert len(rows) == len(document["predictions"]) == len(np.load(heart / "rows.npy"))
    first, names = document["predictions"][0], document["classes"]
    assert list(rows[0]) == ["sample", "prediction", *(f"probability of {name}" for name in names)]
    assert rows[0]["prediction"] == first["prediction"] == max(first["probabilities"], key=first["probabilities"].get)
    assert sum(first["probabilities"].values()) == pytest.approx(1, abs=1e-5)
    assert float(rows[0][f"probability of {names[0]}"]) == pytest.approx(first["probabilities"][names[0]], abs=1e-5)
    assert "left out: patient" in printed.err
    assert main(["predict", "export", "new.csv", "--out", "found.csv"]) == 0
    assert list(csv.DictReader((heart / "found.csv").read_text().splitlines())) == rows
    capsys.readouterr()
    assert main(["predict", "export", "new.csv", "--out", "found.csv"]) == 2
    assert "found.csv exists" in capsys.readouterr().err
    assert main(["predict", "export", "new.csv", "--out", "gone/found.csv"]) == 2
    assert "gone" in capsys.readouterr().err
    before = resource.getrlimit(resource.RLIMIT_FSIZE)  # a limit of the size of files stands for a full disk
    resource.setrlimit(resource.RLIMIT_FSIZE, (100, before[1]))
    try:
        assert main(["predict", "export", "new.csv", "--out", "full.csv"]) == 2
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
    assert "full.csv cannot be written: File too large" in capsys.readouterr().err
    assert not (heart / "full.csv").exists()
    assert not list(heart.glob(".*"))


def test_a_regression_predicts_numbers(tmp_path: Path) -> None:
    stream = np.random.RandomState(0)
    (tmp_path / "data").mkdir()
    for name in ("a", "b"):
        x = stream.randn(40, 3).astype(np.float32)
        np.savez(tmp_path / "data" / f"{name}.npz", x=x, y=(x @ [1.0, 2.0, -1.0]).astype(np.float32))
    data = {"source": "folder", "folder": str(tmp_path / "data")}
    fedtailor.run({**SETTINGS, "data": data, "rounds": 1}, folder=tmp_path / "run").close()
    export = fedtailor.export_client(tmp_path / "run", "b", tmp_path / "export", formats=["safetensors", "torch"])
    done = fedtailor.predict(export, tmp_path / "data" / "a.npz")
    x = np.load(tmp_path / "data" / "a.npz")["x"]
    assert done.predictions == fedtailor.load_model(export).predict(x)
    assert done.probabilities is None
    assert done.table()[0] == ["sample", "prediction"]
    assert done.rows()[0] == {"sample": "1", "prediction": done.predictions[0]}
    assert "A regression has no probabilities." in (export / "MODEL_CARD.md").read_text(encoding="utf-8")
    with pytest.raises(UserError, match="a regression has no probabilities"):
        fedtailor.load_model(export).probabilities(x)


@pytest.mark.parametrize(
    "change",
    [
        lambda card: card.pop("sample"),
        lambda card: card["sample"].update(type="object"),
        lambda card: card["sample"].update(shape="x"),
        lambda card: card.update(columns=[["age", []]]),
    ],
)
def test_a_card_that_does_not_say_what_a_sample_is(
    change: Callable[[Any], Any], exported: Path, tmp_path: Path
) -> None:
    folder = shutil.copytree(exported, tmp_path / "export")
    card = json.loads((folder / "card.json").read_text(encoding="utf-8"))
    change(card)
    (folder / "card.json").write_text(json.dumps(card), encoding="utf-8")
    np.savez(tmp_path / "x.npz", x=np.zeros((1, 8, 8, 1), np.uint8))
    with pytest.raises(UserError, match=r"card.json does not say what a sample is"):
        fedtailor.predict(folder, tmp_path / "x.npz")
