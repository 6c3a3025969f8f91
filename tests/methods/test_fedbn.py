"""Hand-derived values, identities and mechanisms of FedBN."""

from pathlib import Path

import pytest
from torch import nn

import fedtailor
from fedtailor.learning import TrainingSettings
from fedtailor.methods import Payload, find
from fedtailor.models import Inputs, ModelSettings
from fedtailor.models import build as build_network
from tests.support.bench import RESNET, Bench
from tests.support.problem import HEAD, HERE, W, ends, equal, make, near, on_product, play, targets


class Scaled(nn.Sequential):
    """f(x) = h g at x = 1, with the scale g = 1 of a normalisation layer and the weight h = 2."""

    def __init__(self) -> None:
        super().__init__(nn.RMSNorm(1, eps=0.0), nn.Linear(1, 1, bias=False))
        self[1].weight.data.fill_(2.0)


def test_hand_fedbn(tmp_path: Path) -> None:
    """The scale g of the normalisation stays as LG-FedAvg's body does, so the values are those of b and h there."""
    two = play(tmp_path / "2", make("fedbn"), targets(*HERE), "tests.methods.test_fedbn:Scaled", lr=0.1)
    one = play(tmp_path / "1", make("fedbn"), targets(*HERE), "tests.methods.test_fedbn:Scaled", lr=0.1, rounds=1)
    assert [one.server(HEAD), two.server(HEAD)] == near(2.1, 2.1924)
    assert [two.private(0, W), two.private(1, W)] == near(0.3354, 1.6226)
    assert two.loss("received", 1, 2) == pytest.approx(1.06**2 / 2, abs=1e-6)
    assert list(two.loop.server.weights) == [HEAD]


def test_fedbn_without_normalisation_is_fedavg(tmp_path: Path) -> None:
    assert ends(on_product(tmp_path / "1", make("fedavg"))) == ends(on_product(tmp_path / "2", make("fedbn")))
    one = play(tmp_path / "3", make("fedavg"), targets(*HERE), "tests.methods.test_fedbn:Scaled", lr=0.1)
    two = play(tmp_path / "4", make("fedbn"), targets(*HERE), "tests.methods.test_fedbn:Scaled", lr=0.1)
    assert one.server(HEAD) != two.server(HEAD)


@pytest.mark.parametrize("statistics", ["averaged", "local"])
def test_fedbn_keeps_every_normalisation_layer_also_in_shortcuts_whatever_its_name(statistics: str) -> None:
    """A library looks for "bn" in names and so averages the normalisation of ResNet's shortcuts."""
    bench = Bench(make("fedbn"), RESNET.model_copy(update={"running_statistics": statistics}))
    layers = dict(bench.network.module.named_modules())
    normal = {name for name in bench.network.names if isinstance(layers[name.rpartition(".")[0]], nn.BatchNorm2d)}
    assert len({name for name in normal if "shortcut" in name}) == 3 * 5  # 3 shortcuts; scale, shift, mean, var, count
    reply = Payload.unpack(bench.round(0).reply or b"")
    assert reply["model"].keys() == set(bench.network.names) - normal
    assert bench.private(0).keys() == normal


def test_fedbn_gives_a_client_its_normalisation_back_to_the_bit() -> None:
    """Without training, a client's private part stays the same, even if other clients use the worker in between."""
    trained, idle = Bench(make("fedbn"), RESNET), Bench(make("fedbn"), RESNET, epochs=0)
    for client in (0, 1):
        trained.round(client)
        idle.states[client] = trained.states[client]
    for client in (0, 1):
        idle.round(client, 2, idle.moved())
        assert equal(idle.private(client), trained.private(client))
    assert not equal(trained.private(0), trained.private(1))


def test_fedbn_changes_the_numbers_of_a_network_with_normalisation(tmp_path: Path) -> None:
    losses = set()
    for name in ("fedavg", "fedbn"):
        experiment = {
            "rounds": 2,
            "method": {"name": name},
            "data": {"clients": 3, "samples": 100},
            "model": {"name": "resnet18-bn", "arguments": {"width": 2}},
            "training": {"lr": 0.05, "epochs": 1},
            "engine": {"kind": "inline"},
        }
        with fedtailor.run(experiment, folder=tmp_path / name) as run:
            losses.add(run.last()["final"].loss)
    assert len(losses) == 2


def test_fedbn_warns_when_there_is_nothing_to_keep() -> None:
    """On a network without normalisation layers it is FedAvg, and says so."""
    inputs, training = Inputs((1, 8, 8), 10), TrainingSettings()
    plain = build_network(ModelSettings(), inputs, 0)
    normalised = build_network(ModelSettings(name="resnet18-bn"), inputs, 0)
    assert "FedAvg" in (find("fedbn")().misfit(training, plain) or "")
    assert find("fedbn")().misfit(training, normalised) is None
