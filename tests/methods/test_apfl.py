"""Hand-derived values, identities and mechanisms of APFL."""

from pathlib import Path
from typing import Any

import pytest

import fedtailor
from tests.support.digits import NORMALISED, digits, global_model, kept
from tests.support.problem import BODY, HEAD, HERE, PRODUCT, Listening, W, equal, make, near, play, targets


def test_hand_apfl(tmp_path: Path) -> None:
    """alpha_0 = 1/2, one step of a half: with vbar = alpha v + (1 - alpha) w and r = vbar - a,
    w_i = (w + a)/2, v <- v - alpha r / 2, alpha <- alpha - (v - w) r / 2 in [0, 1].

    Round 1 from v = w = 1: r = 1 and -3; w_i = 0.5 and 2.5, v = 0.75 and 1.75, alpha stays; w = 2.
    Round 2, client 0: vbar = 1.375 = r; w_0 = 1, v = 0.40625, alpha = 1/2 + 0.859375, cut to 1; held 0.40625.
    Client 1: vbar = 1.875, r = -2.125; w_1 = 3, v = 2.28125, alpha = 1/2 - 0.265625 = 0.234375;
    held 0.234375 * 2.28125 + 0.765625 * 3 = 2.83154296875. w = 2.5.
    """
    listening = Listening("apfl", alpha_0=0.5)
    played = play(tmp_path / "run", listening.method, targets(*HERE))
    assert [listening.value(1, c) for c in (0, 1)] == near(0.5, 2.5)
    assert [listening.value(2, c) for c in (0, 1)] == near(1.0, 3.0)
    assert played.loss("held", 0, 1) == pytest.approx(0.625**2 / 2, abs=1e-6)
    assert [float(played.state(c)["v"][W]) for c in (0, 1)] == near(0.40625, 2.28125)
    assert [played.state(c)["alpha"] for c in (0, 1)] == near(1.0, 0.234375)
    assert played.server(W) == pytest.approx(2.5, abs=1e-6)
    assert played.loss("received", 1, 2) == pytest.approx(2.0**2 / 2, abs=1e-6)
    assert played.loss("held", 0, 2) == pytest.approx(0.40625**2 / 2, abs=1e-6)
    assert played.loss("held", 1, 2) == pytest.approx((4 - 2.83154296875) ** 2 / 2, abs=1e-6)


@pytest.mark.parametrize(("updates", "alpha"), [("never", 0.5), ("round", 0.5), ("step", 0.421875)])
def test_hand_apfl_moves_alpha_with_every_step_or_the_first_of_a_round_or_never(
    updates: str, alpha: float, tmp_path: Path
) -> None:
    """Client 0, two steps in round 1: v = w = 1 in the first, so alpha stays; then v = 0.75, w = 0.5, vbar = 0.625 and
    alpha = 1/2 - 0.25 * 0.625 / 2 = 0.421875."""
    played = play(
        tmp_path / "run", make("apfl", alpha_0=0.5, alpha_updates=updates), targets([0.0]), rounds=1, epochs=2
    )
    assert played.state(0)["alpha"] == pytest.approx(alpha, abs=1e-6)


def test_apfl_from_alpha_one_leaves_local_only_when_it_adapts(tmp_path: Path) -> None:
    """The default. On one target for all, a client of one step learns from the others, who take three."""
    data = targets([4.0], [4.0] * 3)
    fixed = play(tmp_path / "1", make("apfl", alpha_updates="never"), data, rounds=5, lr=0.05, batch_size=1)
    adaptive = play(tmp_path / "2", make("apfl"), data, rounds=5, lr=0.05, batch_size=1)
    assert fixed.loop.method.inert()
    assert fixed.state(0)["alpha"] == 1.0
    assert adaptive.state(0)["alpha"] < 0.95
    assert abs(4 - adaptive.personal(0, W)) < abs(4 - fixed.personal(0, W)) - 0.01


@pytest.mark.parametrize("model", [{}, NORMALISED], ids=["plain", "batch-norm"])
def test_apfl_at_the_ends_of_a_fixed_alpha_is_local_only_or_fedavg(model: dict[str, Any], tmp_path: Path) -> None:
    """To the bit, with momentum: alpha = 1 keeps Local-only's models, alpha = 0 holds FedAvg's."""
    local = digits(tmp_path / "1", make("local"), **model)
    fedavg = digits(tmp_path / "2", make("fedavg"), **model)
    one, zero, half = (
        digits(tmp_path / str(alpha), make("apfl", alpha_0=alpha, alpha_updates="never"), **model)
        for alpha in (1.0, 0.0, 0.5)
    )
    theirs = kept(local)
    assert all(equal(theirs[client]["private"], kept(one)[client]["state"]["v"]) for client in theirs)
    assert not any(equal(theirs[client]["private"], kept(half)[client]["state"]["v"]) for client in theirs)
    for run in (one, zero, half):
        assert equal(global_model(fedavg), global_model(run))
    held = _scores(fedavg, "held")
    assert held == _scores(zero, "held") != _scores(half, "held")
    assert _scores(local, "held") == _scores(one, "held")
    assert _scores(local, "final") == _scores(one, "final")
    assert _scores(fedavg, "final") == _scores(zero, "final")


def _scores(run: fedtailor.Run, model: str) -> list[tuple[Any, ...]]:
    rows = run._store.rows(f"SELECT round, client, correct, loss FROM scores WHERE model = '{model}'")
    return sorted(tuple(row) if not isinstance(row, dict) else tuple(row.values()) for row in rows)


def test_apfls_global_branch_takes_its_gradient_once(tmp_path: Path) -> None:
    """FL-bench applies it twice: the clients' w_i are those of FedAvg, for an adaptive alpha too."""
    apfl, fedavg = Listening("apfl", alpha_0=0.3), Listening("fedavg")
    for name, listening in (("apfl", apfl), ("fedavg", fedavg)):
        play(tmp_path / name, listening.method, targets(*HERE), epochs=2, batch_size=1, momentum=0.5)
    assert [apfl.value(r, c) for r in (1, 2) for c in (0, 1)] == [fedavg.value(r, c) for r in (1, 2) for c in (0, 1)]


def test_apfl_mixes_parameters_and_not_outputs(tmp_path: Path) -> None:
    """Of f = h b: the held model is the product of the mixed b and the mixed h, not the mix of the products."""
    listening = Listening("apfl", alpha_0=0.5, alpha_updates="never")
    played = play(tmp_path / "run", listening.method, targets([0.5], [4.0]), PRODUCT, lr=0.1, rounds=3)
    v = {name: float(tensor) for name, tensor in played.state(0)["v"].items()}
    w = {name: listening.value(3, 0, name=name) for name in (BODY, HEAD)}
    mixed = (v[BODY] + w[BODY]) / 2 * (v[HEAD] + w[HEAD]) / 2
    outputs = (v[BODY] * v[HEAD] + w[BODY] * w[HEAD]) / 2
    assert played.loss("held", 0, 3) == pytest.approx((mixed - 0.5) ** 2 / 2, abs=1e-6)
    assert abs((mixed - 0.5) ** 2 - (outputs - 0.5) ** 2) > 1e-4


def test_apfls_alpha_goes_to_the_model_that_fits_better(tmp_path: Path) -> None:
    """Client 0 is alone with its target, so its share of the local model grows; the majority's falls."""
    data = targets([0.0], [4.0] * 3)
    played = play(tmp_path / "run", make("apfl", alpha_0=0.5), data, rounds=10, lr=0.05)
    assert played.state(0)["alpha"] > 0.6
    assert played.state(1)["alpha"] < 0.45
