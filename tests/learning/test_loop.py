"""The local training loop: batches, parts, normalisation, dropout, caching."""

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from fedtailor.learning import Trace, TrainingSettings, TrainOptions, features, loop, train
from fedtailor.models import Inputs, Network
from fedtailor.seeding import torch_stream
from tests.support.networks import FLAT, cnn, images, network, normalised, vectors, with_dropout

SETTINGS = TrainingSettings(epochs=1, batch_size=8, momentum=0.5, weight_decay=0.01)


def fit(net: Network, data: tuple[Tensor, Tensor], settings: TrainingSettings = SETTINGS, **more) -> Trace:
    return train(net, *data, settings, torch_stream("batches"), TrainOptions(lr=0.05, **more))


def same(a: dict[str, Tensor], b: dict[str, Tensor]) -> bool:
    return all(torch.equal(a[name], b[name]) for name in a)


def batches(monkeypatch: pytest.MonkeyPatch) -> list[Tensor]:
    """The targets of every batch that a training takes from now on."""
    seen: list[Tensor] = []
    original = loop.mean_loss

    def watch(kind: str, outputs: Tensor, targets: Tensor) -> Tensor:
        seen.append(targets.clone())
        return original(kind, outputs, targets)

    monkeypatch.setattr(loop, "mean_loss", watch)
    return seen


def numbered(count: int) -> tuple[Tensor, Tensor]:
    return torch.arange(float(count)).reshape(-1, 1), torch.arange(float(count)).reshape(-1, 1)


def slope() -> Network:
    return network(nn.Sequential(nn.Linear(1, 1)), ("0",), Inputs((1,), 1))


REGRESSION = TrainingSettings(epochs=1, batch_size=4, loss="squared-error")


def test_every_pass_sees_every_sample_once_in_another_order(monkeypatch) -> None:
    seen = batches(monkeypatch)
    trace = train(slope(), *numbered(10), REGRESSION, torch_stream("b"), TrainOptions(lr=1e-4, epochs=2))
    assert [len(batch) for batch in seen] == [4, 4, 2, 4, 4, 2]
    first, second = (torch.cat(seen[i : i + 3]).flatten().tolist() for i in (0, 3))
    assert sorted(first) == sorted(second) == list(range(10))
    assert first != second
    assert (trace.steps, trace.samples) == (6, 20)


def test_inputs_and_targets_stay_together(monkeypatch) -> None:
    pairs = []

    class Identity(nn.Linear):
        def forward(self, x: Tensor) -> Tensor:
            pairs.append(x.clone())
            return super().forward(x)

    net = Network(nn.Sequential(Identity(1, 1)), ("0",), Inputs((1,), 1))
    pairs.clear()
    seen = batches(monkeypatch)
    train(net, *numbered(10), REGRESSION, torch_stream("b"), TrainOptions(lr=1e-4))
    assert all(torch.equal(x, y) for x, y in zip(pairs, seen, strict=True))


def test_images_and_labels_stay_together_through_the_change_of_layout(monkeypatch) -> None:
    given = []
    net = cnn()
    net.module.register_forward_pre_hook(lambda _, inputs: given.append(inputs[0].clone()))
    x, y = images(30)
    seen = batches(monkeypatch)
    fit(net, (x, y))
    for inputs, targets in zip(given, seen, strict=True):
        for image, label in zip(inputs, targets, strict=True):
            (row,) = [i for i in range(30) if torch.equal(x[i], image)]
            assert y[row] == label


def test_steps_count_mini_batches_instead_of_passes(monkeypatch) -> None:
    seen = batches(monkeypatch)
    trace = train(slope(), *numbered(10), REGRESSION, torch_stream("b"), TrainOptions(lr=1e-4, steps=5))
    assert [len(batch) for batch in seen] == [4, 4, 2, 4, 4]
    assert (trace.steps, trace.samples) == (5, 18)


def test_steps_of_the_settings_win_over_their_epochs_but_not_over_an_argument() -> None:
    settings = REGRESSION.model_copy(update={"steps": 2, "epochs": 9})
    data = numbered(10)
    assert train(slope(), *data, settings, torch_stream("b"), TrainOptions(lr=1e-4)).steps == 2
    assert train(slope(), *data, settings, torch_stream("b"), TrainOptions(lr=1e-4, epochs=1)).steps == 3
    assert train(slope(), *data, settings, torch_stream("b"), TrainOptions(lr=1e-4, epochs=1, steps=7)).steps == 7
    assert train(slope(), *data, settings, torch_stream("b"), TrainOptions(lr=1e-4, batch_size=10, epochs=1)).steps == 1


def test_the_first_steps_are_the_same_whether_counted_as_steps_or_as_a_pass() -> None:
    one, other = cnn(), cnn()
    fit(one, images(40), epochs=2)
    fit(other, images(40), steps=10)
    assert same(one.weights(), other.weights())


@pytest.mark.parametrize("nothing", [{"epochs": 0}, {"steps": 0}, {"part": "none"}, {"steps": 0, "epochs": 3}], ids=str)
def test_nothing_to_do_changes_nothing(nothing: dict) -> None:
    net = cnn()
    assert fit(net, images(), **nothing) == Trace()
    assert same(net.weights(), cnn().weights())


def test_a_client_without_samples_changes_nothing() -> None:
    net = normalised()
    assert fit(net, vectors(0)) == Trace()
    assert same(net.weights(), normalised().weights())


def test_a_client_smaller_than_a_batch_trains_on_what_it_has() -> None:
    net = cnn()
    trace = fit(net, images(3), TrainingSettings(batch_size=64, epochs=2))
    assert (trace.steps, trace.samples) == (2, 6)
    assert not same(net.weights(), cnn().weights())


@pytest.mark.parametrize(("samples", "sizes"), [(17, [8, 9]), (9, [9])])
def test_with_batch_normalisation_a_last_batch_of_one_joins_the_batch_before(
    samples: int, sizes: list[int], monkeypatch
) -> None:
    seen = batches(monkeypatch)
    trace = fit(normalised(), vectors(samples))
    assert [len(batch) for batch in seen] == sizes
    assert (trace.steps, trace.samples) == (len(sizes), samples)


def test_without_batch_normalisation_a_last_batch_of_one_stays(monkeypatch) -> None:
    seen = batches(monkeypatch)
    fit(cnn(), images(17))
    assert [len(batch) for batch in seen] == [8, 8, 1]


@pytest.mark.parametrize(("samples", "size"), [(1, 8), (1, 1), (3, 1)])
def test_batch_normalisation_of_single_samples_uses_the_running_statistics(samples: int, size: int) -> None:
    net, before = normalised(), normalised().weights()
    trace = fit(net, vectors(samples), batch_size=size)
    after = net.weights()
    assert trace.samples == samples
    assert trace.steps == samples
    assert all(torch.isfinite(tensor).all() for tensor in after.values())
    assert all(torch.equal(after[name], before[name]) for name in net.statistics)
    assert not torch.equal(after["6.weight"], before["6.weight"])


@pytest.mark.parametrize("part", ["body", "head"])
@pytest.mark.parametrize("cached", [True, False])
def test_a_frozen_part_stays_bit_identical_with_its_running_statistics(part: str, cached: bool, monkeypatch) -> None:
    if not cached:
        monkeypatch.setattr(loop, "cacheable", lambda network: False)
    net, before = normalised(), normalised().weights()
    fit(net, vectors(20), part=part, epochs=2, toward={n: t + 1 for n, t in before.items()}, pull=0.1)
    after = net.weights()
    changed = {name for name in before if not torch.equal(before[name], after[name])}
    assert changed == net.part(part)


def test_training_everything_moves_every_tensor() -> None:
    net, before = normalised(), normalised().weights()
    fit(net, vectors(20), epochs=2)
    assert all(not torch.equal(before[name], tensor) for name, tensor in net.weights().items())


def test_the_body_then_the_head_is_trained_from_where_the_other_left_off() -> None:
    net = normalised()
    fit(net, vectors(20), part="head")
    between = net.weights()
    fit(net, vectors(20), part="body")
    assert same({n: net.weights()[n] for n in net.part("head")}, {n: between[n] for n in net.part("head")})
    assert not net.module.training


def test_a_parameter_its_author_has_frozen_is_left_alone() -> None:
    net, before = cnn(), cnn().weights()
    net.module[0].weight.requires_grad_(False)
    fit(net, images(20))
    changed = {name for name in before if not torch.equal(before[name], net.weights()[name])}
    assert changed == net.part("all") - {"0.weight"}


def test_a_body_frozen_by_its_author_still_gathers_running_statistics_from_every_batch() -> None:
    net = normalised()
    net.module[0].requires_grad_(False)
    net.module[1].requires_grad_(False)
    trace = fit(net, vectors(40), epochs=2)
    assert net.weights()["1.num_batches_tracked"] == trace.steps == 10


@pytest.mark.parametrize(("build", "data"), [(cnn, images), (normalised, vectors)])
def test_the_cached_features_of_a_frozen_body_give_the_same_head(build, data, monkeypatch) -> None:
    cached, plain, calls = build(), build(), []
    original = Network.features
    monkeypatch.setattr(Network, "features", lambda self, x: (calls.append(len(x)), original(self, x))[1])
    fit(cached, data(150), part="head", epochs=3)
    assert calls == [128, 22]  # each sample once
    monkeypatch.setattr(loop, "cacheable", lambda network: False)
    fit(plain, data(150), part="head", epochs=3)
    assert calls == [128, 22]
    for name, tensor in cached.weights().items():
        torch.testing.assert_close(tensor, plain.weights()[name], rtol=1e-5, atol=1e-6)
    assert not same(cached.weights("head"), build().weights("head"))


def test_dropout_in_the_body_switches_the_cache_off() -> None:
    assert not loop.cacheable(with_dropout(0))
    assert not loop.cacheable(with_dropout(2))
    assert loop.cacheable(cnn())


def test_dropout_of_probability_zero_does_not_matter() -> None:
    net = with_dropout(2)
    net.module[2].p = 0.0
    assert loop.cacheable(net)


@pytest.mark.parametrize(
    "layer",
    [nn.Dropout(0.5), nn.RReLU(), nn.BatchNorm1d(6, track_running_stats=False)],
    ids=["dropout", "rrelu", "batch statistics"],
)
def test_a_body_layer_that_varies_switches_the_cache_off_even_if_its_name_begins_like_the_heads(layer) -> None:
    module = nn.Sequential()
    module.add_module("fc", nn.Linear(5, 6))
    module.add_module("fc2_varies", layer)
    module.add_module("fc2", nn.Linear(6, 3))
    assert not loop.cacheable(network(module, ("fc2",), FLAT))


def test_dropout_is_drawn_anew_for_every_batch_when_the_head_trains() -> None:
    """With features cached once, both passes would see the same draw."""
    net = with_dropout(2)
    seen = []
    net.module[3].register_forward_pre_hook(lambda _, inputs: seen.append(inputs[0].detach().clone()))
    x, y = vectors(1)
    fit(net, (x.repeat(8, 1), y.repeat(8)), part="head", epochs=2)
    assert not torch.equal(seen[0] == 0, seen[1] == 0)


@pytest.mark.parametrize("place", [0, 2, 3])
def test_dropout_draws_are_reproducible_and_the_global_random_numbers_untouched(place: int) -> None:
    results = []
    for global_seed in (1, 2):
        net = with_dropout(place)
        torch.manual_seed(global_seed)
        np.random.seed(global_seed)
        before, numbers = torch.get_rng_state(), np.random.get_state()[1].copy()
        fit(net, vectors(20), epochs=2)
        assert torch.equal(torch.get_rng_state(), before)
        assert np.array_equal(np.random.get_state()[1], numbers)
        results.append(net.weights())
    assert same(*results)
    other = with_dropout(place)
    train(other, *vectors(20), SETTINGS, torch_stream("other"), TrainOptions(lr=0.05, epochs=2))
    assert not same(results[0], other.weights())


def test_the_same_stream_gives_the_same_weights_and_another_one_others() -> None:
    one, two, three = cnn(), cnn(), cnn()
    fit(one, images())
    fit(two, images())
    train(three, *images(), SETTINGS, torch_stream("other"), TrainOptions(lr=0.05))
    assert same(one.weights(), two.weights())
    assert not same(one.weights(), three.weights())


def test_the_data_are_not_changed() -> None:
    x, y = images(20)
    kept = x.clone(), y.clone()
    fit(cnn(), (x, y))
    assert torch.equal(x, kept[0])
    assert torch.equal(y, kept[1])


def test_a_channels_last_training_equals_the_contiguous_one(monkeypatch) -> None:
    fast, plain = cnn(), cnn()
    x, y = images(40)
    fit(fast, (x.contiguous(memory_format=torch.channels_last), y), epochs=3)
    assert not fast.module[0].weight.is_contiguous()  # the fast path was taken
    monkeypatch.setattr(nn.Module, "to", lambda self, **_: self)
    monkeypatch.setattr(loop, "_rows_first", lambda x: x)
    monkeypatch.setattr(loop, "_channels_second", lambda rows, like: rows)
    fit(plain, (x, y), epochs=3)
    assert plain.module[0].weight.is_contiguous()
    for name, tensor in fast.weights().items():
        torch.testing.assert_close(tensor, plain.weights()[name], rtol=1e-5, atol=1e-5)


def test_weights_leave_the_network_contiguous_after_a_channels_last_training() -> None:
    net = cnn()
    fit(net, images(10))
    assert all(tensor.is_contiguous() for tensor in net.weights().values())


def test_a_training_ends_when_it_is_told_that_it_is_enough_after_whole_passes() -> None:
    asked: list[list[float]] = []

    def until(losses) -> bool:
        asked.append(list(losses))
        return len(losses) == 3

    net, plain = cnn(), cnn()
    trace = fit(net, images(20), epochs=9, until=until)
    assert (trace.steps, trace.samples) == (9, 60)
    assert [len(losses) for losses in asked] == [1, 2, 3]
    assert trace.loss == pytest.approx(sum(asked[-1]) / 3)
    assert asked[0][0] == pytest.approx(fit(cnn(), images(20), epochs=1).loss)
    fit(plain, images(20), epochs=3)
    assert same(net.weights(), plain.weights())


def test_features_leave_the_network_as_it_was() -> None:
    net, (x, _) = normalised(), vectors(150)
    fit(net, vectors(20))
    before = net.weights()
    net.module.train()
    plain, batched = features(net, x), features(net, x, batch_statistics=True)
    assert net.module.training
    assert net.module[1].training
    assert same(net.weights(), before)
    assert not torch.allclose(plain, batched)
    net.module.eval()
    with torch.no_grad():
        assert torch.allclose(plain, net.features(x))
        net.module.train()
        halves = torch.cat([net.features(half) for half in torch.tensor_split(x, 2)])  # 75 samples each
    assert torch.allclose(batched, halves)


def test_batch_statistics_of_a_single_sample_are_the_running_ones() -> None:
    net, (x, _) = normalised(), vectors(1)
    assert torch.equal(features(net, x), features(net, x, batch_statistics=True))


def test_batch_statistics_leave_other_layers_as_in_an_evaluation() -> None:
    """Dropout stays off while a layer normalises by its batch."""
    layers = [nn.Linear(5, 6), nn.BatchNorm1d(6), nn.Dropout(0.5), nn.Linear(6, 3)]
    net, (x, _) = network(nn.Sequential(*layers), ("3",), FLAT), vectors(20)
    found = features(net, x, batch_statistics=True)
    assert (found != 0).all()
    assert torch.equal(found, features(net, x, batch_statistics=True))
    torch.testing.assert_close(found.mean(0), net.module[1].bias.detach(), atol=1e-5, rtol=0)
