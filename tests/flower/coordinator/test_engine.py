"""The engine of a federation: its time, nodes that are lost and come back, keys that are revoked in a round."""

from collections.abc import Iterable, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

pytest.importorskip("flwr", reason="needs the extra 'flower'")

from fedtailor.flower.coordinator import engine
from fedtailor.flower.coordinator.link import Reply
from fedtailor.flower.coordinator.serving import serve_on
from fedtailor.flower.node.node import Node
from fedtailor.flower.node.policy import Policy
from fedtailor.messages.frames import decode, encode
from fedtailor.runs import Experiment
from tests.support.federation import Wire, events, nodes_of, outcome, settings, simulate, write_data

MADE = settings("fedrep", rounds=3, data={"clients": 3, "samples": 150}, evaluation={"every": 0, "final": False})
LOST = 1  # the node that is lost, in round 2


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_data(MADE, tmp_path_factory.mktemp("engine"))


class Losing(Wire):
    """Loses a node in the middle of round 2; it is connected again after some looks at the connected nodes."""

    def __init__(self, nodes: dict[int, Node], absent: int):
        super().__init__(nodes)
        self.absent, self.lost, self.messages = absent, set[str](), list[int]()

    def nodes(self) -> list[int]:
        self.absent -= bool(self.lost)
        return [node for node in super().nodes() if node != LOST or not self.lost or self.absent < 0]

    def push(self, messages: Sequence[tuple[int, bytes]], seconds: float, group: str) -> list[str]:
        ids = super().push(messages, seconds, group)
        if group == "round 2":
            self.messages += [node for node, _ in messages]
            self.lost |= {ids[i] for i, (node, _) in enumerate(messages) if node == LOST and not self.lost}
        return ids

    def pull(self, ids: Iterable[str]) -> list[Reply]:
        return [Reply(r.id, error="gone", lost=True) if r.id in self.lost else r for r in super().pull(ids)]


def assert_as_simulated(folder: Path, made: Experiment, absent: tuple[tuple[int, int], ...] = ()) -> None:
    participation = made.participation.model_copy(update={"absent": absent})
    simulate(made.model_copy(update={"participation": participation}), folder / "inline").close()
    assert outcome(folder / "run")["state"] == outcome(folder / "inline")["state"]


@pytest.mark.parametrize("absent", [0, 3])
def test_a_lost_node_that_comes_back_has_its_tasks_again(absent: int, files: Path, tmp_path: Path) -> None:
    wire, said = Losing(nodes_of(files, tmp_path, 3), absent), list[str]()
    wire.to[LOST].policy = Policy(smallest_cohort=3)  # the message that is repeated says the same
    serve_on(wire, MADE, tmp_path / "run", say=said.append).close()
    assert sorted(wire.messages[:3]) == [0, 1, 2]
    assert wire.messages[3:] == [LOST]
    assert events(tmp_path / "run") == []
    assert_as_simulated(tmp_path, MADE)
    assert any("client-1 was lost while it worked: it has 60 s to come back" in sentence for sentence in said)
    assert said[-1] == "client-1 is back and receives its tasks again"


def test_a_lost_node_that_stays_away_is_left_out(files: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(engine, "RETURN_TIMEOUT", 0.0)
    serve_on(Losing(nodes_of(files, tmp_path, 3), 10**9), MADE, tmp_path / "run").close()
    found = [(event["round"], event["client"], event["detail"]) for event in events(tmp_path / "run")]
    assert found == [
        (2, LOST, "it was lost while it worked and did not come back"),
        (3, LOST, "its node is not connected"),
    ]
    assert_as_simulated(tmp_path, MADE, ((2, LOST), (3, LOST)))


@pytest.mark.parametrize("answered", [True, False])
def test_a_key_that_is_revoked_in_a_round_does_not_count_in_it(answered: bool, files: Path, tmp_path: Path) -> None:
    """Neither an answer that was on its way nor the return of the node changes that."""

    class Revoking(Losing):
        def pull(self, ids: Iterable[str]) -> list[Reply]:
            found = super().pull(ids)
            if self.lost:
                self.names = {node: name for node, name in self.names.items() if node != LOST}
            return super(Losing, self).pull(ids) if answered else found

    wire = Revoking(nodes_of(files, tmp_path, 3), 10**9)
    wire.names = {c: f"client-{c}" for c in range(3)}
    serve_on(wire, MADE.model_copy(update={"rounds": 2}), tmp_path / "run").close()
    found = [(event["round"], event["client"], event["detail"]) for event in events(tmp_path / "run")]
    assert found == [(2, LOST, "its key is not valid any more")]
    assert_as_simulated(tmp_path, MADE.model_copy(update={"rounds": 2}), ((2, LOST),))


def test_the_time_of_a_node_counts_from_before_its_message_was_sent(
    files: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A slow machine may answer while the message to the last node is still being sent."""
    clock = SimpleNamespace(now=0.0)
    monkeypatch.setattr(engine, "time", SimpleNamespace(monotonic=lambda: clock.now, sleep=lambda seconds: None))

    class Slow(Node):
        def answer(self, request: bytes) -> bytes:
            header, blobs = decode(super().answer(request))
            rows: list[dict[str, Any]] = header.get("results", [])
            for row in rows:
                clock.now += 50.0
                row["seconds"] = 50.0
            return encode(header, blobs)

    serve_on(Wire(nodes_of(files, tmp_path, 3, Slow)), MADE, tmp_path / "run").close()
    assert events(tmp_path / "run") == []
