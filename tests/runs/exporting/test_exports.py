"""Exports of a run are complete: programs without FedTailor, all clients, groups and sizes, no data for a server's."""

import json
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import fedtailor
from fedtailor.errors import UserError
from tests.runs.exporting.conftest import SETTINGS

ALONE = """
import sys
sys.modules["fedtailor"] = None
try:
    import fedtailor
except ImportError:
    pass
else:
    raise SystemExit("fedtailor can be imported")
"""


def card_of(folder: Path) -> dict[str, Any]:
    return json.loads((folder / "card.json").read_text(encoding="utf-8"))


def test_an_export_has_its_formats_and_what_they_need(exported: Path) -> None:
    assert {file.name for file in exported.iterdir()} == {
        *("MODEL_CARD.md", "card.json", "model.onnx", "model.pt2", "model.safetensors")
    }
    card = card_of(exported)
    assert card["classes"] == [str(digit) for digit in range(10)]
    assert (card["rounds"], card["licence"], card["data_licence"]) == (2, "CC BY 4.0", "CC BY 4.0")
    assert card["sample"] == {"type": "uint8", "shape": [8, 8, 1]}
    for name in ("torch", "onnx"):
        found = card["checks"][name]
        assert found["samples"] == card["samples"]["train"] + card["samples"]["val"]
        assert found["of"] == "the client's validation and training samples"
        assert found["largest_difference"] < 1e-4
        assert found["different_predictions"] == 0
    with fedtailor.Run(exported.parent / "run") as run:
        assert card["measures"]["accuracy"] == run.scores("final")[1]["accuracy"]


@pytest.mark.parametrize("format", ["torch", "onnx"])
def test_a_program_needs_no_fedtailor(exported: Path, format: str, tmp_path: Path) -> None:
    """What the card shows runs where fedtailor cannot be imported, and gives the probabilities of the model."""
    with fedtailor.Run(exported.parent / "run") as run:
        x = run.federation().samples.x[:40]
    np.save(tmp_path / "x.npy", x)
    page = (exported / "MODEL_CARD.md").read_text(encoding="utf-8")
    (code,) = [text for text in re.findall(r"```python\n(.*?)```", page, re.DOTALL) if format in text]
    given = "torch.from_numpy(numpy.load(PLACE))" if format == "torch" else "numpy.load(PLACE)"
    real = re.sub(
        r"(?m)^samples = .*$", f"import numpy\nsamples = {given.replace('PLACE', repr(str(tmp_path / 'x.npy')))}", code
    )
    saved = f"numpy.save({str(tmp_path / 'found.npy')!r}, probabilities)"
    program = f"{ALONE}\n{real}\n{saved}\nassert sys.modules['fedtailor'] is None"
    done = subprocess.run([sys.executable, "-c", program], cwd=exported, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    expected = fedtailor.load_model(exported).probabilities(x).numpy()
    np.testing.assert_allclose(np.load(tmp_path / "found.npy"), expected, atol=1e-5)
    assert done.stdout.strip() == str(fedtailor.load_model(exported).predict(x))


def test_all_clients_at_once_are_the_same_models(run: Path, exported: Path, tmp_path: Path) -> None:
    counted: list[tuple[int, int]] = []
    done = fedtailor.export_clients(run, tmp_path / "all", progress=lambda *numbers: counted.append(numbers))
    assert counted == [(1, 3), (2, 3), (3, 3)]
    assert done.models == {str(k): tmp_path / "all" / f"client-{k}" for k in range(3)}
    files = {name: (folder / "model.safetensors").read_bytes() for name, folder in done.models.items()}
    assert files["1"] == (exported / "model.safetensors").read_bytes()
    assert len(set(files.values())) == 3
    assert sorted(path.name for path in (tmp_path / "all").iterdir()) == ["client-0", "client-1", "client-2"]


def test_models_that_were_not_stored_are_trained_again_for_all_clients(run: Path, tmp_path: Path) -> None:
    fedtailor.run({**SETTINGS, "evaluation": {"keep_models": 0}}, folder=tmp_path / "run").close()
    kept, trained = (
        fedtailor.export_clients(one, tmp_path / f"{place}") for place, one in enumerate((run, tmp_path / "run"))
    )
    for name, folder in trained.models.items():
        assert (folder / "model.safetensors").read_bytes() == (kept.models[name] / "model.safetensors").read_bytes()
        assert card_of(folder)["calibration"] == card_of(kept.models[name])["calibration"]


def test_a_new_client_whose_model_was_not_stored_is_missing_and_named(tmp_path: Path) -> None:
    settings = {**SETTINGS, "rounds": 1, "evaluation": {"keep_models": 0, "new_clients": 0.3}}
    fedtailor.run(settings, folder=tmp_path / "run").close()
    done = fedtailor.export_clients(tmp_path / "run", tmp_path / "all")
    assert list(done.models) == ["0", "1"]
    assert "is new and its model was not kept" in done.missing["2"]


def test_a_client_that_failed_is_missing_and_named(tmp_path: Path) -> None:
    method = {"name": "tests.runs.test_deployed:Refusing"}
    fedtailor.run({**SETTINGS, "method": method}, folder=tmp_path / "run").close()
    done = fedtailor.export_clients(tmp_path / "run", tmp_path / "all")
    assert list(done.models) == ["0", "2"]
    assert "not today" in done.missing["1"]


def test_a_model_of_the_server_needs_no_data(tmp_path: Path) -> None:
    data = tmp_path / "data"
    data.mkdir()
    stream = np.random.RandomState(0)
    for name in ("a", "b"):
        np.savez(data / f"{name}.npz", x=stream.randn(20, 4).astype(np.float32), y=np.arange(20) % 2)
    settings = {
        **SETTINGS,
        "data": {"source": "folder", "folder": str(data)},
        "method": {"name": "ifca", "k": 2},
    }
    fedtailor.run(settings, folder=tmp_path / "run").close()
    shutil.rmtree(data)
    done = fedtailor.export_server(tmp_path / "run", tmp_path / "server", formats=["safetensors", "torch"])
    assert list(done.models) == ["cluster/0", "cluster/1"]
    card = card_of(done.models["cluster/1"])
    assert card["server_model"] == "cluster/1"
    assert "no validation samples" in card["calibration"]["not_calibrated"]
    assert card["checks"]["torch"]["of"].startswith("made-up samples")
    one = fedtailor.export_global(tmp_path / "run", tmp_path / "one", "1")  # the last part of its name is enough
    weights = [(folder / "model.safetensors").read_bytes() for folder in (one, *done.models.values())]
    assert weights[0] == weights[2] != weights[1]
    with pytest.raises(UserError, match=r"has no 'global' model on its server \(it holds cluster/0, cluster/1\)"):
        fedtailor.export_global(tmp_path / "run", tmp_path / "none")
    assert not (tmp_path / "none").exists()


def test_a_run_without_a_round_has_no_model_of_the_server(tmp_path: Path) -> None:
    class Stop(fedtailor.Callback):
        def begin(self, *_: Any) -> None:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        fedtailor.run({**SETTINGS, "method": {"name": "fedavg"}}, folder=tmp_path / "run", callbacks=Stop())
    with pytest.raises(UserError, match="no complete round yet"):
        fedtailor.export_global(tmp_path / "run", tmp_path / "none")
