"""Hand-derived values, identities and mechanisms of Ditto."""

from pathlib import Path
from typing import Any

import pytest

from tests.support.digits import NORMALISED, digits, global_model, kept
from tests.support.problem import HERE, Listening, W, equal, make, near, play, targets


def test_hand_ditto(tmp_path: Path) -> None:
    """lam = 1/2 and one step of a half: v <- v/4 + a/2 + w/4 with the received w; the global model is FedAvg's.

    Round 1 from w = v = 1: v = 1/2 and 5/2, w = 1/4 * 1/2 + 3/4 * 5/2 = 2.
    Round 2: v = 0.625 and 3.125; w_i = 1 and 3, w = 2.5. Final pass: v = 0.78125 and 3.40625.
    """
    listening = Listening("ditto")
    played = play(tmp_path / "run", listening.method, targets(*HERE))
    assert [listening.value(1, c) for c in (0, 1)] == near(0.5, 2.5)
    assert [listening.value(2, c) for c in (0, 1)] == near(1.0, 3.0)
    assert [float(played.state(c)["v"][W]) for c in (0, 1)] == near(0.625, 3.125)
    assert played.server(W) == pytest.approx(2.5, abs=1e-6)
    assert played.loss("received", 0, 2) == pytest.approx(2.0**2 / 2, abs=1e-6)
    assert played.loss("held", 1, 2) == pytest.approx(0.875**2 / 2, abs=1e-6)
    assert [played.personal(c, W) for c in (0, 1)] == near(0.78125, 3.40625)


@pytest.mark.parametrize("model", [{}, NORMALISED], ids=["plain", "batch-norm"])
def test_dittos_personal_models_without_a_pull_are_local_onlys(model: dict[str, Any], tmp_path: Path) -> None:
    """With the same cohorts and batches, to the bit; and the global model is FedAvg's, whatever lam."""
    local = kept(digits(tmp_path / "1", make("local"), **model))
    untied = digits(tmp_path / "2", make("ditto", lam=0.0), **model)
    tied = digits(tmp_path / "3", make("ditto", lam=0.5), **model)
    assert local.keys() == kept(untied).keys()
    assert all(equal(local[client]["private"], kept(untied)[client]["state"]["v"]) for client in local)
    assert not any(equal(local[client]["private"], kept(tied)[client]["state"]["v"]) for client in local)
    fedavg = global_model(digits(tmp_path / "4", make("fedavg"), **model))
    assert equal(fedavg, global_model(untied))
    assert equal(fedavg, global_model(tied))


def test_dittos_pull_is_to_the_received_model_and_not_to_the_trained_one(tmp_path: Path) -> None:
    """PFLlib#57. With lam = 100 and small steps v ends at the received w = 1, not at the w_i it is trained to."""
    listening = Listening("ditto", lam=100.0)
    played = play(tmp_path / "run", listening.method, targets([4.0]), rounds=1, lr=0.005, epochs=200)
    assert float(played.state(0)["v"][W]) == pytest.approx((4 + 100 * 1) / 101, abs=1e-5)
    assert listening.value(1, 0) == pytest.approx(4 - 3 * 0.995**200, abs=1e-3)


def test_a_personal_model_that_diverges_leaves_the_client_out(tmp_path: Path) -> None:
    """lr * lam = 500: v overflows while w_i does not. The client is as it was before the round."""
    played = play(tmp_path / "run", make("ditto", lam=1000.0), targets([4.0]), rounds=1, epochs=40)
    events = played.store.rows("SELECT detail FROM events WHERE kind = 'failed'")
    assert ["not finite" in row["detail"] for row in events] == [True]
    assert played.store.state_keys("client") == []
