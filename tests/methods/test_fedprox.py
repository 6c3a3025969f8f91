"""Hand-derived values and identities of FedProx."""

from pathlib import Path

import pytest

from tests.support.problem import HERE, W, make, play, same_end, targets


def test_hand_fedprox(tmp_path: Path) -> None:
    """With mu = 1 the first step gives (w + a)/2, and there the pull balances the loss: the second changes nothing.

    Server: w -> (w + 3)/2: 1 -> 2 -> 2.5.
    """
    one = play(tmp_path / "1", make("fedprox", mu=1.0), targets(*HERE), rounds=1, epochs=2)
    two = play(tmp_path / "2", make("fedprox", mu=1.0), targets(*HERE), rounds=2, epochs=2)
    assert [one.server(W), two.server(W)] == pytest.approx([2.0, 2.5], abs=1e-6)
    assert two.loss("held", 0, 2) == pytest.approx(1.0**2 / 2, abs=1e-6)


def test_hand_fedprox_with_momentum(tmp_path: Path) -> None:
    """The pull is part of the loss, so momentum carries it.

    Client with target a = 0 from w = 1, lr 1/2, mu 1, momentum 1/2: g1 = 1, v1 = 1, w1 = 1/2;
    g2 = w1 + (w1 - 1) = 0, v2 = 1/2, w2 = 1/4; g3 = 1/4 - 3/4 = -1/2, v3 = -1/4, w3 = 3/8.
    """
    played = play(tmp_path / "run", make("fedprox", mu=1.0), targets([0.0]), rounds=1, epochs=3, momentum=0.5)
    assert played.server(W) == pytest.approx(0.375, abs=1e-6)


def test_fedprox_without_pull_is_fedavg(tmp_path: Path) -> None:
    fedavg = play(tmp_path / "1", make("fedavg"), targets(*HERE), epochs=2)
    assert same_end(fedavg, play(tmp_path / "2", make("fedprox", mu=0.0), targets(*HERE), epochs=2))
    assert not same_end(fedavg, play(tmp_path / "3", make("fedprox", mu=0.1), targets(*HERE), epochs=2))
