"""Hand-derived values of FedAvg."""

from pathlib import Path

import pytest

from tests.support.problem import HERE, W, make, play, targets


def test_hand_fedavg(tmp_path: Path) -> None:
    """w -> a + (w - a)/4 on each client after two steps, so w -> 3 * 3/4 + w/4: 1 -> 2.5 -> 2.875."""
    one = play(tmp_path / "1", make("fedavg"), targets(*HERE), rounds=1, epochs=2)
    two = play(tmp_path / "2", make("fedavg"), targets(*HERE), rounds=2, epochs=2)
    assert one.server(W) == pytest.approx(2.5, abs=1e-6)
    assert two.server(W) == pytest.approx(2.875, abs=1e-6)
    # in round 2 both receive 2.5; client 0 holds 2.5/4 and client 1 4 - 1.5/4
    assert two.loss("received", 0, 2) == pytest.approx(2.5**2 / 2, abs=1e-6)
    assert two.loss("held", 0, 2) == pytest.approx(0.625**2 / 2, abs=1e-6)
    assert two.loss("held", 1, 2) == pytest.approx(0.375**2 / 2, abs=1e-6)
    assert two.loss("global", 1, 2) == pytest.approx(1.125**2 / 2, abs=1e-6)
    # final: receives 2.875 and trains once more
    assert two.loss("final", 1, 2) == pytest.approx((1.125 / 4) ** 2 / 2, abs=1e-6)
    assert two.store.state_keys("client") == []  # FedAvg keeps no client's weights
