"""Hand-derived values, identities and mechanisms of FedRep."""

import itertools
from pathlib import Path

import pytest

from tests.support.problem import BODY, HEAD, make, near, on_product


def test_hand_fedrep(tmp_path: Path) -> None:
    """One step on h, then one on b under the new h.

    Round 1: r = 2, -2: h = 1.8, 2.2; then r = 1.8, -1.8: b = 1 - 0.324 = 0.676, 1 + 0.396 = 1.396; body 1.216.
    Round 2: r = 2.1888, -1.3248: h = 1.8 - 0.26615808 = 1.53384192, 2.2 + 0.16109568 = 2.36109568; then
    r = 1.86515177, -1.12890765: b = 1.216 - 0.28608480 = 0.92991520, 1.216 + 0.26654590 = 1.48254590;
    body 0.23247880 + 1.11190942 = 1.34438822.
    """
    method = make("fedrep", head_epochs=1)
    one, two = on_product(tmp_path / "1", method, rounds=1), on_product(tmp_path / "2", method)
    assert one.server(BODY) == pytest.approx(1.216, abs=1e-6)
    assert [one.private(0, HEAD), one.private(1, HEAD)] == near(1.8, 2.2)
    assert two.server(BODY) == pytest.approx(1.34438822, abs=1e-6)
    assert [two.private(0, HEAD), two.private(1, HEAD)] == near(1.53384192, 2.36109568)
    assert two.loss("received", 0, 2) == pytest.approx(2.1888**2 / 2, abs=1e-6)  # the mean body, its own head
    assert two.loss("held", 0, 2) == pytest.approx((1.53384192 * 0.92991520) ** 2 / 2, abs=1e-6)
    assert list(two.loop.server.weights) == [BODY]
    assert two.loop.method.models(two.loop.server) == {}


def test_fedrep_without_head_epochs_is_fedbabu_before_its_fine_tuning(tmp_path: Path) -> None:
    fedrep = on_product(tmp_path / "1", make("fedrep", head_epochs=0), epochs=2)
    fedbabu = on_product(tmp_path / "2", make("fedbabu"), epochs=2)
    other = on_product(tmp_path / "3", make("fedrep", head_epochs=1), epochs=2)
    assert fedrep.server(BODY) == fedbabu.server(BODY) != other.server(BODY)
    for client in (0, 1):
        assert fedrep.private(client, HEAD) == fedbabu.private(client, HEAD) == 2.0 != other.private(client, HEAD)
        assert fedrep.loss("received", client, 2) == fedbabu.loss("received", client, 2)


def test_fedrep_obeys_its_number_of_head_epochs_and_the_runs_number_of_body_epochs(tmp_path: Path) -> None:
    """A library reads the setting under its value instead of its name and ignores it."""
    bodies = {
        (head, body): on_product(tmp_path / f"{head}{body}", make("fedrep", head_epochs=head), rounds=1, epochs=body)
        for head, body in itertools.product((1, 2), (1, 2))
    }
    assert len({played.server(BODY) for played in bodies.values()}) == 4
    assert bodies[1, 1].private(0, HEAD) == bodies[1, 2].private(0, HEAD) != bodies[2, 1].private(0, HEAD)
