"""Hand-derived values, identities and mechanisms of local, fedavg, fedavg-ft, fedprox and fedper.

Two clients: client 0 has one sample with target 0, client 1 three samples with target 4, so the weights of a
mean by data size are 1/4 and 3/4 and the mean target is 3. A full-batch step with learning rate 1/2 on
(w - a)^2 / 2 moves w half of the way to a.
"""

from pathlib import Path

import pytest
from problem import Played, play, targets

from fedtailor.methods import Method, find

HERE = ([0.0], [4.0, 4.0, 4.0])
W = "0.weight"
BODY, HEAD = "0.weight", "1.weight"


def make(name: str, **settings: object) -> Method:
    return find(name)(**settings)


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


def test_hand_local(tmp_path: Path) -> None:
    """Nothing travels: client 0 goes 1 -> 1/2 -> 1/4, client 1 goes 1 -> 5/2 -> 13/4, and on to 1/8 and 29/8."""
    played = play(tmp_path / "run", make("local"), targets(*HERE))
    assert [played.private(0, W), played.private(1, W)] == pytest.approx([0.25, 3.25], abs=1e-6)
    assert [played.personal(0, W), played.personal(1, W)] == pytest.approx([0.125, 3.625], abs=1e-6)
    assert played.loop.method.models(played.loop.server) == {}
    rounds = played.store.rows("SELECT bytes_down, bytes_up FROM rounds")
    assert {(row["bytes_down"], row["bytes_up"]) for row in rounds} == {(0, 16)}  # two numbers: the sample counts


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


def test_hand_fedper(tmp_path: Path) -> None:
    """f = h b, lr 1/10, one step: b -= h r / 10, h -= b r / 10 with r = h b - a.

    Round 1 from b = 1, h = 2: r = 2 and -2: b = 0.6 and 1.4, h = 1.8 and 2.2; body 0.6/4 + 1.4 * 3/4 = 1.2.
    Round 2: r = 2.16 and -1.36; b = 1.2 - 0.3888 = 0.8112 and 1.2 + 0.2992 = 1.4992;
    h = 1.8 - 0.2592 = 1.5408 and 2.2 + 0.1632 = 2.3632; body 0.2028 + 1.1244 = 1.3272.
    """
    played = play(tmp_path / "run", make("fedper"), targets(*HERE), "problem:Product", lr=0.1)
    assert played.server(BODY) == pytest.approx(1.3272, abs=1e-6)
    assert [played.private(0, HEAD), played.private(1, HEAD)] == pytest.approx([1.5408, 2.3632], abs=1e-6)
    # round 2 is received as the mean body 1.2 with the client's own head 1.8
    assert played.loss("received", 0, 2) == pytest.approx((1.2 * 1.8) ** 2 / 2, abs=1e-6)
    assert HEAD not in played.loop.server.weights
    assert played.loop.method.models(played.loop.server) == {}  # a body alone is no model


def test_hand_fedavg_ft(tmp_path: Path) -> None:
    """The server is FedAvg's (2.875 after two rounds of two steps); the personal model is the received one after
    ft_epochs half-way steps, so from 2.875 in the final pass: 2.875/8 and 4 - 1.125/8 after three.
    """
    played = play(tmp_path / "run", make("fedavg-ft", ft_epochs=3), targets(*HERE), epochs=2)
    assert played.server(W) == pytest.approx(2.875, abs=1e-6)
    assert [played.personal(0, W), played.personal(1, W)] == pytest.approx([0.359375, 3.859375], abs=1e-6)
    assert played.loss("held", 0, 2) == pytest.approx((2.5 / 8) ** 2 / 2, abs=1e-6)


def same_end(one: Played, other: Played) -> bool:
    """Whether the server and every client's deployed model are the same to the bit."""
    return one.server(W) == other.server(W) and all(one.personal(c, W) == other.personal(c, W) for c in (0, 1))


def test_fedprox_without_pull_is_fedavg(tmp_path: Path) -> None:
    fedavg = play(tmp_path / "1", make("fedavg"), targets(*HERE), epochs=2)
    assert same_end(fedavg, play(tmp_path / "2", make("fedprox", mu=0.0), targets(*HERE), epochs=2))
    assert not same_end(fedavg, play(tmp_path / "3", make("fedprox", mu=0.1), targets(*HERE), epochs=2))


def test_fedavg_ft_with_as_many_epochs_has_fedavgs_final_pass(tmp_path: Path) -> None:
    fedavg = play(tmp_path / "1", make("fedavg"), targets(*HERE), epochs=2)
    assert same_end(fedavg, play(tmp_path / "2", make("fedavg-ft", ft_epochs=2), targets(*HERE), epochs=2))
    assert not same_end(fedavg, play(tmp_path / "3", make("fedavg-ft", ft_epochs=3), targets(*HERE), epochs=2))


class Everything(find("fedper")):  # type: ignore[misc]
    """FedPer that shares its head as well."""

    shares = "all"


def test_fedper_with_everything_shared_is_fedavg(tmp_path: Path) -> None:
    one = play(tmp_path / "1", make("fedavg"), targets(*HERE), "problem:Product", lr=0.1)
    two = play(tmp_path / "2", Everything(), targets(*HERE), "problem:Product", lr=0.1)
    three = play(tmp_path / "3", make("fedper"), targets(*HERE), "problem:Product", lr=0.1)
    assert one.server(HEAD) == two.server(HEAD)
    assert one.server(BODY) == two.server(BODY) != three.server(BODY)


def test_local_of_one_client_is_fedavg_of_one_client(tmp_path: Path) -> None:
    local = play(tmp_path / "1", make("local"), targets([4.0]), rounds=3)
    fedavg = play(tmp_path / "2", make("fedavg"), targets([4.0]), rounds=3)
    assert local.private(0, W) == fedavg.server(W)


def test_settings_that_switch_a_method_off_warn() -> None:
    assert "FedAvg" in (make("fedprox", mu=0.0).inert() or "")
    assert "FedAvg" in (make("fedavg-ft", ft_epochs=0).inert() or "")
    assert make("fedprox", mu=0.1).inert() is None
