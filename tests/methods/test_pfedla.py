"""Hand-derived values, identities and mechanisms of pFedLA."""

import math
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from fedtailor.methods import Payload, Replies
from fedtailor.weights import Weights
from tests.support.peers import kept, personal, server_of, state
from tests.support.problem import BODY, HEAD, HERE, PRODUCT, make, play, targets


def test_hand_pfedla(tmp_path: Path) -> None:
    """One layer, no hidden layers, so alpha_i = softmax(A v_i + b) with A = b = 0 at the start.

    Round 1, nobody has trained: 1 -> 1/2 and 5/2. Nothing to learn from.
    Round 2: alpha = (1/2, 1/2), mixture 3/2; trained to 3/4 and 11/4, so D_0 = -3/4 and D_1 = 5/4.
    <theta_j, D_i> = (-3/8, -15/8) and (5/8, 25/8); through the softmax 1/2 (G_j - mean G) = (3/8, -3/8) and
    (-5/8, 5/8) =: d_i. With lr = 1/10: b_i = d_i / 10, A_i = d_i v_i' / 10, v_i stays since A was 0.
    Round 3: outputs d_i s_i / 10 with s_i = 1 + |v_i|^2, so alpha_00 = sigmoid(3/4 s_0 / 10), alpha_11 =
    sigmoid(5/4 s_1 / 10); client 0 receives 11/4 - 2 alpha_00, client 1 receives 3/4 + 2 alpha_11.
    """
    method = make("pfedla", lr=0.1, depth=0, embedding=4)
    two = play(tmp_path / "2", method, targets(*HERE), rounds=2)
    three = play(tmp_path / "3", method, targets(*HERE), rounds=3)
    assert two.loss("received", 0, 2) == pytest.approx(1.5**2 / 2, abs=1e-6)
    assert two.loss("received", 1, 2) == pytest.approx(2.5**2 / 2, abs=1e-6)
    assert [kept(two, 0), kept(two, 1)] == pytest.approx([0.75, 2.75], abs=1e-6)
    assert "sent" not in two.loop.server.state
    spread = {}
    for i, d in ((0, torch.tensor([[0.375, -0.375]])), (1, torch.tensor([[-0.625, 0.625]]))):
        network = two.loop.server.memory.peek(i)["hypernetwork"]
        torch.testing.assert_close(network["bias"], d / 10)
        torch.testing.assert_close(network["weight"], d[:, :, None] * network["v"] / 10)
        spread[i] = 1 + float(network["v"].square().sum())
    alpha_00 = 1 / (1 + math.exp(-0.75 * spread[0] / 10))
    alpha_11 = 1 / (1 + math.exp(-1.25 * spread[1] / 10))
    assert three.loss("received", 0, 3) == pytest.approx((2.75 - 2 * alpha_00) ** 2 / 2, abs=1e-6)
    assert three.loss("received", 1, 3) == pytest.approx((0.75 + 2 * alpha_11 - 4) ** 2 / 2, abs=1e-5)
    assert two.store.state_keys("client") == []


def test_pfedla_with_equal_weights_is_the_plain_mean(tmp_path: Path) -> None:
    """lr = 0 keeps alpha equal, and with clients of one size the plain mean is FedAvg's."""
    same = targets([0.0, 0.0], [4.0, 4.0])
    fedavg = play(tmp_path / "1", make("fedavg"), same, PRODUCT, lr=0.1, rounds=3)
    for name in (BODY, HEAD):
        ends = {}
        for lr in (0.0, 5.0):
            ends[lr] = play(tmp_path / f"{name}{lr}", make("pfedla", lr=lr), same, PRODUCT, lr=0.1, rounds=3)
        assert personal(ends[0.0], name) == pytest.approx(personal(fedavg, name), abs=1e-6)
        assert personal(ends[5.0], name) != pytest.approx(personal(fedavg, name), abs=1e-3)
    sized = play(tmp_path / "sized", make("fedavg"), targets(*HERE), rounds=3)
    plain = play(tmp_path / "plain", make("pfedla", lr=0.0), targets(*HERE), rounds=3)
    assert personal(plain) != pytest.approx(personal(sized), abs=1e-3)  # plain, not by data size


def test_pfedla_learns_along_the_vector_jacobian_product() -> None:
    """The step equals lr times the gradient of <mixture, change> by autograd through the whole mixture."""
    method: Any = make("pfedla", lr=0.3, embedding=5, hidden=4, depth=2)
    draw = torch.Generator().manual_seed(0)

    def model() -> Weights:
        return {n: torch.randn(1, 1, generator=draw) for n in (BODY, HEAD)}

    federation, before = targets([0.0], [0.0], [0.0]), {i: {"model": model()} for i in range(3)}
    blank: Any = server_of(method, federation, before, model=PRODUCT)
    network = {n: t + torch.randn(t.shape, generator=draw) for n, t in method._hypernetwork(blank, 1).items()}
    before[1]["hypernetwork"] = network
    server: Any = server_of(method, federation, before, model=PRODUCT)
    sent, after = method.prepare(server, [1])[1]["model"], model()
    method.finish(server, Replies({1: Payload({"model": after}, {"samples": 1})}, {}))
    learnt = server.memory.peek(1)["hypernetwork"]

    leaves = {n: t.clone().requires_grad_() for n, t in network.items()}
    hidden = leaves["v"]
    for depth in range(2):
        hidden = torch.relu(leaves[f"weight/{depth}"] @ hidden + leaves[f"bias/{depth}"])
    alpha = torch.softmax(leaves["weight"] @ hidden + leaves["bias"], 1)  # (layers, clients)
    along: Tensor = torch.zeros(())
    for layer, name in enumerate((BODY, HEAD)):
        mixture = sum(alpha[layer, j] * before[j]["model"][name] for j in range(3))
        torch.testing.assert_close(sent[name], mixture.detach())
        along = along + (mixture * (after[name] - sent[name])).sum()
    along.backward()
    for name, leaf in leaves.items():
        torch.testing.assert_close(learnt[name], network[name] + 0.3 * leaf.grad)
        assert not torch.equal(learnt[name], network[name])


def test_pfedla_with_all_layers_local_is_local_only(tmp_path: Path) -> None:
    local = play(tmp_path / "1", make("local"), targets(*HERE), PRODUCT, lr=0.1, rounds=3)
    kept_all = play(tmp_path / "2", make("pfedla", k=2), targets(*HERE), PRODUCT, lr=0.1, rounds=3)
    one = play(tmp_path / "3", make("pfedla", k=1), targets(*HERE), PRODUCT, lr=0.1, rounds=3)
    none = play(tmp_path / "4", make("pfedla"), targets(*HERE), PRODUCT, lr=0.1, rounds=3)
    assert personal(kept_all, BODY) == personal(local, BODY)
    assert personal(kept_all, HEAD) == personal(local, HEAD)
    assert len({tuple(personal(played, BODY)) for played in (kept_all, one, none)}) == 3
    bytes_down = [p.store.rows("SELECT bytes_down FROM rounds")[2]["bytes_down"] for p in (kept_all, one, none)]
    assert bytes_down == [0, 8, 16]  # two clients, four bytes a layer: local layers do not travel
    assert float(state(one, 0)["model"][HEAD]) == kept(one, 0, HEAD)


def test_heurpfedla_keeps_the_layer_in_which_the_own_weight_is_largest() -> None:
    method: Any = make("pfedla", k=1, depth=0)
    rows = {i: {"model": {BODY: torch.tensor([[1.0 + i]]), HEAD: torch.tensor([[2.0 + i]])}} for i in range(2)}
    network = method._hypernetwork(server_of(method, targets(*HERE), {}, model=PRODUCT), 0)
    network["bias"] = torch.tensor([[3.0, 0.0], [1.0, 0.0]])  # client 0 relies on itself most in its body
    rows[0]["hypernetwork"] = network
    server = server_of(method, targets(*HERE), rows, model=PRODUCT)
    payload = method.prepare(server, [0])[0]
    assert set(payload["model"]) == {HEAD}
    share = 1 / (1 + math.exp(-1.0))
    assert float(payload["model"][HEAD]) == pytest.approx(2 * share + 3 * (1 - share))
    assert float(server.state["sent"][0][BODY]) == 1.0
