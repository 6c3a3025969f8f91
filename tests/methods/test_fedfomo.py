"""Hand-derived values, identities and mechanisms of FedFomo."""

from pathlib import Path
from typing import Any

import pytest

from fedtailor.methods import Method
from tests.support.peers import kept, personal, scalar, server_of, state, with_validation
from tests.support.problem import HERE, W, make, play, targets


def test_hand_fedfomo(tmp_path: Path) -> None:
    """Targets 2 and 4. Round 1, no peers: 1 -> 3/2 and 5/2; the model before was v = 1.

    Round 2, client 0: L(v) = 1/2; own (1/2 - 1/8) / (1/2) = 3/4, peer (1/2 - 1/8) / (3/2) = 1/4, so
    theta = 3/4 3/2 + 1/4 5/2 = 7/4, trained to 15/8.
    Client 1: L(v) = 9/2; own (9/2 - 9/8) / (3/2) = 9/4, peer (9/2 - 25/8) / (1/2) = 11/4; shares 0.45 and 0.55,
    theta = 1.95, trained to 2.975. The raw weights are the affinities.
    """
    played = play(tmp_path / "run", make("fedfomo", M=1), with_validation(targets([2.0], [4.0, 4.0, 4.0])))
    assert played.loss("received", 0, 2) == pytest.approx(0.25**2 / 2, abs=1e-6)
    assert played.loss("received", 1, 2) == pytest.approx(2.05**2 / 2, abs=1e-6)
    assert [kept(played, 0), kept(played, 1)] == pytest.approx([1.875, 2.975], abs=1e-6)
    memory = played.loop.server.memory
    assert memory.peek(0)["affinity"] == pytest.approx({0: 0.75, 1: 0.25}, abs=1e-6)
    assert memory.peek(1)["affinity"] == pytest.approx({0: 2.75, 1: 2.25}, abs=1e-6)
    own = state(played, 0)["trained"]
    assert float(own["before"][W]) == pytest.approx(1.75, abs=1e-6)
    assert float(own["model"][W]) == pytest.approx(1.875, abs=1e-6)
    assert own["weights"] == {}


def test_fedfomo_without_useful_peers_keeps_its_own_model(tmp_path: Path) -> None:
    """Targets 0 and 4: each moves away from the other, whose raw weight is negative.

    Round 2: client 0 sees (1/2 - 25/8) / (3/2) = -7/4, client 1 (9/2 - 49/8) / (1/2) = -13/4.
    """
    here = with_validation(targets(*HERE))
    local = play(tmp_path / "local", make("local"), here, rounds=3)
    fomo = play(tmp_path / "fomo", make("fedfomo"), here, rounds=2)
    assert fomo.loop.server.memory.peek(0)["affinity"][1] == pytest.approx(-1.75, abs=1e-6)
    assert fomo.loop.server.memory.peek(1)["affinity"][0] == pytest.approx(-3.25, abs=1e-6)
    assert personal(play(tmp_path / "three", make("fedfomo"), here, rounds=3)) == personal(local)
    assert personal(play(tmp_path / "alone", make("fedfomo", M=0), here, rounds=3)) == personal(local)
    blind = play(tmp_path / "blind", make("fedfomo"), targets([2.0], [4.0]), rounds=3)  # no validation data
    assert personal(blind) == personal(play(tmp_path / "seeing", make("local"), targets([2.0], [4.0]), rounds=3))
    both = with_validation(targets([2.0], [4.0]))
    assert personal(play(tmp_path / "useful", make("fedfomo"), both, rounds=3)) != personal(blind)


def test_fedfomo_sends_the_best_peers_and_explores_less_and_less() -> None:
    """Affinities 0, 1, ..., 8: exploiting sends the top three; no other model is read."""
    rows = {n: {"model": scalar(float(n)), "affinity": {m: float(m) for m in range(9)}} for n in range(10)}
    federation = targets(*[[0.0]] * 10)

    def peers(method: Method, **more: Any) -> set[str]:
        server = server_of(method, federation, rows, **more)
        prepared: Any = method.prepare(server, [9])
        assert {9, *server.read} == {9, *(int(group[5:]) for group in prepared[9].groups)}  # type: ignore[attr-defined]
        assert server.memory.loaded == {}
        return set(prepared[9].groups)

    best = {"peer/6", "peer/7", "peer/8"}
    assert peers(make("fedfomo", M=3, epsilon=0.0)) == best
    random = [peers(make("fedfomo", M=3, epsilon=1.0, decay=0.0), round=r) for r in range(1, 9)]
    assert all(len(one) == 3 for one in random)
    assert len({frozenset(one) for one in random}) > 4
    assert peers(make("fedfomo", M=3, epsilon=1.0, decay=0.0), greedy=True) == best
    assert peers(make("fedfomo", M=3, epsilon=0.3, decay=0.05), round=7) == best  # 0.3 - 6 * 0.05 = 0


def test_fedfomo_takes_unknown_peers_in_random_order() -> None:
    rows = {n: {"model": scalar(float(n))} for n in range(10)}
    method = make("fedfomo", M=3, epsilon=0.0)
    prepared: Any = method.prepare(server_of(method, targets(*[[0.0]] * 10), rows), range(10))
    assert len({group for payload in prepared.values() for group in payload.groups}) > 5
