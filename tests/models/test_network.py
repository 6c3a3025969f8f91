"""Networks: initial weights, body and head, what goes in and comes out."""

import copy
import os
import subprocess
import sys
from hashlib import sha256
from pathlib import Path

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic import ValidationError
from torch import nn

import fedtailor
from fedtailor.errors import UserError
from fedtailor.models import Inputs, ModelSettings, Network, build

torch.set_num_threads(1)

DIGITS = Inputs((1, 8, 8), 10)
MNIST = Inputs((1, 28, 28), 10)
CIFAR10 = Inputs((3, 32, 32), 10)


def same(one: dict[str, torch.Tensor], two: dict[str, torch.Tensor]) -> bool:
    return list(one) == list(two) and all(torch.equal(one[name], two[name]) for name in one)


# ---------------------------------------------------------------- initial weights


def test_same_seed_same_bits_whatever_ran_before() -> None:
    torch.manual_seed(1)
    one = build(ModelSettings(), DIGITS, seed=5)
    torch.manual_seed(2)
    torch.rand(7)
    assert same(one.weights(), build(ModelSettings(), DIGITS, seed=5).weights())


def test_same_bits_in_another_process() -> None:
    code = "from tests.models.test_network import digests; print(*digests())"
    paths = [str(Path(__file__).parents[2]), str(Path(fedtailor.__file__).parents[1])]
    there = subprocess.run(
        [sys.executable, "-c", code],
        env={**os.environ, "PYTHONPATH": os.pathsep.join(paths)},
        capture_output=True,
        text=True,
        check=True,
    )
    assert there.stdout.split() == digests()


def digests() -> list[str]:
    """Of all initial weights, drawn uniformly (cnn), normally (fasttext) and not at all (norms)."""
    kinds = {"cnn": MNIST, "fasttext": Inputs((9,), 4, 60), "resnet18-bn": CIFAR10}
    built = [build(ModelSettings(name=name), inputs, seed=5).weights() for name, inputs in kinds.items()]
    return [sha256(b"".join(w.numpy().tobytes() for w in one.values())).hexdigest() for one in built]


def test_another_seed_gives_other_weights() -> None:
    one, two = (build(ModelSettings(), DIGITS, seed).weights() for seed in (0, 1))
    assert all(not torch.equal(one[name], two[name]) for name in one)


def test_global_random_numbers_are_left_alone() -> None:
    before = torch.get_rng_state()
    build(ModelSettings(name="resnet18-bn"), CIFAR10, seed=3)
    assert torch.equal(torch.get_rng_state(), before)


# ---------------------------------------------------------------- parts


def test_head_is_the_last_linear_layer_by_default() -> None:
    network = build(ModelSettings(name="cnn"), MNIST, seed=0)
    assert network.head_layers == ("fc2",)
    assert network.part("head") == {"fc2.weight", "fc2.bias"}
    assert network.part("body") == set(network.names) - network.part("head")
    assert network.part("all") == set(network.names)
    assert network.part("none") == frozenset()


def test_head_may_be_all_linear_layers() -> None:
    network = build(ModelSettings(name="cnn", head="linear"), MNIST, seed=0)
    assert network.head_layers == ("fc1", "fc2")
    assert network.features(MNIST.example()).shape == (2, 1024)


def test_head_may_be_named_in_any_order() -> None:
    network = build(ModelSettings(name="cnn", head=("fc2", "conv2", "fc1")), MNIST, seed=0)
    assert network.head_layers == ("conv2", "fc1", "fc2")
    assert network.features(MNIST.example()).shape == (2, 32, 12, 12)


def test_naming_a_container_counts_all_in_it() -> None:
    network = build(ModelSettings(name="resnet18-bn", head=("block8", "fc1")), CIFAR10, seed=0)
    assert network.head_layers == ("block8.conv1", "block8.norm1", "block8.conv2", "block8.norm2", "fc1")
    assert "block8.norm2.running_mean" in network.part("head")
    assert "block8.norm2.running_mean" not in network.parameters("head")
    assert network.features(CIFAR10.example()).shape == (2, 512, 4, 4)


def test_body_after_the_head_cannot_be_split() -> None:
    network = build(ModelSettings(name="cnn", head=("fc1",)), MNIST, seed=0)
    assert not network.splittable
    assert network.part("head") == {"fc1.weight", "fc1.bias"}
    with pytest.raises(ValueError, match="fc1"):
        network.features(MNIST.example())


def test_head_inside_a_block_cannot_be_split() -> None:
    settings = ModelSettings(name="resnet18-gn", head=("block8.conv2", "block8.norm2", "fc1"))
    assert not build(settings, CIFAR10, seed=0).splittable


def test_unknown_head_layer_lists_the_layers() -> None:
    with pytest.raises(UserError, match=r"'fc3': did you mean 'fc[12]'\?.*conv1, conv2, fc1, fc2"):
        build(ModelSettings(name="cnn", head=("fc3",)), MNIST, seed=0)
    with pytest.raises(UserError, match="relu1"):
        build(ModelSettings(name="cnn", head=("relu1",)), MNIST, seed=0)


def test_parameters_are_the_modules_own_in_order() -> None:
    network = build(ModelSettings(name="digits-cnn"), DIGITS, seed=0)
    everything = network.parameters()
    assert list(everything) == list(network.names)
    assert [id(p) for p in everything.values()] == [id(p) for p in network.module.parameters()]
    assert list(network.parameters("head")) == ["fc2.weight", "fc2.bias"]
    assert network.parameters("body").keys() | network.parameters("head").keys() == everything.keys()
    assert network.parameters("none") == {}


def test_layers_hold_weight_bias_and_buffers_together() -> None:
    network = build(ModelSettings(name="resnet18-bn"), CIFAR10, seed=0)
    assert network.layers["fc1"] == ("fc1.weight", "fc1.bias")
    assert network.layers["block3.shortcut.1"] == tuple(
        f"block3.shortcut.1.{name}" for name in ("weight", "bias", "running_mean", "running_var", "num_batches_tracked")
    )
    assert tuple(name for names in network.layers.values() for name in names) == network.names


# ---------------------------------------------------------------- weights


def test_weights_are_contiguous_copies_whatever_the_module_uses() -> None:
    network = build(ModelSettings(name="cnn"), MNIST, seed=0)
    before = network.weights()
    network.module.to(memory_format=torch.channels_last)
    after = network.weights()
    assert same(before, after)
    assert after["conv2.weight"].stride() == before["conv2.weight"].stride() == (800, 25, 5, 1)
    assert after["conv1.weight"].stride() == before["conv1.weight"].stride()
    assert not any(value.requires_grad for value in after.values())
    after["fc2.bias"].add_(1)
    assert torch.equal(network.weights()["fc2.bias"], before["fc2.bias"])


def test_load_keeps_memory_format_and_storage() -> None:
    network = build(ModelSettings(name="cnn"), MNIST, seed=0)
    other = build(ModelSettings(name="cnn"), MNIST, seed=1).weights()
    network.module.to(memory_format=torch.channels_last)
    places = {name: p.data_ptr() for name, p in network.parameters().items()}
    network.load(other)
    assert same(network.weights(), other)
    assert {name: p.data_ptr() for name, p in network.parameters().items()} == places
    assert network.parameters()["conv2.weight"].is_contiguous(memory_format=torch.channels_last)
    assert network.parameters()["conv2.weight"].requires_grad


def test_load_of_a_part_leaves_the_rest() -> None:
    network = build(ModelSettings(name="digits-cnn"), DIGITS, seed=0)
    before, other = network.weights(), build(ModelSettings(name="digits-cnn"), DIGITS, seed=1)
    network.load(other.weights("head"))
    assert same(network.weights("head"), other.weights("head"))
    assert all(torch.equal(network.weights()[name], before[name]) for name in network.part("body"))


def test_load_includes_running_statistics() -> None:
    network = build(ModelSettings(name="resnet18-bn"), CIFAR10, seed=0)
    network(CIFAR10.example())
    trained = network.weights()
    assert trained["norm1.num_batches_tracked"] == 1
    fresh = build(ModelSettings(name="resnet18-bn"), CIFAR10, seed=1)
    fresh.load(trained)
    assert same(fresh.weights(), trained)


def test_wrong_weights_are_named_and_nothing_is_loaded() -> None:
    network = build(ModelSettings(name="digits-cnn"), DIGITS, seed=0)
    before = network.weights()
    zeros = {"conv1.weight": torch.zeros(8, 1, 3, 3)}
    with pytest.raises(ValueError, match=r"no tensor 'fc9.weight'"):
        network.load({**zeros, "fc9.weight": torch.zeros(1)})
    with pytest.raises(ValueError, match=r"'fc2.bias' has shape \(1,\), not \(10,\)"):
        network.load({**zeros, "fc2.bias": torch.zeros(1)})
    assert same(network.weights(), before)


def test_buffers_replaced_by_a_move_are_still_found() -> None:
    module = nn.Sequential(nn.BatchNorm1d(3), nn.Linear(3, 2))
    network = Network(module, ["1"], Inputs((3,), 2))
    network.load(network.weights())
    module.double()
    module.float()
    module(torch.randn(4, 3))
    assert torch.equal(network.weights()["0.running_mean"], module.state_dict()["0.running_mean"])
    assert network.weights()["0.running_mean"].abs().sum() > 0


def test_deep_copy_is_independent() -> None:
    network = build(ModelSettings(name="digits-cnn"), DIGITS, seed=0)
    twin = copy.deepcopy(network)
    twin.load({name: torch.zeros_like(value) for name, value in twin.weights().items()})
    x = DIGITS.example()
    assert twin.classify(twin.features(x)).abs().sum() == 0
    assert network.classify(network.features(x)).abs().sum() > 0


@settings(max_examples=25, deadline=None)
@given(names=st.sets(st.sampled_from(["conv1", "conv2", "fc1", "fc2"]), min_size=1))
def test_body_and_head_are_a_partition_for_any_head(names: set[str]) -> None:
    network = build(ModelSettings(name="digits-cnn", head=tuple(names)), DIGITS, seed=0)
    assert network.part("body").isdisjoint(network.part("head"))
    assert network.part("body") | network.part("head") == network.part("all")
    tail = ["conv1", "conv2", "fc1", "fc2"][-len(names) :]
    assert network.splittable == (names == set(tail))


# ---------------------------------------------------------------- settings


def test_settings_are_frozen_and_strict() -> None:
    assert ModelSettings(head=["fc1"]).head == ("fc1",)
    with pytest.raises(ValidationError):
        ModelSettings(nane="cnn")
    with pytest.raises(ValidationError):
        ModelSettings(head=())
    with pytest.raises(ValidationError):
        ModelSettings(running_statistics="global")
    with pytest.raises(ValidationError):
        ModelSettings().name = "cnn"
    assert all(field.description for field in ModelSettings.model_fields.values())
