"""Hand-derived values, identities and mechanisms of fedamp, fedfomo, pfedla, apple, ifca and cfl.

Two clients on the quadratic unless said otherwise: client 0 has one sample with target 0, client 1 three samples
with target 4. A full-batch step with learning rate 1/2 on (w - a)^2 / 2 moves w half of the way to a.
"""

import itertools
import math
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from problem import Played, play, targets
from torch import Tensor, nn
from torch.utils._python_dispatch import TorchDispatchMode

import fedtailor
from fedtailor.data import Federation
from fedtailor.errors import UserError
from fedtailor.learning import TrainingSettings
from fedtailor.learning.tensors import inputs_of, tensors
from fedtailor.messages.trees import pack, plain, unpack
from fedtailor.methods import Client, Memory, Method, Moment, Payload, Payloads, Replies, Server, find
from fedtailor.methods.cfl import Split
from fedtailor.models import ModelSettings, build
from fedtailor.weights import Weights

HERE = ([0.0], [4.0, 4.0, 4.0])
W = "0.weight"
BODY, HEAD = "0.weight", "1.weight"


def make(name: str, **settings: object) -> Method:
    return find(name)(**settings)


def kept(played: Played, client: int, name: str = W) -> float:
    """A scalar of the model that the server keeps of a client."""
    return float(played.loop.server.memory.peek(client)["model"][name])


def state(played: Played, client: int) -> dict[str, Any]:
    data = played.store.state("client", client)
    assert data is not None
    return dict(plain(unpack(data)["state"]))


def personal(played: Played, name: str = W) -> list[float]:
    return [played.personal(client, name) for client in range(played.loop.clients)]


def server_of(method: Method, federation: Federation, rows: dict[int, dict[str, Any]], **more: Any) -> Server:
    """A server with these rows in its memory; ``server.read`` lists the rows that were fetched."""
    settings = ModelSettings(name=more.pop("model", "problem:Scalar"))
    network = build(settings, inputs_of(federation.samples), 0)
    read: list[int] = []

    def fetch(client: int) -> bytes:
        read.append(client)
        return pack(rows[client])

    sizes = tuple(int(size) for size in federation.train.sizes)
    moment = Moment(0, round=more.pop("round", 2), rounds=10)
    memory = Memory(fetch, set(rows))
    server = Server(network, sizes, TrainingSettings(), moment, method.shared(network), memory, **more)
    method.start_server(server)
    server.read = read  # type: ignore[attr-defined]
    return server


def scalar(value: float, name: str = W) -> Weights:
    return {name: torch.tensor([[value]])}


def digits(method: Method, folder: Path, rounds: int = 3, **more: Any) -> fedtailor.Run:
    """A small run on real data with partial participation and drop-outs."""
    settings = {
        "rounds": rounds,
        "data": {"source": "digits", "clients": 6, "samples": 300, "partition": {"kind": "dirichlet", "alpha": 0.3}},
        "model": {"name": "mlp", "arguments": {"hidden": [16]}},
        "training": {"lr": 0.05, "momentum": 0.5, "batch_size": 16},
        "participation": {"ratio": 0.6, "dropout": 0.2},
        "engine": {"kind": "inline"},
        **more,
    }
    experiment = fedtailor.experiment({**settings, "method": {"name": "fedavg"}})
    return fedtailor.run(experiment.model_copy(update={"method": method}), folder=folder)


def scores(run: fedtailor.Run, model: str) -> list[tuple[int, int, float]]:
    query = "SELECT client, correct, loss FROM scores WHERE model = ? ORDER BY round, client"
    return [tuple(row.values()) for row in run._store.rows(query, [model])]


# What the server keeps


def test_a_row_is_read_once_in_a_round_unless_rows_are_large(monkeypatch: pytest.MonkeyPatch) -> None:
    rows = {client: {"model": scalar(float(client))} for client in range(3)}
    large = len(pack(rows[0]))
    for room, read in ((3 * large, [0, 1, 2]), (large, [0, 1, 2, 1, 2]), (0, [0, 1, 2, 0, 1, 2])):
        monkeypatch.setattr(Memory, "KEPT", room)
        server = server_of(make("fedamp"), targets([0.0], [1.0], [2.0]), rows)
        for _ in range(2):
            assert [float(server.memory.peek(client)["model"][W]) for client in server.memory] == [0.0, 1.0, 2.0]
        assert server.read == read  # type: ignore[attr-defined]


def test_a_row_is_read_anew_when_it_has_been_stored() -> None:
    rows = {0: {"model": scalar(1.0)}}
    server = server_of(make("fedamp"), targets([0.0], [1.0]), rows)
    server.memory.peek(0)
    server.memory[0]["model"] = scalar(2.0)
    assert float(server.memory.peek(0)["model"][W]) == 2.0
    rows[0] = {"model": scalar(3.0)}  # as if another value had been stored
    server.memory.settle()
    assert float(server.memory.peek(0)["model"][W]) == 3.0


# FedAMP

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


# FedFomo


def with_validation(federation: Federation) -> Federation:
    """Clients that validate on their training targets."""
    return replace(federation, val=federation.train)


def test_hand_fedfomo(tmp_path: Path) -> None:
    """Targets 2 and 4. Round 1, no peers: 1 -> 3/2 and 5/2; the model before was v = 1.

    Round 2, client 0: L(v) = 1/2; own (1/2 - 1/8) / (1/2) = 3/4, peer (1/2 - 1/8) / (3/2) = 1/4, so
    theta = 3/4 3/2 + 1/4 5/2 = 7/4, trained to 15/8.
    Client 1: L(v) = 9/2; own (9/2 - 9/8) / (3/2) = 9/4, peer (9/2 - 25/8) / (1/2) = 11/4; shares 0.45 and 0.55,
    theta = 1.95, trained to 2.975. The raw weights are the affinities.
    """
    played = play(tmp_path / "run", make("fedfomo", M=1), with_validation(targets([2.0], [4.0, 4.0, 4.0])))
    assert played.loss("received", 0, 2) == pytest.approx(0.25**2 / 2, abs=1e-6)
    assert played.loss("received", 1, 2) == pytest.approx(2.05**2 / 2, abs=1e-6)
    assert [kept(played, 0), kept(played, 1)] == pytest.approx([1.875, 2.975], abs=1e-6)
    memory = played.loop.server.memory
    assert memory.peek(0)["affinity"] == pytest.approx({0: 0.75, 1: 0.25}, abs=1e-6)
    assert memory.peek(1)["affinity"] == pytest.approx({0: 2.75, 1: 2.25}, abs=1e-6)
    assert float(state(played, 0)["before"][W]) == pytest.approx(1.75, abs=1e-6)
    assert float(state(played, 0)["model"][W]) == pytest.approx(1.875, abs=1e-6)
    assert set(state(played, 0)) == {"before", "model"}


def test_fedfomo_without_useful_peers_keeps_its_own_model(tmp_path: Path) -> None:
    """Targets 0 and 4: each moves away from the other, whose raw weight is negative.

    Round 2: client 0 sees (1/2 - 25/8) / (3/2) = -7/4, client 1 (9/2 - 49/8) / (1/2) = -13/4.
    """
    here = with_validation(targets(*HERE))
    local = play(tmp_path / "local", make("local"), here, rounds=3)
    fomo = play(tmp_path / "fomo", make("fedfomo"), here, rounds=2)
    assert fomo.loop.server.memory.peek(0)["affinity"][1] == pytest.approx(-1.75, abs=1e-6)
    assert fomo.loop.server.memory.peek(1)["affinity"][0] == pytest.approx(-3.25, abs=1e-6)
    assert personal(play(tmp_path / "three", make("fedfomo"), here, rounds=3)) == personal(local)
    assert personal(play(tmp_path / "alone", make("fedfomo", M=0), here, rounds=3)) == personal(local)
    blind = play(tmp_path / "blind", make("fedfomo"), targets([2.0], [4.0]), rounds=3)  # no validation data
    assert personal(blind) == personal(play(tmp_path / "seeing", make("local"), targets([2.0], [4.0]), rounds=3))
    both = with_validation(targets([2.0], [4.0]))
    assert personal(play(tmp_path / "useful", make("fedfomo"), both, rounds=3)) != personal(blind)


def test_fedfomo_sends_the_best_peers_and_explores_less_and_less() -> None:
    """Affinities 0, 1, ..., 8: exploiting sends the top three; no other model is read."""
    rows = {n: {"model": scalar(float(n)), "affinity": {m: float(m) for m in range(9)}} for n in range(10)}
    federation = targets(*[[0.0]] * 10)

    def peers(method: Method, **more: Any) -> set[str]:
        server = server_of(method, federation, rows, **more)
        prepared: Any = method.prepare(server, [9])
        assert {9, *server.read} == {9, *(int(group[5:]) for group in prepared[9].groups)}  # type: ignore[attr-defined]
        assert server.memory.loaded == {}
        return set(prepared[9].groups)

    best = {"peer/6", "peer/7", "peer/8"}
    assert peers(make("fedfomo", M=3, epsilon=0.0)) == best
    random = [peers(make("fedfomo", M=3, epsilon=1.0, decay=0.0), round=r) for r in range(1, 9)]
    assert all(len(one) == 3 for one in random)
    assert len({frozenset(one) for one in random}) > 4
    assert peers(make("fedfomo", M=3, epsilon=1.0, decay=0.0), greedy=True) == best
    assert peers(make("fedfomo", M=3, epsilon=0.3, decay=0.05), round=7) == best  # 0.3 - 6 * 0.05 = 0


def test_fedfomo_takes_unknown_peers_in_random_order() -> None:
    rows = {n: {"model": scalar(float(n))} for n in range(10)}
    method = make("fedfomo", M=3, epsilon=0.0)
    prepared: Any = method.prepare(server_of(method, targets(*[[0.0]] * 10), rows), range(10))
    assert len({group for payload in prepared.values() for group in payload.groups}) > 5


# pFedLA


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
    fedavg = play(tmp_path / "1", make("fedavg"), same, "problem:Product", lr=0.1, rounds=3)
    for name in (BODY, HEAD):
        ends = {}
        for lr in (0.0, 5.0):
            ends[lr] = play(tmp_path / f"{name}{lr}", make("pfedla", lr=lr), same, "problem:Product", lr=0.1, rounds=3)
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
    blank: Any = server_of(method, federation, before, model="problem:Product")
    network = {n: t + torch.randn(t.shape, generator=draw) for n, t in method._hypernetwork(blank, 1).items()}
    before[1]["hypernetwork"] = network
    server: Any = server_of(method, federation, before, model="problem:Product")
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
    local = play(tmp_path / "1", make("local"), targets(*HERE), "problem:Product", lr=0.1, rounds=3)
    kept_all = play(tmp_path / "2", make("pfedla", k=2), targets(*HERE), "problem:Product", lr=0.1, rounds=3)
    one = play(tmp_path / "3", make("pfedla", k=1), targets(*HERE), "problem:Product", lr=0.1, rounds=3)
    none = play(tmp_path / "4", make("pfedla"), targets(*HERE), "problem:Product", lr=0.1, rounds=3)
    assert personal(kept_all, BODY) == personal(local, BODY)
    assert personal(kept_all, HEAD) == personal(local, HEAD)
    assert len({tuple(personal(played, BODY)) for played in (kept_all, one, none)}) == 3
    bytes_down = [p.store.rows("SELECT bytes_down FROM rounds")[2]["bytes_down"] for p in (kept_all, one, none)]
    assert bytes_down == [0, 8, 16]  # two clients, four bytes a layer: local layers do not travel
    assert float(state(one, 0)["model"][HEAD]) == kept(one, 0, HEAD)


def test_heurpfedla_keeps_the_layer_in_which_the_own_weight_is_largest() -> None:
    method: Any = make("pfedla", k=1, depth=0)
    rows = {i: {"model": {BODY: torch.tensor([[1.0 + i]]), HEAD: torch.tensor([[2.0 + i]])}} for i in range(2)}
    network = method._hypernetwork(server_of(method, targets(*HERE), {}, model="problem:Product"), 0)
    network["bias"] = torch.tensor([[3.0, 0.0], [1.0, 0.0]])  # client 0 relies on itself most in its body
    rows[0]["hypernetwork"] = network
    server = server_of(method, targets(*HERE), rows, model="problem:Product")
    payload = method.prepare(server, [0])[0]
    assert set(payload["model"]) == {HEAD}
    share = 1 / (1 + math.exp(-1.0))
    assert float(payload["model"][HEAD]) == pytest.approx(2 * share + 3 * (1 - share))
    assert float(server.state["sent"][0][BODY]) == 1.0


# APPLE


def test_hand_apple(tmp_path: Path) -> None:
    """p0 = (1/4, 3/4), mu = 1, relation_lr = 1/10, L = all rounds, so lambda = 1 and 1/2 (cosine and linear alike).

    Round 1: cores 1, personal 1. Client 0: g = 1, core 1 - 1/2 1/4 = 0.875, p = (0.15, 0.65).
    Client 1: g = -3, core 1 + 1/2 3/4 3 = 2.125, p = (0.55, 1.05).
    Round 2, client 0: personal 0.15 0.875 + 0.65 2.125 = 1.5125 = g; core 0.875 - 1/2 0.15 g = 0.7615625;
    dp = (0.875 g + (0.15 - 0.25)/2, 2.125 g + (0.65 - 0.75)/2) = (1.2734375, 3.1640625), p = (0.02265625, 0.33359375).
    Client 1: personal 0.55 0.875 + 1.05 2.125 = 2.7125, g = -1.2875; core 2.125 + 1/2 1.05 1.2875 = 2.8009375;
    dp = (0.875 g + 0.3/2, 2.125 g + 0.3/2) = (-0.9765625, -2.5859375), p = (0.64765625, 1.30859375).
    """
    for schedule in ("cosine", "linear"):
        method = make("apple", mu=1.0, relation_lr=0.1, L=1.0, schedule=schedule)
        played = play(tmp_path / schedule, method, targets(*HERE))
        assert played.loss("received", 0, 2) == pytest.approx(1.5125**2 / 2, abs=1e-6)
        assert played.loss("received", 1, 2) == pytest.approx(1.2875**2 / 2, abs=1e-6)
        assert [kept(played, 0), kept(played, 1)] == pytest.approx([0.7615625, 2.8009375], abs=1e-6)
        assert state(played, 0)["relations"]["relation"].tolist() == pytest.approx([0.02265625, 0.33359375], abs=1e-6)
        assert state(played, 1)["relations"]["relation"].tolist() == pytest.approx([0.64765625, 1.30859375], abs=1e-6)
        # held: the core model as just trained, the other's as downloaded
        held = 0.02265625 * 0.7615625 + 0.33359375 * 2.125
        assert played.loss("held", 0, 2) == pytest.approx(held**2 / 2, abs=1e-6)
        assert state(played, 0)["relations"]["peers"] == {}


def test_apple_pull_of_the_relation_falls_to_zero() -> None:
    for schedule, middle in (("cosine", (1 + math.cos(0.25 * math.pi)) / 2), ("linear", 0.75)):
        method: Any = make("apple", schedule=schedule, L=0.4)

        class At:
            rounds = 10

            def __init__(self, round: int) -> None:
                self.round = round

        values = [method._lambda(At(round)) for round in (1, 2, 5, 9, 11)]
        assert values == pytest.approx([1.0, middle, 0.0, 0.0, 0.0])


class Alone(find("apple")):  # type: ignore[misc]
    """APPLE that starts with all weight on itself."""

    def _first_relation(self, client: Client, shares: Tensor) -> Tensor:
        return torch.eye(len(shares))[client.id]


def test_apple_on_itself_without_relation_learning_is_local_only(tmp_path: Path) -> None:
    with (
        digits(make("local"), tmp_path / "local") as local,
        digits(Alone(relation_lr=0.0), tmp_path / "alone") as alone,
        digits(Alone(relation_lr=0.01), tmp_path / "learns") as learns,
    ):
        for model in ("held", "final"):
            assert scores(local, model) == scores(alone, model) != scores(learns, model)


def test_apple_with_one_client_is_local_only(tmp_path: Path) -> None:
    local = play(tmp_path / "1", make("local"), targets([4.0]), rounds=3)
    apple = play(tmp_path / "2", make("apple", relation_lr=0.0), targets([4.0]), rounds=3)
    assert personal(apple) == personal(local)


@pytest.mark.parametrize("model", ["mlp", "digits-cnn"])
def test_apple_gradients_are_those_of_the_mixture(model: str, tmp_path: Path) -> None:
    """One full-batch step of a real network against autograd through sum_j p_j w_j."""
    apple = make("apple", mu=0.0, relation_lr=0.2)
    training = {"lr": 0.1, "batch_size": 1000, "epochs": 1}
    more = {"model": {"name": model}, "training": training, "participation": {}}
    digits(apple, tmp_path / "one", rounds=1, **more).close()
    with digits(apple, tmp_path / "two", rounds=2, **more) as run, fedtailor.Run(tmp_path / "one") as first:
        before, after = (plain(unpack(r._store.state("client", 2)))["state"]["relations"] for r in (first, run))
        cores = [unpack(first._store.state("memory", j))["model"] for j in range(6)]
        federation = run.federation()
        module = build(run.experiment.model, inputs_of(federation.samples), 0).module
        x, y = tensors(federation.samples, federation.train[2], "cpu")
    p = before["relation"].clone().requires_grad_()
    own = {n: t.clone().requires_grad_() for n, t in cores[2].items()}
    cores[2] = own
    mixture = {n: sum(p[j] * cores[j][n] for j in range(6)) for n in own}
    nn.functional.cross_entropy(torch.func.functional_call(module, mixture, (x,)), y).backward()
    torch.testing.assert_close(after["relation"], (p - 0.2 * p.grad).detach())
    for name, core in own.items():
        torch.testing.assert_close(after["core"][name], (core - 0.1 * core.grad).detach())


class Products(TorchDispatchMode):
    """Counts the entries of the matrices that are multiplied by vectors."""

    entries = 0

    def __torch_dispatch__(self, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if function.overloadpacket is torch.ops.aten.mv:
            self.entries += args[0].numel()
        return function(*args, **(kwargs or {}))


def test_the_arithmetic_that_apple_declares_is_that_which_it_does(tmp_path: Path) -> None:
    """Two products with all models in every step; a client also mixes when it receives."""
    with Products() as counted:
        run = digits(
            make("apple"), tmp_path / "run", rounds=2, participation={}, evaluation={"every": 0, "final": False}
        )
    with run:
        size = build(run.experiment.model, inputs_of(run.federation().samples), 0).size
        steps = {r: run._store.rows(f"SELECT SUM(steps) AS n FROM tasks WHERE round = {r}")[0]["n"] for r in (1, 2)}
    first = 2 * (2 * steps[1] + 6)  # only its own and the initial model are known
    second = 6 * (2 * steps[2] + 6)
    assert counted.entries == size * (first + second)
    own = steps[2]  # p_ii g
    assert make("apple").arithmetic(steps[2], clients=6) == 6 * 2 * steps[2] + own


def test_apple_downloads_m_core_models_and_keeps_the_others(tmp_path: Path) -> None:
    """Four clients, M = 1: in rounds 2, 3 and 4 a client downloads each of the three others once."""
    here = targets([0.0], [1.0], [2.0], [3.0])
    seen: dict[int, set[int]] = {}
    for rounds in (2, 3, 4):
        played = play(tmp_path / str(rounds), make("apple", M=1, relation_lr=0.01), here, rounds=rounds)
        row = played.store.rows("SELECT bytes_down FROM rounds")[rounds - 1]
        assert row["bytes_down"] == 4 * (4 + 4 * 8)  # a core model of one float, four sizes
        seen[rounds] = set(state(played, 0)["relations"]["peers"])
    assert [len(seen[rounds]) for rounds in (2, 3, 4)] == [1, 2, 3]
    assert seen[2] < seen[3] < seen[4] == {1, 2, 3}


def test_apple_learning_the_relation_changes_the_model(tmp_path: Path) -> None:
    fixed = play(tmp_path / "1", make("apple", relation_lr=0.0), targets(*HERE), rounds=3)
    learnt = play(tmp_path / "2", make("apple", relation_lr=0.1), targets(*HERE), rounds=3)
    assert personal(fixed) != pytest.approx(personal(learnt), abs=1e-3)
    assert make("apple", relation_lr=0.0).inert()


# IFCA


class Planted(find("ifca")):  # type: ignore[misc]
    """IFCA whose second cluster starts at 3."""

    def start_server(self, server: Server) -> None:
        super().start_server(server)
        server.state["clusters"][1] = scalar(3.0)


def test_hand_ifca(tmp_path: Path) -> None:
    """Clusters 1 and 3. Client 0 (target 0) is nearer to 1, client 1 (target 4) to 3.

    Round 1: 1 -> 1/2 and 3 -> 7/2; round 2: 1/4 and 15/4; the final pass: 1/8 and 31/8.
    """
    played = play(tmp_path / "run", Planted(), targets(*HERE))
    clusters = [float(model[W]) for model in played.loop.server.state["clusters"]]
    assert clusters == pytest.approx([0.25, 3.75], abs=1e-6)
    assert played.loop.server.state["chosen"] == {0: 0, 1: 1}
    assert [state(played, 0), state(played, 1)] == [{"cluster": 0}, {"cluster": 1}]
    assert personal(played) == pytest.approx([0.125, 3.875], abs=1e-6)
    assert played.loss("received", 1, 2) == pytest.approx(0.5**2 / 2, abs=1e-6)
    assert played.loss("cluster/0", 1, 2) == pytest.approx(3.75**2 / 2, abs=1e-6)
    row = played.store.rows("SELECT bytes_down, bytes_up FROM rounds")[0]
    assert row == {"bytes_down": 2 * 2 * 4, "bytes_up": 2 * (4 + 2 * 8)}  # two models down, one and two numbers up


def test_ifca_with_one_cluster_is_fedavg_to_the_bit(tmp_path: Path) -> None:
    with digits(make("fedavg"), tmp_path / "1") as fedavg, digits(make("ifca", k=1), tmp_path / "2") as one:
        for model in ("held", "final"):
            assert scores(fedavg, model) == scores(one, model)
        assert scores(fedavg, "global") == scores(one, "cluster/0")
    with digits(make("ifca", k=2), tmp_path / "3") as two, fedtailor.Run(tmp_path / "1") as fedavg:
        assert scores(two, "final") != scores(fedavg, "final")
    assert make("ifca", k=1).inert()


def test_ifca_recovers_two_planted_clusters(tmp_path: Path) -> None:
    """Cluster 0 starts at 1, cluster 1 somewhere in (-1, 1): targets near -5 fit it better, those near 5 the first."""
    here = targets([5.0], [-5.0], [5.5, 5.5], [-5.5], [4.5])
    played = play(tmp_path / "run", make("ifca"), here, rounds=12)
    assert played.loop.server.state["chosen"] == {0: 0, 1: 1, 2: 0, 3: 1, 4: 0}
    clusters = [float(model[W]) for model in played.loop.server.state["clusters"]]
    assert clusters == pytest.approx([(5 + 2 * 5.5 + 4.5) / 4, -5.25], abs=0.01)
    assert set(played.loop.method.models(played.loop.server)) == {"cluster/0", "cluster/1"}


def test_ifca_clusters_start_apart_and_the_first_from_the_initial_model() -> None:
    method = make("ifca", k=3)
    server = server_of(method, targets(*HERE), {}, model="mlp")
    first, second, third = server.state["clusters"]
    assert all(torch.equal(first[name], server.initial[name]) for name in first)
    assert not any(torch.equal(second[name], third[name]) or torch.equal(first[name], second[name]) for name in first)
    again = server_of(method, targets(*HERE), {}, model="mlp").state["clusters"][1]
    assert all(torch.equal(second[name], again[name]) for name in second)


class Bare(nn.Module):
    """A module without layers that torch could initialise again."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = _Scale()

    def forward(self, x: Tensor) -> Tensor:
        return self.layer(x)  # type: ignore[no-any-return]


class _Scale(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(1))

    def forward(self, x: Tensor) -> Tensor:
        return x * self.weight


def test_ifca_refuses_clusters_that_would_start_equal() -> None:
    network = build(ModelSettings(name="test_peer_methods:Bare", head=("layer",)), inputs_of(targets([0.0]).samples), 0)
    memory = Memory(lambda client: None, set())
    server = Server(network, (1,), TrainingSettings(), Moment(0), frozenset(network.names), memory)
    with pytest.raises(UserError, match="reset_parameters"):
        make("ifca").start_server(server)


def test_ifca_leaves_a_cluster_that_nobody_chose(tmp_path: Path) -> None:
    played = play(tmp_path / "run", Planted(), targets([0.0], [0.5]))
    assert float(played.loop.server.state["clusters"][1][W]) == 3.0


# Clustered FL


def test_hand_cfl(tmp_path: Path) -> None:
    """Round 1 from 1: updates -1/2 and 3/2, their mean by size 1 is not below eps1 = 0.9; w = 2.

    Round 2: updates -1 and 1, mean 1/2 < 0.9 and 1 > eps2 = 0.5: split, cosine -1; the clusters are 1 and 3.
    Final: 1/2 and 7/2.
    """
    method = make("cfl", eps1=0.9, eps2=0.5)
    one = play(tmp_path / "1", method, targets(*HERE), rounds=1)
    two = play(tmp_path / "2", method, targets(*HERE), rounds=2)
    assert [float(model[W]) for model in one.loop.server.state["clusters"].models] == pytest.approx([2.0], abs=1e-6)
    assert one.loop.server.state["clusters"].splits == []
    server = two.loop.server
    assert [float(model[W]) for model in server.state["clusters"].models] == pytest.approx([1.0, 3.0], abs=1e-6)
    assert server.state["clusters"].member == {0: 0, 1: 1}
    (split,) = server.state["clusters"].splits
    assert split == Split(2, 0, [[0], [1]], absent=[], similarity=pytest.approx(-1))
    assert server.state["clusters"].longest == pytest.approx(1.0, abs=1e-6)
    assert personal(two) == pytest.approx([0.5, 3.5], abs=1e-6)
    assert two.loss("cluster/1", 0, 2) == pytest.approx(3.0**2 / 2, abs=1e-6)
    assert two.store.state_keys("client") == []


def test_cfl_before_any_split_is_fedavg_to_the_bit(tmp_path: Path) -> None:
    with digits(make("fedavg"), tmp_path / "1") as fedavg, digits(make("cfl", eps1=0.0), tmp_path / "2") as never:
        for model in ("held", "final"):
            assert scores(fedavg, model) == scores(never, model)
        assert scores(fedavg, "global") == scores(never, "cluster/0")
    splits = make("cfl", eps1=1e6, eps2=0.0, quorum=0.1)
    with digits(splits, tmp_path / "3") as run, fedtailor.Run(tmp_path / "1") as fedavg:
        assert scores(run, "final") != scores(fedavg, "final")
    assert make("cfl", eps1=0.0).inert()


@pytest.mark.parametrize("settings", [{"eps1": 0.9, "eps2": 0.5}, {"eps1": 0.6, "eps2": 0.2, "relative": True}])
@pytest.mark.parametrize("linkage", ["complete", "single"])
def test_cfl_splits_planted_groups_exactly(settings: dict[str, Any], linkage: str, tmp_path: Path) -> None:
    here = targets([0.0], [4.0], [0.1], [4.1], [3.9], [-0.1])
    played = play(tmp_path / "run", make("cfl", linkage=linkage, **settings), here, rounds=12)
    splits = played.loop.server.state["clusters"].splits
    assert [split.groups for split in splits][:1] == [[[0, 2, 5], [1, 3, 4]]]
    clusters = [float(model[W]) for model in played.loop.server.state["clusters"].models]
    if len(splits) == 1:
        assert clusters == pytest.approx([0.0, 4.0], abs=0.01)


def test_cfl_does_not_split_what_belongs_together(tmp_path: Path) -> None:
    """All targets 2: the updates shrink together, so when the mean is small none is large."""
    played = play(tmp_path / "run", make("cfl", eps1=0.9, eps2=0.9), targets([2.0], [2.0], [2.0]), rounds=4)
    assert played.loop.server.state["clusters"].splits == []
    strict = play(tmp_path / "strict", make("cfl", eps1=0.9, eps2=0.5, gamma=1.0), targets(*HERE), rounds=4)
    assert strict.loop.server.state["clusters"].splits == []  # sqrt((1 + 1) / 2) = 1 is not more than gamma = 1


def test_cfl_relative_bounds_do_not_depend_on_the_scale(tmp_path: Path) -> None:
    """Targets a hundred times as far from the start split in the same round by relative bounds only."""
    near, far = targets([0.0], [3.0]), targets([-99.0], [201.0])  # 1 - 1, 1 + 2 and 1 - 100, 1 + 200
    splits = {}
    for relative in (False, True):
        for name, here in (("near", near), ("far", far)):
            method = make("cfl", eps1=0.4, eps2=0.6, relative=relative)
            played = play(tmp_path / f"{name}{relative}", method, here, rounds=4)
            splits[name, relative] = [split.round for split in played.loop.server.state["clusters"].splits]
    assert splits["near", True] == splits["far", True] != []
    assert splits["near", False] != splits["far", False]


def angles(*degrees: float) -> Any:
    points = np.stack([np.cos(np.radians(degrees)), np.sin(np.radians(degrees))], 1)
    return points @ points.T


def test_cfl_bipartition_takes_distances_not_observations() -> None:
    """Single linkage is the bipartition of smallest largest similarity across; complete linkage is scipy's own
    on the distances, and both give two groups even when all are alike.
    """
    complete: Any = make("cfl")
    single: Any = make("cfl", linkage="single")
    chain = angles(0, 40, 80, 120, 175)  # gaps 40, 40, 40, 55
    assert single._bipartition(chain) == [[0, 1, 2, 3], [4]]
    assert complete._bipartition(chain) == [[0, 1], [2, 3, 4]]
    draw = np.random.RandomState(0)
    for _ in range(20):
        similar = angles(*draw.uniform(0, 360, 6))
        across = {}
        for size in (1, 2, 3):
            for some in itertools.combinations(range(6), size):
                rest = [k for k in range(6) if k not in some]
                across[some] = similar[np.ix_(some, rest)].max()
        one, other = single._bipartition(similar)
        assert similar[np.ix_(one, other)].max() == pytest.approx(min(across.values()))
    alike = np.ones((4, 4))
    assert [len(side) > 0 for side in complete._bipartition(alike)] == [True, True]


def test_cfl_absent_members_choose_their_cluster_by_training_loss(tmp_path: Path) -> None:
    """Client 2 was absent when its cluster split: it receives both models, trains the better one and joins."""
    method: Any = make("cfl", eps1=10.0, eps2=0.1, quorum=0.6)
    server = server_of(method, targets([0.0], [4.0], [4.0]), {})

    def reply(value: float, **more: float) -> Payload:
        return Payload({"model": scalar(value)}, {"samples": 1, **more})

    strict: Any = make("cfl", eps1=10.0, eps2=0.1)
    waiting = server_of(strict, targets([0.0], [4.0], [4.0]), {})
    strict.finish(waiting, Replies({0: reply(0.5), 1: reply(2.5)}, {2: "dropped out"}))
    assert waiting.state["clusters"].splits == []  # quorum = 1: not all have answered

    method.finish(server, Replies({0: reply(0.5), 1: reply(2.5)}, {2: "dropped out"}))
    assert server.state["clusters"].member == {0: 0, 1: 1}
    assert server.state["clusters"].splits[0].absent == [2]
    payloads = method.prepare(server, [0, 2])
    assert set(payloads[0].groups) == {"model"}
    assert set(payloads[2].groups) == {"cluster/0", "cluster/1"}
    method.finish(server, Replies({2: reply(3.0, cluster=1)}, {}))
    assert server.state["clusters"].member == {0: 0, 1: 1, 2: 1}
    assert float(server.state["clusters"].models[1][W]) == 3.0
    with digits(make("cfl", eps1=1e6, eps2=0.0, quorum=0.3), tmp_path / "run", rounds=6) as run:
        clusters = run.server_state()["clusters"]
        splits, member = clusters["splits"], clusters["member"]
        assert any(split["absent"] for split in splits)
        assert len(member) > len(splits[0]["groups"][0]) + len(splits[0]["groups"][1])


# All of them


@pytest.mark.parametrize("name", ["fedamp", "fedfomo", "pfedla", "apple"])
def test_the_server_keeps_one_row_for_each_client_that_trained(name: str, tmp_path: Path) -> None:
    with digits(make(name), tmp_path / "run", rounds=4) as run:
        trained = {row["client"] for row in run._store.rows("SELECT client FROM tasks WHERE steps > 0")}
        assert {int(key) for key in run._store.state_keys("memory")} == trained
        assert set(run._store.state_keys("server")) == {"model"}


@pytest.mark.parametrize("name", ["fedamp", "pfedla", "apple", "fedfomo"])
def test_preparing_reads_rows_and_keeps_none(name: str) -> None:
    """Evaluation and the final pass look at rows in the same way: what is not changed is not kept."""
    method = make(name)
    rows = {i: {"model": scalar(float(i))} for i in range(5)}
    server = server_of(method, targets(*[[0.0]] * 5), rows)
    method.prepare(server, [1, 2])
    method.prepare(server.preview(method.start_server), [0, 3])
    assert server.memory.loaded == {}
    method.finish(server, Replies({1: reply_of(name, 7.0)}, {2: "dropped out"}))
    assert set(server.memory.loaded) == {1}
    assert float(server.memory[1]["model"][W]) == 7.0


def reply_of(name: str, value: float) -> Payload:
    lists: dict[str, Any] = {"fedfomo": {"peers": [], "weights": []}, "apple": {"peers": []}}
    return Payload({"model": scalar(value)}, {"samples": 1, **lists.get(name, {})})


@pytest.mark.parametrize("name", ["fedamp", "fedfomo", "pfedla", "apple"])
def test_a_client_that_joins_late_profits_from_the_others(name: str, tmp_path: Path) -> None:
    """Nobody has seen client 2 before: after one training it is nearer to its target than in the first round."""
    settings: dict[str, dict[str, Any]] = {"fedamp": {"sigma": 100.0, "alpha": 50.0}}
    method = make(name, **settings.get(name, {}))
    here = with_validation(targets([4.0], [4.0], [4.0]))
    played = play(tmp_path / "run", method, here, rounds=3)
    server = played.loop.server
    server.memory._known.discard(2)
    played.loop.tasks.stateful.discard(2)
    late = played.personal(2, W)
    assert abs(late - 4) < math.sqrt(2 * played.loss("held", 2, 1)) - 0.1


@pytest.mark.parametrize("name", ["fedamp", "fedfomo", "pfedla", "apple", "ifca", "cfl"])
def test_switching_the_idea_off_changes_the_numbers(name: str, tmp_path: Path) -> None:
    """On digits, against the same method with its idea switched off."""
    on: dict[str, dict[str, Any]] = {
        "fedamp": {"attention": "cosine"},
        "pfedla": {"lr": 1.0},
        "apple": {"relation_lr": 0.01},
        "cfl": {"eps1": 1e6, "eps2": 0.0, "quorum": 0.3},
    }
    off: dict[str, dict[str, Any]] = {
        "fedamp": {"sigma": 1e-9},
        "fedfomo": {"M": 0},
        "pfedla": {"lr": 0.0},
        "apple": {"relation_lr": 0.0},
        "ifca": {"k": 1},
        "cfl": {"eps1": 0.0},
    }
    with (
        digits(make(name, **on.get(name, {})), tmp_path / "on", rounds=5) as one,
        digits(make(name, **off[name]), tmp_path / "off", rounds=5) as other,
    ):
        assert scores(one, "final") != scores(other, "final")
