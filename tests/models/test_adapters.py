"""An adapter: a third part beside body and head, for modules that declare one."""

from pathlib import Path

import pytest
import torch
from torch import Tensor, nn

import fedtailor
from fedtailor.errors import UserError
from fedtailor.learning import FeatureCache, TrainingSettings, TrainOptions, train
from fedtailor.methods import Method
from fedtailor.models import Inputs, ModelSettings, Network, build
from fedtailor.seeding import torch_stream

FLAT = Inputs((4,), 3)


class Adapted(nn.Module):
    """A body with a residual adapter."""

    adapter_layers = ("adapter",)

    def __init__(self, inputs: Inputs) -> None:
        super().__init__()
        size = torch.Size(inputs.shape).numel()
        self.body = nn.Linear(size, 6)
        self.adapter = nn.Sequential(nn.Linear(6, 2), nn.Linear(2, 6))
        self.head = nn.Linear(6, inputs.outputs)

    def forward(self, x: Tensor) -> Tensor:
        features = torch.relu(self.body(x.flatten(1)))
        return self.head(features + self.adapter(features))  # type: ignore[no-any-return]


class Misnamed(Adapted):
    adapter_layers = ("adaptor",)


class SharesAdapter(Method):
    """Only the adapter travels."""

    shares = "adapter"

    def fit(self, client: fedtailor.Client) -> None:
        client.train("adapter")


def adapted(head: str | tuple[str, ...] = "last") -> Network:
    return build(ModelSettings(name="tests.models.test_adapters:Adapted", head=head), FLAT, 0)


def test_the_adapter_is_a_part_of_its_own() -> None:
    network = adapted()
    assert network.part("head") == {"head.weight", "head.bias"}
    assert network.part("body") == {"body.weight", "body.bias"}
    assert network.part("adapter") == {f"adapter.{i}.{name}" for i in (0, 1) for name in ("weight", "bias")}
    assert network.part("body") | network.part("head") | network.part("adapter") == network.part("all")
    assert network.splittable


def test_a_head_of_all_linear_layers_leaves_the_adapter_out() -> None:
    assert adapted("linear").head_layers == ("body", "head")


def test_a_network_that_declares_none_has_none() -> None:
    assert build(ModelSettings(name="mlp"), FLAT, 0).part("adapter") == frozenset()


def test_layers_that_do_not_exist_or_belong_to_the_head_are_refused() -> None:
    with pytest.raises(UserError, match="adaptor"):
        build(ModelSettings(name="tests.models.test_adapters:Misnamed"), FLAT, 0)
    with pytest.raises(UserError, match=r"declares 'adapter\.1' as part of its adapter"):
        adapted(("adapter.1", "head"))


def test_training_the_adapter_leaves_the_rest_and_makes_cached_features_stale() -> None:
    network, cache = adapted(), FeatureCache()
    x, y = torch.randn(12, 4, generator=torch_stream("x")), torch.arange(12) % 3
    before, features = network.weights(), cache.features(network, x)
    assert cache.features(network, x) is features
    train(network, x, y, TrainingSettings(epochs=1), torch_stream("b"), TrainOptions("adapter"))
    moved = {name for name, tensor in network.weights().items() if not torch.equal(tensor, before[name])}
    assert moved == network.part("adapter")
    assert not torch.equal(cache.features(network, x), features)


def test_a_method_can_share_the_adapter_alone(tmp_path: Path) -> None:
    settings = {
        "rounds": 2,
        "method": {"name": "tests.models.test_adapters:SharesAdapter"},
        "model": {"name": "tests.models.test_adapters:Adapted"},
        "data": {"clients": 3, "samples": 90},
        "training": {"epochs": 1},
    }
    with fedtailor.run(settings, folder=tmp_path / "run") as run:
        assert set(run.server_state()["model"]) == adapted().part("adapter")
