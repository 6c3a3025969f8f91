"""Hand-derived values, identities and mechanisms of Per-FedAvg."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from fedtailor.learning import Batch, descend
from fedtailor.methods import Client, find
from tests.support.digits import digits, global_model
from tests.support.problem import BODY, HEAD, HERE, PRODUCT, Listening, W, equal, make, near, play, targets


def test_hand_per_fedavg(tmp_path: Path) -> None:
    """alpha = 1/2: w' = (w + a)/2, and w <- w - (w' - a)/2 = w - (w - a)/4. Two steps leave 9/16 of w - a.

    Round 1 from 1: 0.5625 and 2.3125, mean 3 - 2 * 9/16 = 1.875. Round 2: 1.0546875 and 2.8046875, mean 2.3671875.
    Personal: half of the way from the received model to a: in round 2 0.9375, in the end 1.18359375 and 3.18359375.
    """
    listening = Listening("per-fedavg", alpha=0.5)
    played = play(tmp_path / "run", listening.method, targets(*HERE), epochs=2)
    assert [listening.value(1, c) for c in (0, 1)] == near(0.5625, 2.3125)
    assert [listening.value(2, c) for c in (0, 1)] == near(1.0546875, 2.8046875)
    assert played.server(W) == pytest.approx(2.3671875, abs=1e-6)
    assert played.loss("held", 0, 2) == pytest.approx(0.9375**2 / 2, abs=1e-6)
    assert [played.personal(c, W) for c in (0, 1)] == near(1.18359375, 3.18359375)
    assert played.store.state_keys("client") == []


def test_hand_per_fedavg_hessian_free(tmp_path: Path) -> None:
    """The Hessian is 1, so the meta-gradient is (1 - alpha)^2 (w - a) = (w - a)/4, and a step leaves 7/8 of w - a:
    3 - 2 * 49/64 = 1.46875, then 3 - 1.53125 * 49/64 = 1.82763671875.
    """
    played = play(tmp_path / "run", make("per-fedavg", variant="hessian-free", alpha=0.5), targets(*HERE), epochs=2)
    assert played.loss("global", 1, 1) == pytest.approx((4 - 1.46875) ** 2 / 2, abs=1e-3)
    assert played.server(W) == pytest.approx(1.82763671875, abs=3e-4)  # a difference of floats over 1/1000


@pytest.mark.parametrize("delta", [1.0, 0.1, 0.01])
def test_per_fedavg_hessian_free_is_exact_on_a_quadratic_for_every_delta(delta: float, tmp_path: Path) -> None:
    method = make("per-fedavg", variant="hessian-free", alpha=0.5, delta=delta)
    played = play(tmp_path / "run", method, targets([0.0]), rounds=1)
    assert played.server(W) == pytest.approx(1 - 0.5 * 0.25, abs=1e-4)


def test_per_fedavg_hessian_free_approaches_the_exact_meta_gradient(tmp_path: Path) -> None:
    """f(b, h) = (h b - a)^2 / 2 has g = (h r, b r), H = [[h^2, 2 h b - a], [2 h b - a, b^2]]."""
    alpha, lr, a = 0.1, 0.1, 3.0

    def gradient(w: np.ndarray) -> np.ndarray:
        return np.array([w[1], w[0]]) * (w[0] * w[1] - a)

    b, h = w = np.array([1.0, 2.0])
    hessian = np.array([[h * h, 2 * h * b - a], [2 * h * b - a, b * b]])
    first_order = gradient(w - alpha * gradient(w))
    exact = first_order - alpha * hessian @ first_order

    def taken(name: str, **settings: Any) -> np.ndarray:
        played = play(
            tmp_path / name, make("per-fedavg", alpha=alpha, **settings), targets([a]), PRODUCT,
            rounds=1, lr=lr,
        )  # fmt: skip
        return (w - [played.server(BODY), played.server(HEAD)]) / lr

    errors = [
        np.abs(taken(str(delta), variant="hessian-free", delta=delta) - exact).max() for delta in (1.0, 0.3, 0.01)
    ]
    assert errors[0] > errors[1] > errors[2]
    assert errors[2] < 1e-3
    assert taken("first") == pytest.approx(first_order, abs=1e-5)
    assert np.abs(first_order - exact).max() > 0.1


class SecondPart(find("fedavg")):  # type: ignore[misc]
    """FedAvg that throws the first of ``parts`` parts of every mini-batch away and takes the second."""

    name = ""
    parts: int = 2

    def fit(self, client: Client) -> None:
        def step(batch: Batch) -> torch.Tensor:
            return descend(batch.split(self.parts)[1])

        client.train(step=step)


@pytest.mark.parametrize(("variant", "parts"), [("first-order", 2), ("hessian-free", 3)])
def test_per_fedavg_without_an_inner_step_is_sgd_on_the_second_part_of_every_batch(
    variant: str, parts: int, tmp_path: Path
) -> None:
    plain = global_model(digits(tmp_path / "1", SecondPart(parts=parts)))
    assert equal(plain, global_model(digits(tmp_path / "2", make("per-fedavg", variant=variant, alpha=0.0))))
    assert not equal(plain, global_model(digits(tmp_path / "3", make("per-fedavg", variant=variant, alpha=0.05))))


def test_per_fedavg_learns_a_model_that_is_better_after_one_step(tmp_path: Path) -> None:
    """Of f = h b at targets 0 and 4 the meta-model does better after an inner step than FedAvg's after the same."""
    many: dict[str, Any] = {"rounds": 200, "lr": 0.02}
    data = targets([1.0], [4.0])
    meta = play(
        tmp_path / "1",
        make("per-fedavg", variant="hessian-free", alpha=0.1),
        data,
        PRODUCT,
        **many,
    )
    plain = play(tmp_path / "2", make("fedavg"), data, PRODUCT, **many)

    def adapted(b: float, h: float, a: float) -> float:
        r = h * b - a
        return ((h - 0.1 * b * r) * (b - 0.1 * h * r) - a) ** 2 / 2

    ours, theirs = (
        sum(adapted(played.server(BODY), played.server(HEAD), a) for a in (1.0, 4.0)) for played in (meta, plain)
    )
    assert ours < theirs
    assert played_loss(meta) == pytest.approx(ours, abs=1e-3)


def played_loss(played: Any) -> float:
    """The loss of the personal models at the end, summed over two clients."""
    return sum((played.personal(c, BODY) * played.personal(c, HEAD) - a) ** 2 / 2 for c, a in ((0, 1.0), (1, 4.0)))


def test_per_fedavg_reports_the_loss_before_any_adaptation(tmp_path: Path) -> None:
    """PFLlib's is that after it: (w - a)^2 / 2 at w = 1 is 1/2 and 9/2."""
    played = play(tmp_path / "run", make("per-fedavg", alpha=0.5), targets(*HERE), rounds=1)
    rows = played.store.rows("SELECT loss FROM tasks ORDER BY client")
    assert [row["loss"] for row in rows] == near(0.5, 4.5)
