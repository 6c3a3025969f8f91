"""Hand-derived values and identities of FedPer."""

from pathlib import Path

import pytest

from fedtailor.methods import find
from tests.support.problem import BODY, HEAD, HERE, PRODUCT, make, play, targets


def test_hand_fedper(tmp_path: Path) -> None:
    """f = h b, lr 1/10, one step: b -= h r / 10, h -= b r / 10 with r = h b - a.

    Round 1 from b = 1, h = 2: r = 2 and -2: b = 0.6 and 1.4, h = 1.8 and 2.2; body 0.6/4 + 1.4 * 3/4 = 1.2.
    Round 2: r = 2.16 and -1.36; b = 1.2 - 0.3888 = 0.8112 and 1.2 + 0.2992 = 1.4992;
    h = 1.8 - 0.2592 = 1.5408 and 2.2 + 0.1632 = 2.3632; body 0.2028 + 1.1244 = 1.3272.
    """
    played = play(tmp_path / "run", make("fedper"), targets(*HERE), PRODUCT, lr=0.1)
    assert played.server(BODY) == pytest.approx(1.3272, abs=1e-6)
    assert [played.private(0, HEAD), played.private(1, HEAD)] == pytest.approx([1.5408, 2.3632], abs=1e-6)
    # round 2 is received as the mean body 1.2 with the client's own head 1.8
    assert played.loss("received", 0, 2) == pytest.approx((1.2 * 1.8) ** 2 / 2, abs=1e-6)
    assert HEAD not in played.loop.server.weights
    assert played.loop.method.models(played.loop.server) == {}  # a body alone is no model


class Everything(find("fedper")):  # type: ignore[misc]
    """FedPer that shares its head as well."""

    shares = "all"


def test_fedper_with_everything_shared_is_fedavg(tmp_path: Path) -> None:
    one = play(tmp_path / "1", make("fedavg"), targets(*HERE), PRODUCT, lr=0.1)
    two = play(tmp_path / "2", Everything(), targets(*HERE), PRODUCT, lr=0.1)
    three = play(tmp_path / "3", make("fedper"), targets(*HERE), PRODUCT, lr=0.1)
    assert one.server(HEAD) == two.server(HEAD)
    assert one.server(BODY) == two.server(BODY) != three.server(BODY)
