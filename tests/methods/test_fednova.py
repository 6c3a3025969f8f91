"""Hand-derived values, identities and mechanisms of FedNova."""

from pathlib import Path
from typing import Any

import pytest

from tests.support.problem import HERE, Listening, W, make, near, play, targets


def test_hand_fednova(tmp_path: Path) -> None:
    """Batches of one: client 0 takes 1 step, client 1 takes 3. From w they go to w/2 and 4 - (4 - w)/8, so
    d_0 = w/2, d_1 = -7 (4 - w)/24, tau_eff = 1/4 + 3 * 3/4 = 5/2 and w <- w - 5/2 (d_0/4 + 3 d_1/4).

    Round 1 from 1: d = 1/2 and -7/8; w = 1 - 5/2 (1/8 - 21/32) = 2.328125.
    Round 2: d = 1.1640625 and -0.487630208...; w = 2.328125 - 5/2 (0.291015625 - 0.36572265625) = 2.514892578125.
    """
    listening = Listening("fednova")
    played = play(tmp_path / "run", listening.method, targets(*HERE), batch_size=1)
    assert [listening.value(1, c) for c in (0, 1)] == near(0.5, -0.875)
    assert [listening.value(2, c) for c in (0, 1)] == near(1.1640625, -0.4876302083333)
    assert [listening.heard[0][c].number("tau") for c in (0, 1)] == [1, 3]
    assert played.server(W) == pytest.approx(2.514892578125, abs=1e-6)
    assert played.loss("global", 0, 1) == pytest.approx(2.328125**2 / 2, abs=1e-6)
    assert played.store.state_keys("client") == []


def test_hand_fednova_with_momentum(tmp_path: Path) -> None:
    """Momentum 1/2, one and two samples, batches of one; from w = 1.

    Client 0: g = 1, w = 1/2, |a| = 1, d = 1/2. Client 1: g = -3, w = 2.5, then g = -1.5, velocity -3, w = 4;
    |a| = 1 + 3/2, d = -3 / 2.5 = -1.2. tau_eff = 1/3 + 5/2 * 2/3 = 2; w = 1 - 2 (0.5/3 - 1.2 * 2/3) = 34/15.
    """
    listening = Listening("fednova")
    played = play(tmp_path / "run", listening.method, targets([0.0], [4.0, 4.0]), rounds=1, batch_size=1, momentum=0.5)
    assert [listening.value(1, c) for c in (0, 1)] == near(0.5, -1.2)
    assert played.server(W) == pytest.approx(34 / 15, abs=1e-6)


def test_hand_fednova_with_a_pull(tmp_path: Path) -> None:
    """mu = 1 and lr 1/2: after one step the pull balances the loss, w stays at (1 + a)/2: 1/2 and 5/2.

    |a| = 1 and, after three steps, 1 + 1/2 + 1/4 = 7/4: d = 1/2 and -6/7. tau_eff counts steps, 5/2:
    w = 1 - 5/2 (1/8 - 9/14) = 1 + 5/2 * 29/56.
    """
    played = play(tmp_path / "run", make("fednova", mu=1.0), targets(*HERE), rounds=1, batch_size=1)
    assert played.server(W) == pytest.approx(1 + 2.5 * 29 / 56, abs=1e-6)


@pytest.mark.parametrize("momentum", [0.0, 0.5])
def test_fednova_with_equal_steps_is_fedavg(momentum: float, tmp_path: Path) -> None:
    """Full batches: every client takes two steps. With batches of one it does not."""
    full: dict[str, Any] = {"epochs": 2, "momentum": momentum, "lr": 0.3}
    fedavg = play(tmp_path / "1", make("fedavg"), targets(*HERE), **full)
    fednova = play(tmp_path / "2", make("fednova"), targets(*HERE), **full)
    assert fednova.server(W) == pytest.approx(fedavg.server(W), abs=1e-6)
    one = play(tmp_path / "3", make("fedavg"), targets(*HERE), batch_size=1, **full)
    other = play(tmp_path / "4", make("fednova"), targets(*HERE), batch_size=1, **full)
    assert abs(one.server(W) - other.server(W)) > 0.01


def test_fednova_reaches_the_optimum_of_the_mean_loss_where_fedavg_does_not(tmp_path: Path) -> None:
    """With 1 and 3 small steps FedAvg settles near (1 * 0 + 9 * 4) / 10 = 3.6, FedNova near the mean target 3.

    A step keeps r = 0.95 of the distance to a target. FedAvg rests where w = r w / 4 + 3 (4 + (w - 4) r^3) / 4, so
    w = 12 (1 - r^3) / (4 - r - 3 r^3); FedNova where (1 - r) w + (1 - r^3) (w - 4) = 0.
    """
    r = 0.95
    small: dict[str, Any] = {"rounds": 150, "lr": 1 - r, "batch_size": 1}
    fedavg = play(tmp_path / "1", make("fedavg"), targets(*HERE), **small)
    fednova = play(tmp_path / "2", make("fednova"), targets(*HERE), **small)
    assert (
        fedavg.server(W)
        == pytest.approx(12 * (1 - r**3) / (4 - r - 3 * r**3), abs=1e-4)
        == pytest.approx(3.6, abs=0.02)
    )
    assert fednova.server(W) == pytest.approx(4 * (1 - r**3) / (2 - r - r**3), abs=1e-4) == pytest.approx(3.0, abs=0.05)


def test_fednova_of_one_participant_of_two_takes_its_step_neither_twice_nor_half(tmp_path: Path) -> None:
    """FedLab multiplies by N/K, flgo divides by it: the only client that answers must give its own model."""
    one: dict[str, Any] = {"rounds": 3, "batch_size": 1, "participation": {"clients": 1}}
    fedavg = play(tmp_path / "1", make("fedavg"), targets(*HERE), **one)
    fednova = play(tmp_path / "2", make("fednova"), targets(*HERE), **one)
    assert fednova.server(W) == pytest.approx(fedavg.server(W), abs=1e-6)


def test_fednova_does_not_normalise_its_scaled_weights_again(tmp_path: Path) -> None:
    """Flower's baseline divides by sum_i p_i tau_eff / tau_i = 5/2 (1/4 + 1/4) = 5/4, which shortens the step."""
    played = play(tmp_path / "run", make("fednova"), targets(*HERE), rounds=1, batch_size=1)
    assert played.server(W) - 1 == pytest.approx(1.328125, abs=1e-6)
    assert abs(played.server(W) - 1 - 1.328125 / 1.25) > 0.2
