"""Computation in bf16: what changes for a while, and what stays in fp32."""

from collections.abc import Iterator

import pytest
import torch
from torch import nn

from fedtailor.models import Inputs, Network, SideBySide, in_bf16
from tests.support.networks import normalised, vectors

FINE = 1 + 2**-9  # bf16 has 8 binary digits: it rounds this to 1


def scalar(weight: float = FINE) -> Network:
    network = Network(nn.Sequential(nn.Linear(1, 1, bias=False)), ["0"], Inputs((1,), 1))
    network.load({"0.weight": torch.tensor([[weight]])})
    return network


@pytest.fixture(autouse=True)
def _without_gradients() -> Iterator[None]:
    with torch.no_grad():
        yield


def test_outputs_are_computed_in_bf16_and_returned_in_fp32() -> None:
    network, x = scalar(), torch.tensor([[1.5 + 2**-9]])
    with in_bf16(network):
        outputs, features, classified = network(x), network.features(x), network.classify(x)
    assert {outputs.dtype, features.dtype, classified.dtype} == {torch.float32}
    assert float(outputs) == float(classified) == 1.5
    assert float(features) == 1.5  # a body without layers: the input, rounded
    assert float(network(x)) == pytest.approx(FINE * (1.5 + 2**-9))


def test_weights_are_the_masters_and_keep_their_bits() -> None:
    network = scalar()
    with in_bf16(network):
        assert network.parameters()["0.weight"].dtype == torch.bfloat16
        assert network.values()["0.weight"].dtype == torch.float32
        assert float(network.weights()["0.weight"]) == FINE
    assert float(network.parameters()["0.weight"]) == FINE
    assert network.values()["0.weight"] is network.parameters()["0.weight"]


def test_weights_that_are_loaded_meanwhile_are_computed_with_and_stay() -> None:
    network = scalar()
    with in_bf16(network):
        network.load({"0.weight": torch.tensor([[2 * FINE]])})
        assert float(network(torch.ones(1, 1))) == 2
    assert float(network.weights()["0.weight"]) == 2 * FINE


def test_an_error_leaves_the_network_as_it_was() -> None:
    network = scalar()
    with pytest.raises(ZeroDivisionError), in_bf16(network):
        raise ZeroDivisionError
    assert not network.half
    assert float(network(torch.ones(1, 1))) == FINE


def test_batch_normalisation_and_its_running_statistics_stay_in_fp32() -> None:
    network, (x, _) = normalised(), vectors(8)
    network.module.train()
    with in_bf16(network):
        network(x)
        types = {name: tensor.dtype for name, tensor in network.module.state_dict().items()}
    norm = {name for name in network.normalisation if types[name] != torch.int64}
    assert norm
    assert {types[name] for name in norm} == {torch.float32}
    assert {types[name] for name in types.keys() - network.normalisation} == {torch.bfloat16}
    trained = network.weights()
    mean = "1.running_mean"
    assert not torch.equal(trained[mean], trained[mean].bfloat16().float())  # not rounded


def test_a_tensor_that_two_layers_share_stays_shared() -> None:
    module = nn.Sequential(nn.Linear(2, 2, bias=False), nn.Linear(2, 2, bias=False))
    module[1].weight = module[0].weight
    network = Network(module, ["0", "1"], Inputs((2,), 2))
    with in_bf16(network):
        assert module[1].weight is module[0].weight
        assert module[1].weight.dtype == torch.bfloat16
    assert module[1].weight.dtype == torch.float32


def test_networks_side_by_side_compute_in_bf16_together() -> None:
    one, other = scalar(), scalar(3.0)
    with in_bf16(SideBySide({"one": one, "other": other})):
        assert float(one(torch.ones(1, 1))) == 1
        assert other(torch.ones(1, 1)).dtype == torch.float32
        assert float(one.weights()["0.weight"]) == FINE
    assert not one.half
    assert float(one(torch.ones(1, 1))) == FINE


def test_another_network_takes_bf16_inputs() -> None:
    """A teacher in fp32 beside a network that trains in bf16 gets the same batch."""
    assert float(scalar()(torch.ones(1, 1, dtype=torch.bfloat16))) == FINE
