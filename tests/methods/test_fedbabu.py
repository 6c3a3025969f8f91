"""Hand-derived values, identities and mechanisms of FedBABU."""

from pathlib import Path

import pytest

from tests.support.problem import BODY, HEAD, make, near, on_product


def test_hand_fedbabu(tmp_path: Path) -> None:
    """h = 2 stays: b -> b - (2 b - a) / 5 = 0.6 b + 0.2 a, so the mean goes 0.6 b + 0.6: 1 -> 1.2 -> 1.32.

    Final pass: both receive 1.32 and fine-tune *that* for one step on body and head: r = 2.64, -1.36:
    b = 1.32 - 0.528 = 0.792, 1.32 + 0.272 = 1.592; h = 2 - 0.34848 = 1.65152, 2 + 0.17952 = 2.17952.
    """
    one = on_product(tmp_path / "1", make("fedbabu", ft_epochs=1), rounds=1)
    two = on_product(tmp_path / "2", make("fedbabu", ft_epochs=1))
    assert [one.server(BODY), two.server(BODY)] == near(1.2, 1.32)
    assert [two.private(0, HEAD), two.private(1, HEAD)] == [2.0, 2.0]
    assert [two.personal(0, BODY), two.personal(1, BODY)] == near(0.792, 1.592)
    assert [two.personal(0, HEAD), two.personal(1, HEAD)] == near(1.65152, 2.17952)
    # the global model is whole: everyone has the initial head
    assert two.loss("global", 1, 2) == pytest.approx(1.36**2 / 2, abs=1e-6)
    # held in round 2: the received 1.2 after fine-tuning, r = 2.4: b = 0.72, h = 1.712
    assert two.loss("held", 0, 2) == pytest.approx((0.72 * 1.712) ** 2 / 2, abs=1e-6)


@pytest.mark.parametrize(("part", "body", "head"), [("body", 0.792, 2.0), ("head", 1.32, 1.65152)])
def test_fedbabu_fine_tunes_the_part_it_is_told(part: str, body: float, head: float, tmp_path: Path) -> None:
    played = on_product(tmp_path / "run", make("fedbabu", ft_epochs=1, ft_part=part))
    assert [played.personal(0, BODY), played.personal(0, HEAD)] == near(body, head)


def test_fedbabu_fine_tunes_at_its_own_rate(tmp_path: Path) -> None:
    """A tenth of the step of 1.32 - 0.528 and 2 - 0.34848."""
    played = on_product(tmp_path / "run", make("fedbabu", ft_epochs=1, ft_lr=0.01))
    assert [played.personal(0, BODY), played.personal(0, HEAD)] == near(1.2672, 1.965152)


def test_fine_tuning_leaves_no_trace_in_the_federation(tmp_path: Path) -> None:
    bodies = {on_product(tmp_path / str(n), make("fedbabu", ft_epochs=n)).server(BODY) for n in (0, 1, 7)}
    assert len(bodies) == 1
