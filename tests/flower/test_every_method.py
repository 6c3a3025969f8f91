"""Every method of the catalogue as a federation: the real engine and real nodes, without Flower between them.

What Flower adds is tested with four methods in test_parity.py; this is quick enough for all.
"""

from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("flwr", reason="needs the extra 'flower'")

from fedtailor.flower.coordinator.serving import serve_on
from fedtailor.methods import catalogue
from tests.support.federation import Wire, nodes_of, outcome, settings, simulate, write_data

SCALE: dict[str, Any] = {"rounds": 2, "data": {"clients": 3, "samples": 200}}


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_data(settings(**SCALE), tmp_path_factory.mktemp("every"))


@pytest.mark.parametrize("name", list(catalogue()))
def test_a_federation_gives_the_bits_of_a_simulation(name: str, files: Path, tmp_path: Path) -> None:
    devices = {"devices": {"profiles": {"kind": "uniform"}}} if catalogue()[name].uses_clock else {}
    method = {"name": name, **({"trials": 2} if "trials" in catalogue()[name].model_fields else {})}
    made = settings(method, **SCALE, evaluation={"every": 2}, **devices)
    nodes = nodes_of(files, tmp_path, 3)
    serve_on(Wire({10 + c: nodes[c] for c in (2, 0, 1)}), made, tmp_path / "flower").close()
    simulate(made, tmp_path / "inline").close()
    assert outcome(tmp_path / "flower") == outcome(tmp_path / "inline")


def test_where_nothing_is_known_of_devices_times_are_measured(files: Path, tmp_path: Path) -> None:
    made = settings("hapfl", **SCALE, evaluation={"every": 0, "final": False})
    with serve_on(Wire(nodes_of(files, tmp_path, 3)), made, tmp_path / "flower") as run:
        assert len(run.times()) == 6
        assert all(row["compute"] > 0 for row in run.times())
        assert all(row["seconds"] > 0 for row in run.clock())
        steps = {row["client"]: row["steps"] for row in run._store.rows("SELECT client, steps FROM tasks")}
    with simulate(made, tmp_path / "inline") as simulated:
        fewer = {row["client"]: row["steps"] for row in simulated._store.rows("SELECT client, steps FROM tasks")}
    assert all(steps[client] > fewer[client] for client in steps), "the epoch that is timed was not trained"
