"""Hand-derived values, identities and mechanisms of FedAH."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import fedtailor
from fedtailor.engines import Result
from fedtailor.learning import FeatureCache, features, loop
from fedtailor.messages.trees import unpack
from fedtailor.methods import Client, Payload, find
from fedtailor.models import ModelSettings, Network
from tests.support.bench import RESNET, Bench
from tests.support.problem import BODY, HEAD, HERE, ends, everything, make, near, on_product, play, targets

TWO_LAYERS = ModelSettings(name="mlp", head="linear", arguments={"hidden": [16, 16]})
NORMALISED_HEAD = ModelSettings(
    name="tests.support.problem:Normalised", head=("1", "5")
)  # batch normalisation and linear layer
FIXED = {"eta": 0.0}  # the mixing weights stay where they start


class Dropping(nn.Sequential):
    """A network whose body drops features at random."""

    def __init__(self, classes: int) -> None:
        super().__init__(nn.Flatten(), nn.Linear(64, 16), nn.ReLU(), nn.Dropout(0.5), nn.Linear(16, classes))


def seen(bench: Bench, client: int, round: int, weights: dict[str, Tensor]) -> dict[str, Tensor]:
    """The whole model that a client has received, after mixing, in a round that it takes."""
    received: dict[str, Tensor] = {}

    class Watching(type(bench.worker.method)):  # type: ignore[misc]
        def fit(self, client: Client) -> None:
            received.update(client.received)
            super().fit(client)

    method = bench.worker.method
    bench.worker.method = Watching(**method.model_dump())
    bench.round(client, round, weights)
    bench.worker.method = method
    return received


def state(result: Result) -> Any:
    return unpack(result.state or b"")["state"]


def test_hand_fedah(tmp_path: Path) -> None:
    """Weight learning rate 1/2, one epoch each on W, head and body; g = r b (h - h_i) is the gradient of W at the mix.

    Round 1: own and global head are the initial 2, so W = 1 stays. r = 2, -2: h = 1.8, 2.2; then r = 1.8, -1.8:
    b = 1 - 0.324 = 0.676, 1 + 0.396 = 1.396. Global b = 1.216, h = 0.45 + 1.65 = 2.1.
    Round 2: gaps h - h_i = 0.3, -0.1; mix 2.1, r = 2.5536, -1.4464; g = 0.93155328, 0.17588224:
    W = 0.53422336, 0.91205888; mix 1.8 + 0.16026701 = 1.96026701, 2.2 - 0.09120589 = 2.10879411.
    r = 2.38368468, -1.43570636: h = 1.96026701 - 0.28985606 = 1.67041095, 2.10879411 + 0.17458189 = 2.28337601;
    r = 2.03121972, -1.22341478: b = 1.216 - 0.33929717 = 0.87670283, 1.216 + 0.27935159 = 1.49535159.
    Global b = 0.21917571 + 1.12151370 = 1.34068940, h = 0.41760274 + 1.71253200 = 2.13013474.
    Final: gaps 0.45972379, -0.15324126; mix 1.91600614, 2.14361095; g = 1.58325267, 0.23135266:
    W = 0.53422336 - 0.79162634 is clipped to 0, W = 0.91205888 - 0.11567633 = 0.79638255; so client 0 starts from its
    own 1.67041095, client 1 from 2.28337601 - 0.12203867 = 2.16133734. h = 1.37016326, 2.30912393;
    b = 1.08899544, 1.54947624.
    """
    method = make("fedah", eta=0.5)
    one, two = on_product(tmp_path / "1", method, rounds=1), on_product(tmp_path / "2", method)
    assert [one.server(BODY), one.server(HEAD)] == near(1.216, 2.1)
    assert [float(one.state(client)["mix"][HEAD]) for client in (0, 1)] == [1.0, 1.0]
    assert [two.server(BODY), two.server(HEAD)] == near(1.34068940, 2.13013474)
    states = [two.state(client) for client in (0, 1)]
    assert [float(state["mix"][HEAD]) for state in states] == near(0.53422336, 0.91205888)
    assert [float(state["head"][HEAD]) for state in states] == near(1.67041095, 2.28337601)
    assert two.loss("received", 0, 2) == pytest.approx((1.96026701 * 1.216) ** 2 / 2, abs=1e-6)
    assert two.loss("received", 1, 2) == pytest.approx((4 - 2.10879411 * 1.216) ** 2 / 2, abs=1e-6)
    assert two.loss("held", 0, 2) == pytest.approx((1.67041095 * 0.87670283) ** 2 / 2, abs=1e-6)
    assert [two.personal(client, HEAD) for client in (0, 1)] == near(1.37016326, 2.30912393)
    assert [two.personal(client, BODY) for client in (0, 1)] == near(1.08899544, 1.54947624)


# Identities


def outcome(folder: Path, method: Any, model: ModelSettings | None = None) -> tuple[Any, ...]:
    """What everybody holds at the end of a federation with partial participation, drop-outs and late joiners."""
    settings = fedtailor.experiment(
        {
            "rounds": 4,
            "data": {"clients": 6, "samples": 240},
            "training": {"lr": 0.05, "epochs": 2},
            "participation": {"ratio": 0.5, "dropout": 0.2},
            "evaluation": {"every": 4},
            "engine": {"kind": "inline"},
        }
    )
    settings = settings.model_copy(update={"method": method, "model": model or ModelSettings()})
    with fedtailor.run(settings, folder=folder) as run:
        return tuple(
            (row["correct"], row["loss"]) for which in ("received", "held", "final") for row in run.scores(which)
        )


@pytest.mark.parametrize("off", [{"eta": 0.0}, {"mix_epochs": 0}], ids=str)
def test_weights_that_stay_at_zero_are_fedrep(off: dict[str, Any], tmp_path: Path) -> None:
    """For newcomers too: a head that has not been trained is the initial one."""
    fedrep = outcome(tmp_path / "1", make("fedrep", head_epochs=2))
    assert outcome(tmp_path / "2", make("fedah", start=0.0, head_epochs=2, **off)) == fedrep
    assert outcome(tmp_path / "3", make("fedah", start=0.0, head_epochs=2)) != fedrep
    assert outcome(tmp_path / "4", make("fedah", start=0.5, head_epochs=2, **off)) != fedrep


@pytest.mark.parametrize("model", [None, TWO_LAYERS], ids=["one-layer-head", "three-layer-head"])
def test_weights_that_stay_at_one_train_the_global_model_in_alternation(
    model: ModelSettings | None, tmp_path: Path
) -> None:
    alternating = outcome(tmp_path / "1", everything("fedrep", head_epochs=1), model)
    assert outcome(tmp_path / "2", make("fedah", **FIXED), model) == alternating
    assert outcome(tmp_path / "3", make("fedah"), model) != alternating


def test_body_epochs_take_the_place_of_the_runs_epochs(tmp_path: Path) -> None:
    run = on_product(tmp_path / "1", make("fedah", body_epochs=3), epochs=1)
    assert ends(run) == ends(on_product(tmp_path / "2", make("fedah"), epochs=3))
    assert ends(run) != ends(on_product(tmp_path / "3", make("fedah"), epochs=1))


# The aggregated head


@pytest.mark.parametrize("eta", [0.1, 1.0, 300.0])
@pytest.mark.parametrize("model", [ModelSettings(), TWO_LAYERS, RESNET], ids=["cnn", "three-layer-head", "batch-norm"])
def test_every_element_of_the_aggregated_head_lies_between_the_own_and_the_global_one(
    eta: float, model: ModelSettings
) -> None:
    bench = Bench(make("fedah", eta=eta), model)
    own = state(bench.round(0))["head"]
    shared, moved = bench.moved(), 0
    received = seen(bench, 0, 2, shared)
    assert own.keys() == set(bench.network.parameters("head"))
    for name, head in own.items():
        low, high = torch.minimum(head, shared[name]), torch.maximum(head, shared[name])
        assert ((low <= received[name]) & (received[name] <= high)).all()
        moved += int(((low < received[name]) & (received[name] < high)).sum())
    weights = unpack(bench.states[0] or b"")["state"]["mix"].values()
    assert all(((weight >= 0) & (weight <= 1)).all() for weight in weights)
    assert any((weight < 1).any() for weight in weights)
    assert moved or eta == 300.0  # huge steps end at one head or the other


def test_learning_the_mix_lowers_the_loss_on_the_clients_data() -> None:
    """From the global head, which knows nothing of the client's classes, towards its own."""
    losses: list[float] = []

    class Judged(find("fedah")):  # type: ignore[misc]
        def fit(self, client: Client) -> None:
            score = client.evaluate("train")
            losses.append(score.loss / score.samples)

    bench = Bench(make("fedah"))
    bench.round(0)
    state, moved = bench.states[0], bench.moved()
    for epochs in (0, 1, 5):
        bench.worker.method, bench.states[0] = Judged(eta=1e-3, mix_epochs=epochs), state
        bench.round(0, 2, moved)
    assert losses[0] > losses[1] > losses[2]


def test_a_newcomer_mixes_the_initial_head_with_the_global_one() -> None:
    received = {}
    for start in (0.0, 1.0):
        bench = Bench(make("fedah", start=start, **FIXED))
        received[start] = seen(bench, 3, 2, bench.moved())
    head = bench.network.part("head")
    for name, tensor in bench.moved().items():
        assert torch.equal(received[1.0][name], tensor)
        assert torch.equal(received[0.0][name], bench.initial[name] if name in head else tensor)


@pytest.mark.parametrize("model", [RESNET, NORMALISED_HEAD], ids=["in-the-body", "in-the-head"])
def test_learning_the_mix_leaves_the_body_and_all_running_statistics_as_received(model: ModelSettings) -> None:
    bench = Bench(make("fedah"), model)
    bench.round(0)
    shared = bench.moved()
    received = seen(bench, 0, 2, shared)
    changed = {name for name in shared if not torch.equal(received[name], shared[name])}
    assert changed
    assert changed <= set(bench.network.parameters("head"))


@pytest.mark.parametrize(("layers", "mixed"), [(1, {"fc3"}), (2, {"fc2", "fc3"}), ("all", {"fc1", "fc2", "fc3"})])
def test_top_layers_of_the_head_are_mixed_and_its_others_overwritten(layers: int | str, mixed: set[str]) -> None:
    bench = Bench(make("fedah", layers=layers, start=0.0, **FIXED), TWO_LAYERS)
    kept = state(bench.round(0))
    names = {f"{layer}.{kind}" for layer in mixed for kind in ("weight", "bias")}
    assert kept["head"].keys() == kept["mix"].keys() == names
    shared = bench.moved()
    received = seen(bench, 0, 2, shared)
    for name, tensor in shared.items():
        assert torch.equal(received[name], kept["head"][name] if name in names else tensor)


def test_a_clients_mix_goes_on_from_its_own_weights_whoever_used_the_worker_before() -> None:
    """A library keeps weights and heads on the worker: a client's start depended on who ran before it."""
    fresh, used = Bench(make("fedah")), Bench(make("fedah"))
    for other in (0, 1, 3):
        used.round(other)
        used.round(other, 2, used.moved())
    results = [[bench.round(2, round, bench.moved()) for round in (1, 2)] for bench in (fresh, used)]
    for first, second in zip(*results, strict=True):
        assert (first.reply, first.state, first.scores) == (second.reply, second.state, second.scores)
    once, twice = (state(result)["mix"] for result in results[0])
    assert any((twice[name] != once[name]).any() for name in once)


def test_the_whole_model_travels_and_the_head_and_the_mix_stay() -> None:
    bench = Bench(make("fedah"), RESNET)
    result = bench.round(0)
    assert Payload.unpack(result.reply or b"")["model"].keys() == set(bench.network.names)
    assert state(result).keys() == {"head", "mix"}
    assert bench.private(0) == {}


def test_every_number_of_epochs_is_obeyed() -> None:
    """40 samples in batches of 10: four steps an epoch."""
    for mix, head, body in ((0, 0, 1), (1, 0, 0), (0, 1, 0), (3, 2, 4)):
        method = make("fedah", mix_epochs=mix, head_epochs=head, body_epochs=body)
        assert Bench(method).round(0).trace.steps == 4 * (mix + head + body)


@pytest.mark.parametrize(("epochs", "frozen"), [({"head_epochs": 0}, "head"), ({"body_epochs": 0}, "body")], ids=str)
def test_the_part_that_is_not_trained_stays_to_the_bit(epochs: dict[str, int], frozen: Any) -> None:
    bench = Bench(make("fedah", **FIXED, **epochs), RESNET)
    reply = Payload.unpack(bench.round(0).reply or b"")["model"]
    changed = {name for name in reply if not torch.equal(reply[name], bench.initial[name])}
    assert changed
    assert changed <= set(reply) - bench.network.part(frozen)


# Cached features


def calls_of(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """How many samples every call for features, from now on, is about."""
    calls: list[int] = []
    original = Network.features
    monkeypatch.setattr(Network, "features", lambda self, x: (calls.append(len(x)), original(self, x))[1])
    return calls


def test_features_are_computed_once_for_the_mix_and_the_head(monkeypatch: pytest.MonkeyPatch) -> None:
    bench = Bench(make("fedah", mix_epochs=3, head_epochs=4))
    bench.round(0)
    calls = calls_of(monkeypatch)
    bench.round(0, 2, bench.moved())
    assert calls == [len(bench.worker._tensors(0, "train")[1])]


@pytest.mark.parametrize("model", [ModelSettings(), TWO_LAYERS, RESNET], ids=["cnn", "three-layer-head", "batch-norm"])
def test_training_over_cached_features_equals_training_without(
    model: ModelSettings, monkeypatch: pytest.MonkeyPatch
) -> None:
    def rounds() -> list[Any]:
        bench = Bench(make("fedah", mix_epochs=2, head_epochs=2), model, epochs=2)
        return [bench.round(0), bench.round(0, 2, bench.moved())]

    cached = rounds()
    calls = calls_of(monkeypatch)
    monkeypatch.setattr(loop, "cacheable", lambda network: False)
    plain = rounds()
    assert calls == []
    for one, other in zip(cached, plain, strict=True):
        models = [Payload.unpack(result.reply or b"")["model"] for result in (one, other)]
        for name, tensor in models[0].items():
            torch.testing.assert_close(tensor, models[1][name], rtol=1e-4, atol=1e-5)
        for kept in ("head", "mix"):
            for name, tensor in state(one)[kept].items():
                torch.testing.assert_close(tensor, state(other)[kept][name], rtol=1e-4, atol=1e-4)


def test_dropout_in_the_body_switches_the_cache_off(monkeypatch: pytest.MonkeyPatch) -> None:
    calls = calls_of(monkeypatch)
    bench = Bench(make("fedah"), ModelSettings(name="tests.methods.test_fedah:Dropping"))
    bench.round(0)
    bench.round(0, 2, bench.moved())
    assert calls == []


def test_the_cache_forgets_features_of_another_body_or_of_other_inputs(monkeypatch: pytest.MonkeyPatch) -> None:
    network = Bench(make("fedah"), RESNET).network
    x, y = torch.rand(4, 1, 8, 8), torch.rand(4, 1, 8, 8)
    cache, calls = FeatureCache(), calls_of(monkeypatch)

    def checked(inputs: Tensor) -> int:
        assert torch.equal(cache.features(network, inputs), features(network, inputs))
        return len(calls)

    body = next(name for name in network.names if name.endswith("running_var"))
    changes: list[Callable[[], object]] = [
        lambda: network.load({name: tensor + 1 for name, tensor in network.weights("head").items()}),
        lambda: network.load({body: network.weights()[body] + 1}),
        lambda: network.parameters("body")["conv1.weight"].data.add_(1),
    ]
    counts = [checked(x), checked(x)]
    for change in changes:
        change()
        counts.append(checked(x))
    counts.append(checked(y))
    # every check asks once itself; the cache asks at first, for the body's two changes and for the other inputs
    assert counts == [2, 3, 4, 6, 8, 10]


# Settings


@pytest.mark.parametrize(
    "off",
    [
        {"eta": 0.0},
        {"eta": 0.0, "start": 0.0},
        {"eta": 0.01},
        {"mix_epochs": 3},
        {"head_epochs": 0},
        {"body_epochs": 0},
    ],
    ids=str,
)
def test_every_setting_changes_the_numbers(off: dict[str, Any], tmp_path: Path) -> None:
    assert outcome(tmp_path / "1", make("fedah")) != outcome(tmp_path / "2", make("fedah", **off))


def test_fedah_is_neither_fedrep_nor_fedala(tmp_path: Path) -> None:
    others = [make("fedah"), make("fedrep", head_epochs=1), make("fedala", layers=1), make("fedavg")]
    assert len({outcome(tmp_path / str(index), method) for index, method in enumerate(others)}) == len(others)


def test_settings_that_switch_the_learning_off_say_what_is_left() -> None:
    assert make("fedah").inert() is None
    assert "FedRep" in (make("fedah", mix_epochs=0, start=0.0).inert() or "")
    assert "alternation" in (make("fedah", eta=0.0).inert() or "")
    assert "0.5" in (make("fedah", eta=0.0, start=0.5).inert() or "")


def test_the_extra_work_is_one_forward_pass_however_many_epochs_the_mix_and_the_head_get() -> None:
    assert make("fedah", mix_epochs=4, head_epochs=3).passes(2) == pytest.approx(2 + 1 / 3)
    assert make("fedah", body_epochs=5).passes(2) == pytest.approx(5 + 1 / 3)
    assert make("fedah", mix_epochs=0, head_epochs=0).passes(2) == 2


def test_a_network_that_is_all_head_is_mixed_and_trained(tmp_path: Path) -> None:
    """The one layer of Scalar is its head: w = 1 -> 0.5 and 2.5, global 2; no body to train."""
    played = play(tmp_path / "run", make("fedah"), targets(*HERE), rounds=1)
    assert played.server("0.weight") == pytest.approx(2.0, abs=1e-6)
