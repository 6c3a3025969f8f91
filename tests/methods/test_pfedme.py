"""Hand-derived values, identities and mechanisms of pFedMe."""

from pathlib import Path

import pytest

from tests.support.digits import NORMALISED, digits, global_model
from tests.support.problem import HERE, Listening, W, make, near, play, targets


def test_hand_pfedme(tmp_path: Path) -> None:
    """lam = 2, K = 2, eta_p = eta = 1/4, beta = 1/2: theta <- theta/4 + a/4 + w/2, then w_i = (w + theta)/2.

    Round 1 from 1: theta = 0.75, 0.6875 and 1.75, 1.9375; w_i = 0.84375 and 1.46875, mean 1.3125, w = 1.15625.
    Round 2: theta = 0.8671875, 0.794921875 and 1.8671875, 2.044921875; w_i = 0.9755859375 and 1.6005859375, mean
    1.4443359375, w = 1.30029296875. In the final pass theta = 11/16 w + 5/16 a.
    """
    listening = Listening("pfedme", lam=2.0, inner_steps=2, inner_lr=0.25, beta=0.5)
    played = play(tmp_path / "run", listening.method, targets(*HERE), lr=0.25)
    assert [listening.value(1, c) for c in (0, 1)] == near(0.84375, 1.46875)
    assert [listening.value(2, c) for c in (0, 1)] == near(0.9755859375, 1.6005859375)
    assert [float(played.state(c)["theta"][W]) for c in (0, 1)] == near(0.794921875, 2.044921875)
    assert played.server(W) == pytest.approx(1.30029296875, abs=1e-6)
    assert played.loss("received", 0, 2) == pytest.approx(1.15625**2 / 2, abs=1e-6)
    assert played.loss("held", 0, 2) == pytest.approx(0.794921875**2 / 2, abs=1e-6)
    assert [played.personal(c, W) for c in (0, 1)] == near(11 / 16 * 1.30029296875, 11 / 16 * 1.30029296875 + 1.25)


@pytest.mark.parametrize(("restart", "theta"), [(False, 0.5703125), (True, 0.580078125)])
def test_hand_pfedme_theta_goes_on_or_begins_anew_with_every_batch(restart: bool, theta: float, tmp_path: Path) -> None:
    """The second batch of client 0 has w_i = 0.84375. From theta = 0.6875: 0.59375, 0.5703125; from w_i: 0.6328125,
    0.580078125."""
    method = make("pfedme", lam=2.0, inner_steps=2, inner_lr=0.25, restart=restart)
    played = play(tmp_path / "run", method, targets([0.0]), lr=0.25, rounds=1, epochs=2)
    assert float(played.state(0)["theta"][W]) == pytest.approx(theta, abs=1e-6)


def test_pfedmes_theta_approaches_the_minimiser_of_the_moreau_envelope(tmp_path: Path) -> None:
    """Of (theta - a)^2 / 2 + lam/2 (theta - w)^2: (a + lam w)/(1 + lam), and not a, nor w."""
    lam, w, a = 15.0, 1.0, 4.0
    errors = []
    for steps in (1, 5, 50):
        method = make("pfedme", lam=lam, inner_steps=steps, inner_lr=0.05)
        played = play(tmp_path / str(steps), method, targets([a]), rounds=1, lr=0.01)
        errors.append(abs(float(played.state(0)["theta"][W]) - (a + lam * w) / (1 + lam)))
        envelope = lam * (w - float(played.state(0)["theta"][W]))
        assert played.server(W) == pytest.approx(w - 0.01 * envelope, abs=1e-6)
    assert errors[0] > errors[1] > errors[2]
    assert errors[2] < 1e-6


def test_pfedmes_personal_model_is_neither_the_local_nor_the_global_nor_the_initial_one(tmp_path: Path) -> None:
    """PFLlib's and the authors' theta is an alias of w_i, FL-bench's stays initial, flgo overwrites it with w."""
    listening = Listening("pfedme", inner_lr=0.05)
    played = play(tmp_path / "run", listening.method, targets(*HERE), lr=0.01, epochs=3)
    for client, target in ((0, 0.0), (1, 4.0)):
        theta = float(played.state(client)["theta"][W])
        assert all(abs(theta - other) > 0.01 for other in (1.0, played.server(W), listening.value(2, client)))
        assert abs(theta - target) < abs(listening.value(2, client) - target)


def test_pfedmes_pull_is_felt(tmp_path: Path) -> None:
    """fluke's anchor is the model itself, so its envelope is flat: theta would be that of lam = 0."""
    thetas = []
    for lam in (0.0, 1.0, 15.0):
        method = make("pfedme", lam=lam, inner_lr=0.05, inner_steps=20)
        played = play(tmp_path / str(lam), method, targets([4.0]), rounds=1, lr=0.01)
        thetas.append(float(played.state(0)["theta"][W]))
    assert thetas[0] > thetas[1] > thetas[2]
    assert thetas[0] == pytest.approx(4 - 3 * 0.95**20, abs=1e-5)  # gradients do not accumulate, as they do in flgo


def test_pfedmes_mean_enters_the_global_model_with_beta(tmp_path: Path) -> None:
    """From 1, with the clients' mean at 1.3125 (see the hand-derived values): 1, 1.3125 and 1.625."""
    ends = [
        play(
            tmp_path / str(beta), make("pfedme", lam=2.0, inner_steps=2, inner_lr=0.25, beta=beta), targets(*HERE),
            rounds=1, lr=0.25,
        ).server(W)
        for beta in (0.0, 1.0, 2.0)
    ]  # fmt: skip
    assert ends == near(1.0, 1.3125, 1.625)


def test_pfedme_beyond_the_mean_leaves_variances_positive(tmp_path: Path) -> None:
    """beta = 4, which the paper tries as well, goes beyond the mean with the weights and not with the statistics."""
    with digits(tmp_path / "run", make("pfedme", beta=4.0), **NORMALISED) as run:
        model = global_model(run)
    assert all((tensor >= 0).all() for name, tensor in model.items() if name.endswith("running_var"))
