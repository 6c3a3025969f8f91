"""The rows that a server keeps, one per client."""

import math
from pathlib import Path
from typing import Any

import pytest

from fedtailor.messages.trees import pack
from fedtailor.methods import Memory, Payload, Replies
from tests.support.peers import digits, scalar, server_of, with_validation
from tests.support.problem import W, make, play, targets


def test_a_row_is_read_once_in_a_round_unless_rows_are_large(monkeypatch: pytest.MonkeyPatch) -> None:
    rows = {client: {"model": scalar(float(client))} for client in range(3)}
    large = len(pack(rows[0]))
    for room, read in ((3 * large, [0, 1, 2]), (large, [0, 1, 2, 1, 2]), (0, [0, 1, 2, 0, 1, 2])):
        monkeypatch.setattr(Memory, "KEPT", room)
        server = server_of(make("fedamp"), targets([0.0], [1.0], [2.0]), rows)
        for _ in range(2):
            assert [float(server.memory.peek(client)["model"][W]) for client in server.memory] == [0.0, 1.0, 2.0]
        assert server.read == read  # type: ignore[attr-defined]


def test_a_row_is_read_anew_when_it_has_been_stored() -> None:
    rows = {0: {"model": scalar(1.0)}}
    server = server_of(make("fedamp"), targets([0.0], [1.0]), rows)
    server.memory.peek(0)
    server.memory[0]["model"] = scalar(2.0)
    assert float(server.memory.peek(0)["model"][W]) == 2.0
    rows[0] = {"model": scalar(3.0)}  # as if another value had been stored
    server.memory.settle()
    assert float(server.memory.peek(0)["model"][W]) == 3.0


@pytest.mark.parametrize("name", ["fedamp", "fedfomo", "pfedla", "apple"])
def test_the_server_keeps_one_row_for_each_client_that_trained(name: str, tmp_path: Path) -> None:
    with digits(make(name), tmp_path / "run", rounds=4) as run:
        trained = {row["client"] for row in run._store.rows("SELECT client FROM tasks WHERE steps > 0")}
        assert {int(key) for key in run._store.state_keys("memory")} == trained
        assert set(run._store.state_keys("server")) == {"model"}


@pytest.mark.parametrize("name", ["fedamp", "pfedla", "apple", "fedfomo"])
def test_preparing_reads_rows_and_keeps_none(name: str) -> None:
    """Evaluation and the final pass look at rows in the same way: what is not changed is not kept."""
    method = make(name)
    rows = {i: {"model": scalar(float(i))} for i in range(5)}
    server = server_of(method, targets(*[[0.0]] * 5), rows)
    method.prepare(server, [1, 2])
    method.prepare(server.preview(method.start_server), [0, 3])
    assert server.memory.loaded == {}
    method.finish(server, Replies({1: reply_of(name, 7.0)}, {2: "dropped out"}))
    assert set(server.memory.loaded) == {1}
    assert float(server.memory[1]["model"][W]) == 7.0


def reply_of(name: str, value: float) -> Payload:
    lists: dict[str, Any] = {"fedfomo": {"peers": [], "weights": []}, "apple": {"peers": []}}
    return Payload({"model": scalar(value)}, {"samples": 1, **lists.get(name, {})})


@pytest.mark.parametrize("name", ["fedamp", "fedfomo", "pfedla", "apple"])
def test_a_client_that_joins_late_profits_from_the_others(name: str, tmp_path: Path) -> None:
    """Nobody has seen client 2 before: after one training it is nearer to its target than in the first round."""
    settings: dict[str, dict[str, Any]] = {"fedamp": {"sigma": 100.0, "alpha": 50.0}}
    method = make(name, **settings.get(name, {}))
    here = with_validation(targets([4.0], [4.0], [4.0]))
    played = play(tmp_path / "run", method, here, rounds=3)
    server = played.loop.server
    server.memory._known.discard(2)
    played.loop.tasks.stateful.discard(2)
    late = played.personal(2, W)
    assert abs(late - 4) < math.sqrt(2 * played.loss("held", 2, 1)) - 0.1
