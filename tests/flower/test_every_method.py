"""Every method of the catalogue as a federation: the real engine and real nodes, without Flower between them.

What Flower adds is tested with four methods in test_parity.py; this is quick enough for all.
"""

from collections.abc import Iterable, Sequence
from pathlib import Path

import pytest

pytest.importorskip("flwr", reason="needs the extra 'flower'")

from federation import outcome, settings, simulate

from fedtailor.data.folder import write_clients
from fedtailor.flower.link import Link, Reply
from fedtailor.flower.node import Node
from fedtailor.flower.serving import serve_on
from fedtailor.methods import catalogue
from fedtailor.runs import Workshop


class Wire(Link):
    """Hands messages to nodes in this process; replies come when they are pulled, the last first."""

    def __init__(self, nodes: dict[int, Node]):
        self.to, self.waiting = nodes, dict[str, bytes]()

    def nodes(self) -> list[int]:
        return list(self.to)

    def push(self, messages: Sequence[tuple[int, bytes]], seconds: float, group: str) -> list[str]:
        ids = []
        for node, message in messages:
            ids.append(f"{len(self.waiting)}-{group}")
            self.waiting[ids[-1]] = self.to[node].answer(message)
        return ids

    def pull(self, ids: Iterable[str]) -> list[Reply]:
        return [Reply(name, self.waiting[name]) for name in reversed(list(ids))]

    def close(self) -> None: ...


@pytest.mark.parametrize("name", list(catalogue()))
def test_a_federation_gives_the_bits_of_a_simulation(name: str, tmp_path: Path) -> None:
    devices = {"devices": {"profiles": {"kind": "uniform"}}} if catalogue()[name].uses_clock else {}
    method = {"name": name, **({"trials": 2} if "trials" in catalogue()[name].model_fields else {})}
    made = settings(method, rounds=2, data={"clients": 3, "samples": 200}, evaluation={"every": 2}, **devices)
    write_clients(Workshop().federation(made), tmp_path / "clients")
    nodes = {
        10 + c: Node(f"client-{c}", str(tmp_path / "clients" / f"client-{c}.npz"), tmp_path / f"state-{c}")
        for c in (2, 0, 1)
    }
    serve_on(Wire(nodes), made, tmp_path / "flower")
    simulate(made, tmp_path / "inline")
    assert outcome(tmp_path / "flower") == outcome(tmp_path / "inline")
