"""Hand-derived values, identities and mechanisms of FedALA."""

from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

from fedtailor.methods import fedala, find
from fedtailor.methods.mixing import learn_mix
from fedtailor.models import Network
from tests.support.bench import RESNET, Bench
from tests.support.problem import HERE, W, ends, make, near, on_product, play, targets


class Headless(nn.Sequential):
    """f(x) = c b a x in three layers, from a = b = 1 and c = 2."""

    def __init__(self) -> None:
        super().__init__(*(nn.Linear(1, 1, bias=False) for _ in range(3)))
        for layer, value in zip(self, (1.0, 1.0, 2.0), strict=True):
            layer.weight.data.fill_(value)


def test_hand_fedala(tmp_path: Path) -> None:
    """f = w at x = 1, lr 1/2, eta 1/6, two epochs in the first learning of W, one afterwards.

    Round 1: nothing of its own, so w = 1 -> 0.5 and 2.5; global 2.
    Round 2: gaps g - l = 1.5, -0.5. Client 0: W = 1, mix 2, dW = 2 * 1.5 = 3: W = 0.5, mix 1.25, dW = 1.875:
    W = 0.1875, mix 0.78125, trained 0.390625. Client 1: mix 2, dW = -2 * -0.5 = 1: W = 5/6, mix 2.08333333,
    dW = 0.95833333: W = 0.67361111, mix 2.16319444, trained 3.08159722. Global 2.40885417.
    Final: client 0: gap 2.01822917, mix 0.76904297, dW = 1.55210493: W = 0.1875 - 0.25868415 is clipped to 0, so it
    starts from its own 0.390625 and ends at 0.1953125. Client 1: gap -0.67274306, mix 2.62842882,
    dW = 0.92271498: W = 0.51982542, mix 2.73188828, trained 3.36594414.
    """
    method = make("fedala", eta=1 / 6, cap=2)
    one = play(tmp_path / "1", method, targets(*HERE), rounds=1)
    two = play(tmp_path / "2", method, targets(*HERE))
    assert [one.server(W), two.server(W)] == near(2.0, 2.40885417)
    states = [two.state(client) for client in (0, 1)]
    assert [float(state["mix"][W]) for state in states] == near(0.1875, 0.67361111)
    assert [float(state["local"][W]) for state in states] == near(0.390625, 3.08159722)
    assert two.loss("received", 0, 2) == pytest.approx(0.78125**2 / 2, abs=1e-6)
    assert two.loss("received", 1, 2) == pytest.approx((4 - 2.16319444) ** 2 / 2, abs=1e-6)
    assert [two.personal(0, W), two.personal(1, W)] == near(0.1953125, 3.36594414)


def test_fedala_with_weights_that_stay_at_one_is_fedavg(tmp_path: Path) -> None:
    fedavg = on_product(tmp_path / "1", make("fedavg"), rounds=3)
    assert ends(on_product(tmp_path / "2", make("fedala", eta=0.0), rounds=3)) == ends(fedavg)
    assert ends(on_product(tmp_path / "3", make("fedala", eta=0.1), rounds=3)) != ends(fedavg)
    assert "FedAvg" in (make("fedala", eta=0.0).inert() or "")


@pytest.mark.parametrize(("layers", "mixed"), [(1, {"2.weight"}), (2, {"1.weight", "2.weight"}), ("all", None)])
def test_fedala_mixes_the_top_layers_and_overwrites_those_below(
    layers: int | str, mixed: set[str] | None, tmp_path: Path
) -> None:
    played = play(
        tmp_path / "run", make("fedala", layers=layers), targets(*HERE), "tests.methods.test_fedala:Headless", lr=0.05
    )
    state = played.state(0)
    assert state["mix"].keys() == state["local"].keys() == (mixed or {"0.weight", "1.weight", "2.weight"})


def test_the_first_learning_of_the_mix_goes_on_until_the_loss_settles_but_not_beyond_the_cap() -> None:
    """Eleven epochs at a loss that does not vary, one in the rounds after that."""
    steps = []
    for settings in ({"threshold": 1e9}, {"threshold": 1e9, "cap": 4}, {"threshold": 0.0, "cap": 25}):
        bench = Bench(make("fedala", **settings), batch_size=1000)
        steps += [bench.round(0, round, bench.moved()).trace.steps for round in (1, 2, 3)]
    assert steps == [1, 12, 2, 1, 5, 2, 1, 26, 2]


def test_fedala_mixes_a_head_over_features_computed_once(monkeypatch: pytest.MonkeyPatch) -> None:
    bench = Bench(make("fedala", layers=1, cap=30, threshold=0.0))
    bench.round(0)
    calls: list[int] = []
    original = Network.features
    monkeypatch.setattr(Network, "features", lambda self, x: (calls.append(len(x)), original(self, x))[1])
    bench.round(0, 2, bench.moved())
    samples = len(bench.worker._tensors(0, "train")[1])
    assert calls == [round(0.8 * samples)]


def test_the_mix_is_learned_on_a_random_share_of_the_data_drawn_anew_in_every_round(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    drawn: list[list[int]] = []

    def watched(*args: Any, rows: torch.Tensor, **settings: Any) -> Any:
        drawn.append(rows.tolist())
        return learn_mix(*args, rows=rows, **settings)

    monkeypatch.setattr("fedtailor.methods.fedala.learn_mix", watched)
    bench = Bench(make("fedala", share=0.5, cap=1))
    for number in (1, 2, 3):
        bench.round(0, number, bench.moved())
    first, second = drawn
    rows = round(0.5 * len(bench.worker._tensors(0, "train")[1]))
    assert len(first) == len(second) == len(set(first)) == rows
    assert set(first) != set(second)
    assert max(first) >= len(first)  # not the first rows
    assert max(second) >= len(second)


@pytest.mark.parametrize("layers", [1, "all"])
def test_learning_the_mix_leaves_all_but_the_mixed_parameters_as_received(layers: int | str) -> None:
    """Running statistics included: they are the global model's although the passes normalise by batches."""
    bench = Bench(make("fedala", layers=layers), RESNET)
    bench.round(0)
    shared, received = bench.moved(), {}

    class Watching(find("fedala")):  # type: ignore[misc]
        def fit(self, client: Any) -> None:
            received.update(client.received)

    bench.worker.method = Watching(layers=layers)
    bench.round(0, 2, shared)
    mixed = set(bench.network.parameters()) if layers == "all" else {"fc1.weight", "fc1.bias"}
    changed = {name for name in shared if not torch.equal(received[name], shared[name])}
    assert changed
    assert changed <= mixed


def test_fedalas_mix_depends_on_the_client_alone_whoever_used_the_worker_before() -> None:
    """A library keeps weights and local model on the worker: a client's start depended on who ran before it."""
    fresh, used = Bench(make("fedala", cap=3)), Bench(make("fedala", cap=3))
    for other in (0, 1, 3):
        used.round(other)
        used.round(other, 2, used.moved())
    one, two = ([bench.round(2), bench.round(2, 2, bench.moved())] for bench in (fresh, used))
    for first, second in zip(one, two, strict=True):
        assert (first.reply, first.state, first.scores) == (second.reply, second.state, second.scores)


def test_at_least_one_sample_is_used_for_the_mix(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A twentieth of ten samples rounds to none, and a half is five; a client with one sample always uses it."""
    used: list[int] = []

    def learned(*arguments: Any, rows: torch.Tensor, **options: Any) -> Any:
        used.append(len(rows))
        return learn_mix(*arguments, rows=rows, **options)

    monkeypatch.setattr(fedala, "learn_mix", learned)
    for share, expected in ((0.05, {1}), (0.5, {1, 5})):
        used.clear()
        play(tmp_path / str(share), make("fedala", share=share, cap=1), targets([0.0], [4.0] * 10))
        assert set(used) == expected
