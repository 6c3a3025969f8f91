"""Hand-derived values, identities and mechanisms of fednova, scaffold, per-fedavg, pfedme, ditto and apfl.

Two clients as in ``test_first_methods``: client 0 has one sample with target 0, client 1 three samples with target 4,
so the weights of a mean by data size are 1/4 and 3/4. A step with learning rate 1/2 on (w - a)^2 / 2 moves w half of
the way to a, whichever samples of the client are in its batch.
"""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from problem import equal, play, targets

import fedtailor
from fedtailor.learning import Batch, descend, loop
from fedtailor.learning.settings import Exponential
from fedtailor.messages.trees import unpack
from fedtailor.methods import Client, Method, Payload, Replies, Server, find
from fedtailor.runs import Callback
from fedtailor.runs.store import Store

HERE = ([0.0], [4.0, 4.0, 4.0])
W = "0.weight"
BODY, HEAD = "0.weight", "1.weight"


def make(name: str, **settings: object) -> Method:
    return find(name)(**settings)


class Listening:
    """A method whose replies are written down: ``heard[round - 1][client]``."""

    def __init__(self, name: str, **settings: object) -> None:
        heard: list[dict[int, Payload]] = []

        class Heard(find(name)):  # type: ignore[misc]
            name = ""

            def finish(self, server: Server, replies: Replies) -> Any:
                heard.append(dict(replies))
                return super().finish(server, replies)

        self.method, self.heard = Heard(**settings), heard

    def value(self, round: int, client: int, group: str = "model", name: str = W) -> float:
        return float(self.heard[round - 1][client][group][name])


def close(*values: float) -> Any:
    return pytest.approx(list(values), abs=1e-6)


# FedNova


def test_hand_fednova(tmp_path: Path) -> None:
    """Batches of one: client 0 takes 1 step, client 1 takes 3. From w they go to w/2 and 4 - (4 - w)/8, so
    d_0 = w/2, d_1 = -7 (4 - w)/24, tau_eff = 1/4 + 3 * 3/4 = 5/2 and w <- w - 5/2 (d_0/4 + 3 d_1/4).

    Round 1 from 1: d = 1/2 and -7/8; w = 1 - 5/2 (1/8 - 21/32) = 2.328125.
    Round 2: d = 1.1640625 and -0.487630208...; w = 2.328125 - 5/2 (0.291015625 - 0.36572265625) = 2.514892578125.
    """
    listening = Listening("fednova")
    played = play(tmp_path / "run", listening.method, targets(*HERE), batch_size=1)
    assert [listening.value(1, c) for c in (0, 1)] == close(0.5, -0.875)
    assert [listening.value(2, c) for c in (0, 1)] == close(1.1640625, -0.4876302083333)
    assert [listening.heard[0][c].number("tau") for c in (0, 1)] == [1, 3]
    assert played.server(W) == pytest.approx(2.514892578125, abs=1e-6)
    assert played.loss("global", 0, 1) == pytest.approx(2.328125**2 / 2, abs=1e-6)
    assert played.store.state_keys("client") == []


def test_hand_fednova_with_momentum(tmp_path: Path) -> None:
    """Momentum 1/2, one and two samples, batches of one; from w = 1.

    Client 0: g = 1, w = 1/2, |a| = 1, d = 1/2. Client 1: g = -3, w = 2.5, then g = -1.5, velocity -3, w = 4;
    |a| = 1 + 3/2, d = -3 / 2.5 = -1.2. tau_eff = 1/3 + 5/2 * 2/3 = 2; w = 1 - 2 (0.5/3 - 1.2 * 2/3) = 34/15.
    """
    listening = Listening("fednova")
    played = play(tmp_path / "run", listening.method, targets([0.0], [4.0, 4.0]), rounds=1, batch_size=1, momentum=0.5)
    assert [listening.value(1, c) for c in (0, 1)] == close(0.5, -1.2)
    assert played.server(W) == pytest.approx(34 / 15, abs=1e-6)


def test_hand_fednova_with_a_pull(tmp_path: Path) -> None:
    """mu = 1 and lr 1/2: after one step the pull balances the loss, w stays at (1 + a)/2: 1/2 and 5/2.

    |a| = 1 and, after three steps, 1 + 1/2 + 1/4 = 7/4: d = 1/2 and -6/7. tau_eff counts steps, 5/2:
    w = 1 - 5/2 (1/8 - 9/14) = 1 + 5/2 * 29/56.
    """
    played = play(tmp_path / "run", make("fednova", mu=1.0), targets(*HERE), rounds=1, batch_size=1)
    assert played.server(W) == pytest.approx(1 + 2.5 * 29 / 56, abs=1e-6)


@pytest.mark.parametrize("momentum", [0.0, 0.5])
def test_fednova_with_equal_steps_is_fedavg(momentum: float, tmp_path: Path) -> None:
    """Full batches: every client takes two steps. With batches of one it does not."""
    full: dict[str, Any] = {"epochs": 2, "momentum": momentum, "lr": 0.3}
    fedavg = play(tmp_path / "1", make("fedavg"), targets(*HERE), **full)
    fednova = play(tmp_path / "2", make("fednova"), targets(*HERE), **full)
    assert fednova.server(W) == pytest.approx(fedavg.server(W), abs=1e-6)
    one = play(tmp_path / "3", make("fedavg"), targets(*HERE), batch_size=1, **full)
    other = play(tmp_path / "4", make("fednova"), targets(*HERE), batch_size=1, **full)
    assert abs(one.server(W) - other.server(W)) > 0.01


def test_fednova_reaches_the_optimum_of_the_mean_loss_where_fedavg_does_not(tmp_path: Path) -> None:
    """With 1 and 3 small steps, FedAvg settles near (1 * 0 + 9 * 4) / 10 = 3.6, FedNova near the mean target 3."""
    small: dict[str, Any] = {"rounds": 1200, "lr": 0.01, "batch_size": 1}
    fedavg = play(tmp_path / "1", make("fedavg"), targets(*HERE), **small)
    fednova = play(tmp_path / "2", make("fednova"), targets(*HERE), **small)
    assert fedavg.server(W) == pytest.approx(3.6, abs=0.01)
    assert fednova.server(W) == pytest.approx(3.0, abs=0.03)


def test_fednova_of_one_participant_of_two_takes_its_step_neither_twice_nor_half(tmp_path: Path) -> None:
    """FedLab multiplies by N/K, flgo divides by it: the only client that answers must give its own model."""
    one: dict[str, Any] = {"rounds": 3, "batch_size": 1, "participation": {"clients": 1}}
    fedavg = play(tmp_path / "1", make("fedavg"), targets(*HERE), **one)
    fednova = play(tmp_path / "2", make("fednova"), targets(*HERE), **one)
    assert fednova.server(W) == pytest.approx(fedavg.server(W), abs=1e-6)


def test_fednova_does_not_normalise_its_scaled_weights_again(tmp_path: Path) -> None:
    """Flower's baseline divides by sum_i p_i tau_eff / tau_i = 5/2 (1/4 + 1/4) = 5/4, which shortens the step."""
    played = play(tmp_path / "run", make("fednova"), targets(*HERE), rounds=1, batch_size=1)
    assert played.server(W) - 1 == pytest.approx(1.328125, abs=1e-6)
    assert abs(played.server(W) - 1 - 1.328125 / 1.25) > 0.2


# SCAFFOLD


def test_hand_scaffold(tmp_path: Path) -> None:
    """Two steps y <- y - ((y - a) + c - c_i)/2, so K eta = 1; clients count alike and N = 2.

    Round 1 from x = 1, c = c_i = 0: y = 1/4 and 13/4, c_i = 3/4 and -9/4; x = 7/4, c = (3/4 - 9/4)/2 = -3/4.
    Round 2, client 0, c - c_0 = -3/2: y = 1.625, 1.5625; change of c_0: 0.1875 + 0.75 = 0.9375, c_0 = 1.6875.
    Client 1, c - c_1 = 3/2: y = 2.125, 2.3125; change -0.5625 + 0.75 = 0.1875, c_1 = -2.0625.
    x = 1.9375, c = -3/4 + (0.9375 + 0.1875)/2 = -0.1875.
    """
    listening = Listening("scaffold")
    played = play(tmp_path / "run", listening.method, targets(*HERE), epochs=2)
    assert [listening.value(1, c) for c in (0, 1)] == close(0.25, 3.25)
    assert [listening.value(1, c, "model/control") for c in (0, 1)] == close(0.75, -2.25)
    assert [listening.value(2, c) for c in (0, 1)] == close(1.5625, 2.3125)
    assert [listening.value(2, c, "model/control") for c in (0, 1)] == close(0.9375, 0.1875)
    assert [float(played.state(c)["c"][W]) for c in (0, 1)] == close(1.6875, -2.0625)
    assert float(played.loop.server.state["c"][W]) == pytest.approx(-0.1875, abs=1e-6)
    assert played.server(W) == pytest.approx(1.9375, abs=1e-6)


def test_hand_scaffold_with_a_server_rate_of_two(tmp_path: Path) -> None:
    """x = 1 + 2 (7/4 - 1) = 5/2; c as before."""
    played = play(tmp_path / "run", make("scaffold", eta_g=2.0), targets(*HERE), rounds=1, epochs=2)
    assert played.server(W) == pytest.approx(2.5, abs=1e-6)
    assert float(played.loop.server.state["c"][W]) == pytest.approx(-0.75, abs=1e-6)


def test_scaffolds_control_variate_knows_the_learning_rate_of_the_round(tmp_path: Path) -> None:
    """One client at target 0, two steps, lr 1/2 and then 1/4: x = 1 -> 1/4 -> (9/16)/4 = 0.140625.

    c_0 = (1/4 - 0.140625) / (2 * 1/4) = 0.21875; with K counted as one epoch or lr 1/2 it would be half or twice that.
    """
    schedule = Exponential(kind="exponential", gamma=0.5)
    played = play(tmp_path / "run", make("scaffold"), targets([0.0]), epochs=2, schedule=schedule)
    assert played.server(W) == pytest.approx(0.140625, abs=1e-6)
    assert float(played.state(0)["c"][W]) == pytest.approx(0.21875, abs=1e-6)


def test_scaffold_counts_steps_and_not_epochs(tmp_path: Path) -> None:
    """Client 1 with batches of one takes 3 steps in an epoch: (1 - 29/8) / (3 * 1/2) = -1.75."""
    played = play(tmp_path / "run", make("scaffold"), targets(*HERE), rounds=1, batch_size=1)
    assert float(played.state(1)["c"][W]) == pytest.approx(-1.75, abs=1e-6)


def test_scaffolds_control_variate_is_a_mean_of_gradients_with_momentum_too(tmp_path: Path) -> None:
    """Momentum 1/2: gradients 1 and 1/2 enter with the factors 3/2 and 1: c_0 = 2 / 2.5; divided by K it were 1."""
    played = play(tmp_path / "run", make("scaffold"), targets([0.0]), rounds=1, epochs=2, momentum=0.5)
    assert float(played.state(0)["c"][W]) == pytest.approx(0.8, abs=1e-6)


@pytest.mark.parametrize("batch_size", [1, 1000])
def test_scaffold_of_one_client_is_fedavg_of_one_client(batch_size: int, tmp_path: Path) -> None:
    one: dict[str, Any] = {"rounds": 4, "epochs": 2, "lr": 0.2, "batch_size": batch_size}
    data = targets([1.0, 2.0, 6.0])
    fedavg = play(tmp_path / "1", make("fedavg"), data, **one)
    assert play(tmp_path / "2", make("scaffold"), data, **one).server(W) == pytest.approx(fedavg.server(W), abs=1e-6)
    other = play(tmp_path / "3", make("scaffold", eta_g=0.5), data, **one)
    assert abs(other.server(W) - fedavg.server(W)) > 0.01


def test_scaffolds_server_holds_the_mean_of_the_clients_control_variates(tmp_path: Path) -> None:
    """Under full participation always; after one participant of two, half of its control variate."""
    full = play(tmp_path / "1", make("scaffold"), targets(*HERE), rounds=5, epochs=2, lr=0.1, batch_size=1)
    mean = sum(float(full.state(c)["c"][W]) for c in (0, 1)) / 2
    assert float(full.loop.server.state["c"][W]) == pytest.approx(mean, abs=1e-6)
    assert abs(mean) > 1e-3
    part = play(tmp_path / "2", make("scaffold"), targets(*HERE), rounds=1, participation={"clients": 1})
    (client,) = part.store.state_keys("client")
    own = float(part.state(int(client))["c"][W])
    assert float(part.loop.server.state["c"][W]) == pytest.approx(own / 2, abs=1e-6)
    assert own != 0


def test_scaffold_takes_the_mean_over_those_who_answered(tmp_path: Path) -> None:
    """PFLlib divides by those who were asked. Client 1 fails: x = y_0 = 1/4, c = c_0 / N = 3/8, and c_1 is not kept."""

    class Failing(find("scaffold")):  # type: ignore[misc]
        name = ""

        def upload(self, client: Client) -> Payload:
            if client.id == 1:
                raise RuntimeError("the line is cut")
            return super().upload(client)  # type: ignore[no-any-return]

    played = play(tmp_path / "run", Failing(), targets(*HERE), rounds=1, epochs=2)
    assert played.server(W) == pytest.approx(0.25, abs=1e-6)
    assert float(played.loop.server.state["c"][W]) == pytest.approx(0.375, abs=1e-6)
    assert played.store.state_keys("client") == ["0"]


def test_scaffold_does_as_many_steps_as_fedavg(tmp_path: Path) -> None:
    """FL-bench takes one batch per epoch; and its c_i stay zero for ever, which the hand-derived values exclude."""
    for name in ("fedavg", "scaffold"):
        play(tmp_path / name, make(name), targets(*HERE), batch_size=2, epochs=3)
    steps = [_steps(tmp_path / name) for name in ("fedavg", "scaffold")]
    assert steps[0] == steps[1] == [3, 6, 3, 6]


def _steps(folder: Path) -> list[int]:
    with Store(folder) as store:
        return [row["steps"] for row in store.rows("SELECT steps FROM tasks ORDER BY round, client")]


def test_scaffold_removes_the_drift_that_fedavg_settles_in(tmp_path: Path) -> None:
    """1 and 3 steps of a half: FedAvg settles where drifts balance, SCAFFOLD at the mean target 2 of clients that
    count alike. With the sign of pfl-research's c_i the drift would grow."""
    many: dict[str, Any] = {"rounds": 60, "batch_size": 1}
    scaffold = play(tmp_path / "1", make("scaffold"), targets([0.0], [4.0] * 3), **many)
    alike = play(tmp_path / "2", make("fedavg"), targets([0.0] * 3, [4.0] * 3), **many)
    fedavg = play(tmp_path / "3", make("fedavg"), targets(*HERE), **many)
    assert scaffold.server(W) == pytest.approx(2.0, abs=1e-4)
    assert [float(scaffold.state(c)["c"][W]) for c in (0, 1)] == pytest.approx([2.0, -2.0], abs=1e-3)
    assert alike.server(W) == pytest.approx(2.0, abs=1e-4)
    assert fedavg.server(W) == pytest.approx(3.36, abs=1e-4)  # where w = w/8 + 3/4 (4 - (4 - w)/8); its optimum is 3


# Per-FedAvg


def test_hand_per_fedavg(tmp_path: Path) -> None:
    """alpha = 1/2: w' = (w + a)/2, and w <- w - (w' - a)/2 = w - (w - a)/4. Two steps leave 9/16 of w - a.

    Round 1 from 1: 0.5625 and 2.3125, mean 3 - 2 * 9/16 = 1.875. Round 2: 1.0546875 and 2.8046875, mean 2.3671875.
    Personal: half of the way from the received model to a: in round 2 0.9375, in the end 1.18359375 and 3.18359375.
    """
    listening = Listening("per-fedavg", alpha=0.5)
    played = play(tmp_path / "run", listening.method, targets(*HERE), epochs=2)
    assert [listening.value(1, c) for c in (0, 1)] == close(0.5625, 2.3125)
    assert [listening.value(2, c) for c in (0, 1)] == close(1.0546875, 2.8046875)
    assert played.server(W) == pytest.approx(2.3671875, abs=1e-6)
    assert played.loss("held", 0, 2) == pytest.approx(0.9375**2 / 2, abs=1e-6)
    assert [played.personal(c, W) for c in (0, 1)] == close(1.18359375, 3.18359375)
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
            tmp_path / name, make("per-fedavg", alpha=alpha, **settings), targets([a]), "problem:Product",
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


DIGITS: dict[str, Any] = {
    "rounds": 3,
    "data": {"clients": 6, "samples": 200},
    "training": {"lr": 0.05, "epochs": 1, "batch_size": 16, "momentum": 0.5},
    "participation": {"ratio": 0.5},
    "engine": {"kind": "inline"},
}
NORMALISED: dict[str, Any] = {"model": {"name": "resnet18-bn", "arguments": {"width": 2}}}


def digits(folder: Path, method: Method, **more: Any) -> fedtailor.Run:
    experiment = fedtailor.experiment({**DIGITS, **more}).model_copy(update={"method": method})
    return fedtailor.run(experiment, folder=folder)


def global_model(run: fedtailor.Run) -> dict[str, torch.Tensor]:
    return unpack(run._store.state("server", "model"))["value"]  # type: ignore[no-any-return]


def kept(run: fedtailor.Run) -> dict[int, Any]:
    return {int(key): unpack(run._store.state("client", key)) for key in run._store.state_keys("client")}


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
    meta = play(tmp_path / "1", make("per-fedavg", variant="hessian-free", alpha=0.1), data, "problem:Product", **many)
    plain = play(tmp_path / "2", make("fedavg"), data, "problem:Product", **many)

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
    assert [row["loss"] for row in rows] == close(0.5, 4.5)


# pFedMe


def test_hand_pfedme(tmp_path: Path) -> None:
    """lam = 2, K = 2, eta_p = eta = 1/4, beta = 1/2: theta <- theta/4 + a/4 + w/2, then w_i = (w + theta)/2.

    Round 1 from 1: theta = 0.75, 0.6875 and 1.75, 1.9375; w_i = 0.84375 and 1.46875, mean 1.3125, w = 1.15625.
    Round 2: theta = 0.8671875, 0.794921875 and 1.8671875, 2.044921875; w_i = 0.9755859375 and 1.6005859375, mean
    1.4443359375, w = 1.30029296875. In the final pass theta = 11/16 w + 5/16 a.
    """
    listening = Listening("pfedme", lam=2.0, inner_steps=2, inner_lr=0.25, beta=0.5)
    played = play(tmp_path / "run", listening.method, targets(*HERE), lr=0.25)
    assert [listening.value(1, c) for c in (0, 1)] == close(0.84375, 1.46875)
    assert [listening.value(2, c) for c in (0, 1)] == close(0.9755859375, 1.6005859375)
    assert [float(played.state(c)["theta"][W]) for c in (0, 1)] == close(0.794921875, 2.044921875)
    assert played.server(W) == pytest.approx(1.30029296875, abs=1e-6)
    assert played.loss("received", 0, 2) == pytest.approx(1.15625**2 / 2, abs=1e-6)
    assert played.loss("held", 0, 2) == pytest.approx(0.794921875**2 / 2, abs=1e-6)
    assert [played.personal(c, W) for c in (0, 1)] == close(11 / 16 * 1.30029296875, 11 / 16 * 1.30029296875 + 1.25)


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
    assert ends == close(1.0, 1.3125, 1.625)


def test_pfedme_beyond_the_mean_leaves_variances_positive(tmp_path: Path) -> None:
    """beta = 4, which the paper tries as well, goes beyond the mean with the weights and not with the statistics."""
    with digits(tmp_path / "run", make("pfedme", beta=4.0), **NORMALISED) as run:
        model = global_model(run)
    assert all((tensor >= 0).all() for name, tensor in model.items() if name.endswith("running_var"))


# Ditto


def test_hand_ditto(tmp_path: Path) -> None:
    """lam = 1/2 and one step of a half: v <- v/4 + a/2 + w/4 with the received w; the global model is FedAvg's.

    Round 1 from w = v = 1: v = 1/2 and 5/2, w = 1/4 * 1/2 + 3/4 * 5/2 = 2.
    Round 2: v = 0.625 and 3.125; w_i = 1 and 3, w = 2.5. Final pass: v = 0.78125 and 3.40625.
    """
    listening = Listening("ditto")
    played = play(tmp_path / "run", listening.method, targets(*HERE))
    assert [listening.value(1, c) for c in (0, 1)] == close(0.5, 2.5)
    assert [listening.value(2, c) for c in (0, 1)] == close(1.0, 3.0)
    assert [float(played.state(c)["v"][W]) for c in (0, 1)] == close(0.625, 3.125)
    assert played.server(W) == pytest.approx(2.5, abs=1e-6)
    assert played.loss("received", 0, 2) == pytest.approx(2.0**2 / 2, abs=1e-6)
    assert played.loss("held", 1, 2) == pytest.approx(0.875**2 / 2, abs=1e-6)
    assert [played.personal(c, W) for c in (0, 1)] == close(0.78125, 3.40625)


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


# APFL


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
    assert [listening.value(1, c) for c in (0, 1)] == close(0.5, 2.5)
    assert [listening.value(2, c) for c in (0, 1)] == close(1.0, 3.0)
    assert played.loss("held", 0, 1) == pytest.approx(0.625**2 / 2, abs=1e-6)
    assert [float(played.state(c)["v"][W]) for c in (0, 1)] == close(0.40625, 2.28125)
    assert [played.state(c)["alpha"] for c in (0, 1)] == close(1.0, 0.234375)
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
    played = play(tmp_path / "run", listening.method, targets([0.5], [4.0]), "problem:Product", lr=0.1, rounds=3)
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


# All of them


@pytest.mark.parametrize(
    ("name", "off"),
    [
        ("per-fedavg", {"alpha": 0.0}),
        ("pfedme", {"lam": 0.0}),
        ("pfedme", {"beta": 0.0}),
        ("ditto", {"lam": 0.0}),
        ("apfl", {"alpha_updates": "never", "alpha_0": 0.0}),
    ],
    ids=str,
)
def test_settings_that_switch_a_method_off_are_said_and_change_the_numbers(
    name: str, off: dict[str, Any], tmp_path: Path
) -> None:
    assert make(name, **off).inert()
    assert make(name).inert() is None
    on = play(tmp_path / "on", make(name), targets(*HERE), lr=0.05, epochs=2, rounds=3)
    without = play(tmp_path / "off", make(name, **off), targets(*HERE), lr=0.05, epochs=2, rounds=3)
    assert any(abs(on.personal(c, W) - without.personal(c, W)) > 1e-4 for c in (0, 1))


class Told(Callback):
    def __init__(self) -> None:
        self.warnings: list[str] = []

    def warning(self, sentence: str) -> None:
        self.warnings.append(sentence)


@pytest.mark.parametrize(
    ("method", "training", "word"),
    [
        ({"name": "scaffold"}, {"optimiser": "adam"}, "control variates"),
        ({"name": "scaffold"}, {"clip": 1.0}, "control variates"),
        ({"name": "scaffold"}, {"momentum": 0.5, "weight_decay": 0.01}, None),
        ({"name": "fednova"}, {"optimiser": "adam"}, "number of steps"),
        ({"name": "fednova"}, {"momentum": 0.5}, None),
        ({"name": "per-fedavg", "variant": "hessian-free"}, {"clip": 1.0}, "Hessian"),
        ({"name": "per-fedavg"}, {"clip": 1.0}, None),
    ],
    ids=str,
)
def test_training_settings_that_break_a_method_are_said(
    method: dict[str, Any], training: dict[str, Any], word: str | None, tmp_path: Path
) -> None:
    told = Told()
    settings = {**DIGITS, "rounds": 1, "method": method, "training": {"lr": 0.01, "epochs": 1, **training}}
    fedtailor.run(settings, folder=tmp_path / "run", callbacks=told).close()
    assert [word in sentence for sentence in told.warnings] == ([True] if word else [])


FACTORS: list[tuple[str, dict[str, Any], Callable[[int], float]]] = [
    ("fednova", {}, lambda epochs: epochs),
    ("scaffold", {}, lambda epochs: epochs),
    ("ditto", {}, lambda epochs: 2 * epochs),
    ("apfl", {}, lambda epochs: 2 * epochs),
    ("pfedme", {"inner_steps": 7}, lambda epochs: 7 * epochs),
    ("per-fedavg", {}, lambda epochs: epochs),
    ("per-fedavg", {"variant": "hessian-free"}, lambda epochs: 4 / 3 * epochs),
]


@pytest.mark.parametrize(("name", "settings", "expected"), FACTORS)
def test_the_passes_that_are_declared_are_those_that_are_made(
    name: str, settings: dict[str, Any], expected: Callable[[int], float], tmp_path: Path, monkeypatch: Any
) -> None:
    """Gradients of three samples, for two epochs in one round; no final pass, nothing else is trained."""
    seen = 0
    original = loop.mean_loss

    def count(kind: Any, outputs: torch.Tensor, wanted: torch.Tensor) -> torch.Tensor:
        nonlocal seen
        seen += len(wanted)
        return original(kind, outputs, wanted)

    monkeypatch.setattr(loop, "mean_loss", count)
    method = make(name, **settings)
    experiment = fedtailor.experiment(
        {
            "rounds": 1,
            "training": {"epochs": 2, "lr": 0.01, "loss": "squared-error"},
            "model": {"name": "problem:Scalar"},
            "engine": {"kind": "inline"},
            "evaluation": {"every": 0, "final": False},
        }
    ).model_copy(update={"method": method})
    fedtailor.run(experiment, folder=tmp_path / "run", federation=targets([1.0, 2.0, 3.0])).close()
    assert method.passes(2) == pytest.approx(expected(2)) == pytest.approx(seen / 3)
