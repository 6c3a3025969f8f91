"""Hand-derived values, identities and mechanisms of FedAMP."""

import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
import torch

from fedtailor.methods import Client, Payload, Payloads, Server, find
from tests.support.peers import kept, personal, server_of, state
from tests.support.problem import HERE, W, make, play, targets

FAR = 4 / math.log(2)  # with |w_0 - w_1|^2 = 4 this sigma gives exp(-4 / sigma) = 1/2


def test_hand_fedamp(tmp_path: Path) -> None:
    """alpha = lambda = 1/2, so the pull is 1: like FedProx with mu = 1, w = (u + a) / 2 after one step and stays.

    Round 1: u = 1 (nobody has trained): w = 1/2 and 5/2, |w_0 - w_1|^2 = 4, sigma = 4 / log 2.
    Round 2: xi = alpha / sigma exp(-4 / sigma) = log 2 / 16 =: x; u_0 = 1/2 + 2x and u_1 = 5/2 - 2x;
    w_0 = 1/4 + x, w_1 = 13/4 - x.
    """
    method = make("fedamp", lam=0.5, alpha=0.5, sigma=FAR)
    one = play(tmp_path / "1", method, targets(*HERE), rounds=1, epochs=2)
    two = play(tmp_path / "2", method, targets(*HERE), rounds=2, epochs=2)
    x = math.log(2) / 16
    assert [kept(one, 0), kept(one, 1)] == pytest.approx([0.5, 2.5], abs=1e-6)
    assert two.loss("received", 0, 2) == pytest.approx((0.5 + 2 * x) ** 2 / 2, abs=1e-6)
    assert two.loss("received", 1, 2) == pytest.approx((1.5 + 2 * x) ** 2 / 2, abs=1e-6)
    assert [kept(two, 0), kept(two, 1)] == pytest.approx([0.25 + x, 3.25 - x], abs=1e-6)
    assert two.loss("held", 0, 2) == pytest.approx((0.25 + x) ** 2 / 2, abs=1e-6)
    assert two.store.state_keys("client") == []
    assert two.loop.method.models(two.loop.server) == {}


def test_fedamp_starts_from_the_cloud_or_from_its_own_model(tmp_path: Path) -> None:
    """One step with pull 1/2 (lambda 1/4): from u_0 = 1/2 + 2x it gives 1/4 + x, from w_0 = 1/2 it gives
    1/2 - (1/2 + (1/2 - u_0) / 2) / 2 = 1/4 + x/2.
    """
    x = math.log(2) / 16
    cloud = play(tmp_path / "1", make("fedamp", lam=0.25, alpha=0.5, sigma=FAR), targets(*HERE))
    own = play(tmp_path / "2", make("fedamp", lam=0.25, alpha=0.5, sigma=FAR, start="own"), targets(*HERE))
    assert kept(cloud, 0) == pytest.approx(0.25 + x, abs=1e-6)
    assert kept(own, 0) == pytest.approx(0.25 + x / 2, abs=1e-6)
    assert float(state(own, 0)["model"][W]) == kept(own, 0)
    assert own.loss("received", 0, 2) == cloud.loss("received", 0, 2)


class Shifted(find("fedamp")):  # type: ignore[misc]
    """FedAMP whose cloud models are moved from round 2 on."""

    by: float = 0.0

    def prepare(self, server: Server, cohort: Sequence[int]) -> Payloads:
        payloads = super().prepare(server, cohort)
        by = self.by if server.round == 2 else 0.0
        return {i: Payload({"model": {n: t + by for n, t in p["model"].items()}}) for i, p in payloads.items()}


def test_fedamp_proximal_term_has_a_gradient_that_grows_with_the_distance(tmp_path: Path) -> None:
    """Defect of PFLlib's FedAMP: moving the target by +100 changed nothing, and the norm was not squared.

    One step from the own model: the target enters as + lr lambda / alpha u, so +100 gives +25 and +50 gives +12.5.
    """
    ends = {}
    for by in (0.0, 50.0, 100.0):
        method = Shifted(lam=0.25, alpha=0.5, sigma=FAR, start="own", by=by)
        ends[by] = kept(play(tmp_path / str(by), method, targets(*HERE)), 0)
    assert ends[100.0] - ends[0.0] == pytest.approx(25, abs=1e-4)
    assert ends[50.0] - ends[0.0] == pytest.approx(12.5, abs=1e-4)


def test_fedamp_attention_that_sums_to_more_than_one_is_scaled(tmp_path: Path) -> None:
    """alpha = 100: xi = 100 log 2 / 8 = 8.7 becomes 1, so the clients exchange their models 1/2 and 5/2."""
    played = play(tmp_path / "run", make("fedamp", lam=0.0, alpha=100.0, sigma=FAR), targets(*HERE))
    assert played.loss("received", 0, 2) == pytest.approx(2.5**2 / 2, abs=1e-5)
    assert played.loss("received", 1, 2) == pytest.approx(3.5**2 / 2, abs=1e-5)


class Held(find("local")):  # type: ignore[misc]
    """Local training pulled to its own last model."""

    def fit(self, client: Client) -> None:
        client.train(toward=client.received, pull=0.5)


def test_fedamp_without_attention_or_with_one_client_is_local_held_near_itself(tmp_path: Path) -> None:
    for name, here in (("one", [[4.0]]), ("two", HERE)):
        local = play(tmp_path / f"{name}-local", Held(), targets(*here), rounds=3, epochs=2)
        for start in ("cloud", "own"):
            apart = make("fedamp", lam=0.5, alpha=1.0, sigma=1e-3, start=start)  # exp(-4000) = 0
            amp = play(tmp_path / f"{name}-{start}", apart, targets(*here), rounds=3, epochs=2)
            assert personal(amp) == personal(local)
    near = make("fedamp", lam=0.5, alpha=1.0, sigma=10.0)
    assert personal(play(tmp_path / "near", near, targets(*HERE), rounds=3, epochs=2)) != personal(local)
    plain = play(tmp_path / "plain", make("local"), targets(*HERE), rounds=3, epochs=2)
    assert personal(plain) != personal(local)


def test_hand_heuristic_fedamp(tmp_path: Path) -> None:
    """Scalars of one sign have cosine 1: with three clients and xi_ii = 1/2 the two others get 1/4 each;
    by default all three get 1/3. Round 1 of targets 0, 4, 8: w = 1/2, 5/2, 9/2.
    """
    here = targets([0.0], [4.0], [8.0])
    half = play(tmp_path / "1", make("fedamp", attention="cosine", self_weight=0.5, lam=0.0), here)
    equal = play(tmp_path / "2", make("fedamp", attention="cosine", lam=0.0), here)
    assert half.loss("received", 0, 2) == pytest.approx((0.25 + 7 / 4) ** 2 / 2, abs=1e-5)
    assert equal.loss("received", 0, 2) == pytest.approx(2.5**2 / 2, abs=1e-5)


def test_heuristic_fedamp_prefers_the_similar_whatever_the_scale() -> None:
    """Cosines 1 and 0, sigma = 2: xi = (1 - 1/3) e^2 / (e^2 + 1) and (1 - 1/3) / (e^2 + 1)."""
    method: Any = make("fedamp", attention="cosine", sigma=2.0)
    for scale in (1e-3, 1.0, 1e3):
        near, across = {"w": torch.tensor([2.0, 0.0]) * scale}, {"w": torch.tensor([0.0, 3.0]) * scale}
        server = server_of(method, targets([0.0], [0.0], [0.0]), {1: {"model": near}, 2: {"model": across}})
        server.shared = frozenset({"w"})
        xi = method._attention(server, {0: {"w": torch.tensor([1.0, 0.0])}})[0]
        e = math.exp(2.0)
        assert xi == pytest.approx({1: 2 / 3 * e / (e + 1), 2: 2 / 3 / (e + 1)})
