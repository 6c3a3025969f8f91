"""The web service of examples/serve-model gives the predictions of the export."""

import importlib.util
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import fedtailor

SERVE = Path(__file__).parents[3] / "examples" / "serve-model" / "serve.py"


@pytest.fixture
def client(exported: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    pytest.importorskip("fastapi", reason="the example needs fastapi, which FedTailor does not")
    testing = pytest.importorskip("fastapi.testclient", reason="the test of the example needs httpx")
    monkeypatch.setenv("MODEL", str(exported))
    spec = importlib.util.spec_from_file_location("serve", SERVE)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    monkeypatch.setitem(sys.modules, "serve", module)
    spec.loader.exec_module(module)
    return testing.TestClient(module.app)


def test_the_service_answers_as_the_model(client: Any, exported: Path) -> None:
    x = np.random.RandomState(0).randint(0, 17, (3, 8, 8, 1)).astype(np.uint8)
    model = fedtailor.load_model(exported)
    assert client.get("/card").json() == model.card
    answer = client.post("/predict", json={"samples": x.tolist()})
    assert answer.status_code == 200
    assert answer.json()["predictions"] == model.predict(x)
    assert answer.json()["calibrated"] is True
    np.testing.assert_allclose(answer.json()["probabilities"], model.probabilities(x).numpy(), atol=1e-5)


@pytest.mark.parametrize(
    "body", [{}, {"samples": []}, {"samples": [[1, 2]]}, {"samples": [[["a"]]]}, {"samples": [[[[0.5]] * 8] * 8]}, 3]
)
def test_the_service_refuses_what_does_not_fit(client: Any, body: Any) -> None:
    assert client.post("/predict", json=body).status_code == 422


def test_the_example_does_not_need_fedtailor() -> None:
    assert "import fedtailor" not in SERVE.read_text(encoding="utf-8")
    assert "from fedtailor" not in SERVE.read_text(encoding="utf-8")
