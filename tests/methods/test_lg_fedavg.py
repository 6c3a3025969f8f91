"""Hand-derived values and identities of LG-FedAvg."""

from pathlib import Path

import pytest

from tests.support.problem import BODY, HEAD, HERE, ends, make, near, on_product, play, targets


def test_hand_lg_fedavg(tmp_path: Path) -> None:
    """FedPer's mirror. Round 1: b = 0.6, 1.4, h = 1.8, 2.2; head 0.45 + 1.65 = 2.1.

    Round 2: r = 1.26, -1.06: b = 0.6 - 0.2646 = 0.3354, 1.4 + 0.2226 = 1.6226;
    h = 2.1 - 0.0756 = 2.0244, 2.1 + 0.1484 = 2.2484; head 0.5061 + 1.6863 = 2.1924.
    """
    one, two = on_product(tmp_path / "1", make("lg-fedavg"), rounds=1), on_product(tmp_path / "2", make("lg-fedavg"))
    assert [one.server(HEAD), two.server(HEAD)] == near(2.1, 2.1924)
    assert [two.private(0, BODY), two.private(1, BODY)] == near(0.3354, 1.6226)
    assert two.loss("received", 1, 2) == pytest.approx(1.06**2 / 2, abs=1e-6)
    assert list(two.loop.server.weights) == [HEAD]


def test_lg_fedavg_with_everything_in_the_head_is_fedavg(tmp_path: Path) -> None:
    """The one layer of Scalar is its head."""
    fedavg = play(tmp_path / "1", make("fedavg"), targets(*HERE))
    assert ends(fedavg) == ends(play(tmp_path / "2", make("lg-fedavg"), targets(*HERE)))
    assert on_product(tmp_path / "3", make("fedavg")).server(HEAD) != on_product(
        tmp_path / "4", make("lg-fedavg")
    ).server(HEAD)
