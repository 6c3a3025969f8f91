"""A federation in bf16: the bits of a simulation, and only nodes that have bf16."""

from pathlib import Path

import pytest

pytest.importorskip("flwr", reason="needs the extra 'flower'")

from fedtailor.flower.coordinator import serving
from fedtailor.flower.coordinator.nodes import Nodes
from fedtailor.flower.coordinator.serving import serve_on
from fedtailor.flower.node import node as of_node
from fedtailor.flower.node.node import Node
from fedtailor.learning import precision
from fedtailor.runs import Experiment, Run
from tests.support.federation import Wire, nodes_of, outcome, settings, simulate, write_data


def made(kind: str) -> Experiment:
    data = {"clients": 2, "samples": 150}
    return settings("fedah", rounds=2, data=data, evaluation={"every": 2}, training={"precision": kind})


def nodes(folder: Path) -> dict[int, Node]:
    return nodes_of(write_data(made("fp32"), folder), folder, 2)


@pytest.fixture
def _native(monkeypatch: pytest.MonkeyPatch) -> None:
    """As on a machine with bf16, wherever the tests run."""
    for place in (precision, of_node):
        monkeypatch.setattr(place, "native_bf16", lambda device="cpu": True)


@pytest.mark.usefixtures("_native")
@pytest.mark.parametrize("kind", ["bf16", "auto"])
def test_a_federation_gives_the_bits_of_a_simulation(kind: str, tmp_path: Path) -> None:
    with serve_on(Wire(nodes(tmp_path)), made(kind), tmp_path / "flower") as run:
        assert run.experiment.training.precision == "bf16"
        assert run.warnings == ()
    simulate(made("bf16"), tmp_path / "inline").close()
    assert outcome(tmp_path / "flower") == outcome(tmp_path / "inline")


@pytest.mark.parametrize("native", [True, False])
def test_a_node_without_native_bf16_is_refused(native: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(of_node, "native_bf16", lambda device: native)
    said: list[str] = []
    found = Nodes(Wire(nodes(tmp_path)), serving._data_settings(made("bf16")), said.append, bf16=True)
    found.update()
    found.update()
    assert sorted(found.connected) == (["client-0", "client-1"] if native else [])
    refusal = "turned away: 'client-1' cannot compute in bf16 natively"
    assert [refusal in sentence for sentence in said].count(True) == (0 if native else 1)


def test_without_bf16_every_node_may_take_part(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(of_node, "native_bf16", lambda device: False)
    with serve_on(Wire(nodes(tmp_path)), made("fp32"), tmp_path / "run") as run:
        assert run.finished


@pytest.mark.usefixtures("_native")
def test_a_coordinator_that_restarts_elsewhere_keeps_the_precision(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """`auto` was bf16 where the run began; the second coordinator has none, and its nodes still train in bf16."""
    serve_on(Wire(nodes(tmp_path)), made("auto"), tmp_path / "run").close()
    monkeypatch.setattr(precision, "native_bf16", lambda device="cpu": False)
    kept = serving._with_precision(made("auto"), tmp_path / "run")
    with Run(tmp_path / "run") as run:
        assert kept.training == run.experiment.training
    assert serving._with_precision(made("auto"), tmp_path / "another").training.precision == "fp32"
