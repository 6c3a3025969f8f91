"""Every method of the catalogue as a federation: the real engine and real nodes, without Flower between them.

What Flower adds is tested with four methods in test_parity.py; this is quick enough for all.
"""

from pathlib import Path

import pytest

pytest.importorskip("flwr", reason="needs the extra 'flower'")

from fedtailor.data.folder import write_clients
from fedtailor.flower.coordinator.serving import serve_on
from fedtailor.flower.node.node import Node
from fedtailor.methods import catalogue
from fedtailor.runs import Resources
from tests.support.federation import Wire, outcome, settings, simulate


@pytest.mark.parametrize("name", list(catalogue()))
def test_a_federation_gives_the_bits_of_a_simulation(name: str, tmp_path: Path) -> None:
    devices = {"devices": {"profiles": {"kind": "uniform"}}} if catalogue()[name].uses_clock else {}
    method = {"name": name, **({"trials": 2} if "trials" in catalogue()[name].model_fields else {})}
    made = settings(method, rounds=2, data={"clients": 3, "samples": 200}, evaluation={"every": 2}, **devices)
    write_clients(Resources().federation(made), tmp_path / "clients")
    nodes = {
        10 + c: Node(f"client-{c}", str(tmp_path / "clients" / f"client-{c}.npz"), tmp_path / f"state-{c}")
        for c in (2, 0, 1)
    }
    serve_on(Wire(nodes), made, tmp_path / "flower")
    simulate(made, tmp_path / "inline")
    assert outcome(tmp_path / "flower") == outcome(tmp_path / "inline")


def test_where_nothing_is_known_of_devices_times_are_measured(tmp_path: Path) -> None:
    made = settings("hapfl", rounds=2, data={"clients": 3, "samples": 200}, evaluation={"every": 0, "final": False})
    write_clients(Resources().federation(made), tmp_path / "clients")
    nodes = {
        c: Node(f"client-{c}", str(tmp_path / "clients" / f"client-{c}.npz"), tmp_path / f"state-{c}") for c in range(3)
    }
    with serve_on(Wire(nodes), made, tmp_path / "flower") as run:
        assert len(run.times()) == 6
        assert all(row["compute"] > 0 for row in run.times())
        assert all(row["seconds"] > 0 for row in run.clock())
        steps = {row["client"]: row["steps"] for row in run._store.rows("SELECT client, steps FROM tasks")}
    with simulate(made, tmp_path / "inline") as simulated:
        fewer = {row["client"]: row["steps"] for row in simulated._store.rows("SELECT client, steps FROM tasks")}
    assert all(steps[client] > fewer[client] for client in steps), "the epoch that is timed was not trained"
