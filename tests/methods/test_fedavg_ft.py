"""Hand-derived values and identities of FedAvg with fine-tuning."""

from pathlib import Path

import pytest

from tests.support.problem import HERE, W, make, play, same_end, targets


def test_hand_fedavg_ft(tmp_path: Path) -> None:
    """The server is FedAvg's (2.875 after two rounds of two steps); the personal model is the received one after
    ft_epochs half-way steps, so from 2.875 in the final pass: 2.875/8 and 4 - 1.125/8 after three.
    """
    played = play(tmp_path / "run", make("fedavg-ft", ft_epochs=3), targets(*HERE), epochs=2)
    assert played.server(W) == pytest.approx(2.875, abs=1e-6)
    assert [played.personal(0, W), played.personal(1, W)] == pytest.approx([0.359375, 3.859375], abs=1e-6)
    assert played.loss("held", 0, 2) == pytest.approx((2.5 / 8) ** 2 / 2, abs=1e-6)


def test_fedavg_ft_with_as_many_epochs_has_fedavgs_final_pass(tmp_path: Path) -> None:
    fedavg = play(tmp_path / "1", make("fedavg"), targets(*HERE), epochs=2)
    assert same_end(fedavg, play(tmp_path / "2", make("fedavg-ft", ft_epochs=2), targets(*HERE), epochs=2))
    assert not same_end(fedavg, play(tmp_path / "3", make("fedavg-ft", ft_epochs=3), targets(*HERE), epochs=2))
