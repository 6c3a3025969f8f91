"""The same experiment inline and as a federation over TLS gives the same bits."""

from collections.abc import Iterator
from pathlib import Path

import pytest

pytest.importorskip("flwr", reason="needs the extra 'flower'")

from fedtailor import load_model
from fedtailor.flower.coordinator.link import Link
from fedtailor.flower.coordinator.serving import serve_on
from fedtailor.flower.keys import ServerKeys
from tests.support.federation import HOST, Place, outcome, place, settings, simulate

EVERYBODY = {"clients": 4}
METHODS = {
    "fedavg": settings("fedavg"),
    "fedah": settings("fedah", evaluation={"measures": ["macro-f1", "calibration-error", "auroc"]}),
    "pfedrlla": settings("pfedrlla"),
    "hapfl": settings("hapfl", devices={"profiles": {"kind": "uniform"}}),  # scripted times
}


@pytest.fixture(scope="module")
def federation(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Place, Link]]:
    folder = tmp_path_factory.mktemp("parity")
    with place(folder, METHODS["fedavg"]) as here, Link(HOST, 0, ServerKeys(here.keys), 2**26) as link:
        for node in here.nodes:
            here.join(node, link.port)
        yield here, link


# the other tests of a federation have FedAvg; every method: test_every_method.py
@pytest.mark.parametrize("name", [pytest.param("fedavg", marks=pytest.mark.slow), "fedah", "pfedrlla", "hapfl"])
def test_a_federation_gives_the_bits_of_a_simulation(name: str, federation: tuple[Place, Link], tmp_path: Path) -> None:
    here, link = federation
    made = METHODS[name].model_copy(update={"name": name})
    simulate(made, tmp_path / "inline")
    done = serve_on(link, made, tmp_path / "flower")
    assert outcome(tmp_path / "flower") == outcome(tmp_path / "inline")
    assert done.nodes == here.nodes
    model = load_model(here.folder / "state" / "client-2" / name / "model")
    assert model.card["node"] == "client-2"
