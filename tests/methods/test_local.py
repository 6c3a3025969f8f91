"""Hand-derived values and identities of local training."""

from pathlib import Path

import pytest

from tests.support.problem import HERE, W, make, play, targets


def test_hand_local(tmp_path: Path) -> None:
    """Nothing travels: client 0 goes 1 -> 1/2 -> 1/4, client 1 goes 1 -> 5/2 -> 13/4, and on to 1/8 and 29/8."""
    played = play(tmp_path / "run", make("local"), targets(*HERE))
    assert [played.private(0, W), played.private(1, W)] == pytest.approx([0.25, 3.25], abs=1e-6)
    assert [played.personal(0, W), played.personal(1, W)] == pytest.approx([0.125, 3.625], abs=1e-6)
    assert played.loop.method.models(played.loop.server) == {}
    rounds = played.store.rows("SELECT bytes_down, bytes_up FROM rounds")
    assert {(row["bytes_down"], row["bytes_up"]) for row in rounds} == {(0, 16)}  # two numbers: the sample counts


def test_local_of_one_client_is_fedavg_of_one_client(tmp_path: Path) -> None:
    local = play(tmp_path / "1", make("local"), targets([4.0]), rounds=3)
    fedavg = play(tmp_path / "2", make("fedavg"), targets([4.0]), rounds=3)
    assert local.private(0, W) == fedavg.server(W)
