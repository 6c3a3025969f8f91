"""Hand-derived values, identities and mechanisms of the methods that treat parts of the model differently.

fedrep, fedbabu, lg-fedavg, fedbn, fedphp, fedpac, fedala; as in test_first_methods client 0 has one sample with
target 0 and client 1 three with target 4, so that a mean by data size has the weights 1/4 and 3/4. Most follow
f = h b at x = 1 from body b = 1 and head h = 2 with learning rate 1/10: with r = h b - a a step is
b -= h r / 10, h -= b r / 10.
"""

import itertools
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from problem import Played, equal, play, targets
from torch import Tensor, nn

import fedtailor
from fedtailor.data import DataSettings, Federation, Samples, Shares, build
from fedtailor.engines import Job, Result, Task
from fedtailor.engines.worker import Worker
from fedtailor.learning import TrainingSettings
from fedtailor.messages.trees import unpack
from fedtailor.methods import Memory, Method, Moment, Payload, Replies, Server, find
from fedtailor.methods.fedpac import _centroids, combinations
from fedtailor.methods.fedphp import discrepancy
from fedtailor.methods.simplex import smallest
from fedtailor.models import Inputs, ModelSettings, Network
from fedtailor.models import build as build_network
from fedtailor.seeding import torch_stream

HERE = ([0.0], [4.0, 4.0, 4.0])
W = "0.weight"
BODY, HEAD = "0.weight", "1.weight"
PRODUCT = "problem:Product"


def make(name: str, **settings: object) -> Method:
    return find(name)(**settings)


def near(*values: float) -> Any:
    return pytest.approx(list(values), abs=1e-6)


def on_product(folder: Path, method: Method, **more: Any) -> Played:
    return play(folder, method, targets(*HERE), PRODUCT, **{"lr": 0.1, **more})


def ends(played: Played) -> list[float]:
    """What the server holds and what every client would deploy."""
    names = list(played.loop.server.network.names)
    deployed = [played.personal(client, name) for client in (0, 1) for name in names]
    return [float(tensor) for tensor in played.loop.server.weights.values()] + deployed


def everything(name: str, **settings: object) -> Method:
    """The method with its private part shared as well."""

    class Everything(find(name)):  # type: ignore[misc]
        name = ""
        shares = "all"

    return Everything(**settings)


class Scaled(nn.Sequential):
    """f(x) = h g at x = 1, with the scale g = 1 of a normalisation layer and the weight h = 2."""

    def __init__(self) -> None:
        super().__init__(nn.RMSNorm(1, eps=0.0), nn.Linear(1, 1, bias=False))
        self[1].weight.data.fill_(2.0)


class Headless(nn.Sequential):
    """f(x) = c b a x in three layers, from a = b = 1 and c = 2."""

    def __init__(self) -> None:
        super().__init__(*(nn.Linear(1, 1, bias=False) for _ in range(3)))
        for layer, value in zip(self, (1.0, 1.0, 2.0), strict=True):
            layer.weight.data.fill_(value)


class Unsplittable(nn.Module):
    """f(x) = c h b x: the head h is not the last thing it computes."""

    def __init__(self) -> None:
        super().__init__()
        self.body, self.scale = nn.Linear(1, 1, bias=False), nn.Parameter(torch.tensor(1.5))
        self.head = nn.Linear(1, 1, bias=False)
        for layer in (self.body, self.head):
            layer.weight.data.fill_(1.0)

    def forward(self, x: Tensor) -> Tensor:
        return self.scale * self.head(self.body(x))


class Bench:
    """A worker in which clients take their rounds one by one, each from where it left off."""

    def __init__(self, method: Method, model: ModelSettings | None = None, epochs: int = 1, batch_size: int = 10):
        federation = build(DataSettings.model_validate({"clients": 4, "samples": 200}), 0)
        training = TrainingSettings(lr=0.05, epochs=epochs, batch_size=batch_size)
        self.worker = Worker(Job(method, model or ModelSettings(), training, 0, federation))
        self.network, self.initial = self.worker.network, self.worker.initial
        self.states: dict[int, bytes | None] = {}

    def round(self, client: int, round: int = 1, weights: dict[str, Tensor] | None = None) -> Result:
        """Receive the initial weights, or these, and train."""
        given = self.initial if weights is None else weights
        payload = Payload({"model": {n: t for n, t in given.items() if n in self.worker.shared}}).pack()
        task = Task("fit", 0, Moment(0, round=round, rounds=3), client, payload, self.states.get(client))
        result = self.worker.execute(task)
        assert result.failure is None, result.details
        self.states[client] = result.state
        return result

    def private(self, client: int) -> dict[str, Tensor]:
        state = self.states[client]
        return unpack(state)["private"] if state else {}

    def moved(self) -> dict[str, Tensor]:
        """Other weights than the initial ones."""
        return {n: t + 0.1 if t.is_floating_point() else t for n, t in self.initial.items()}


# FedRep


def test_hand_fedrep(tmp_path: Path) -> None:
    """One step on h, then one on b under the new h.

    Round 1: r = 2, -2: h = 1.8, 2.2; then r = 1.8, -1.8: b = 1 - 0.324 = 0.676, 1 + 0.396 = 1.396; body 1.216.
    Round 2: r = 2.1888, -1.3248: h = 1.8 - 0.26615808 = 1.53384192, 2.2 + 0.16109568 = 2.36109568; then
    r = 1.86515177, -1.12890765: b = 1.216 - 0.28608480 = 0.92991520, 1.216 + 0.26654590 = 1.48254590;
    body 0.23247880 + 1.11190942 = 1.34438822.
    """
    method = make("fedrep", head_epochs=1)
    one, two = on_product(tmp_path / "1", method, rounds=1), on_product(tmp_path / "2", method)
    assert one.server(BODY) == pytest.approx(1.216, abs=1e-6)
    assert [one.private(0, HEAD), one.private(1, HEAD)] == near(1.8, 2.2)
    assert two.server(BODY) == pytest.approx(1.34438822, abs=1e-6)
    assert [two.private(0, HEAD), two.private(1, HEAD)] == near(1.53384192, 2.36109568)
    assert two.loss("received", 0, 2) == pytest.approx(2.1888**2 / 2, abs=1e-6)  # the mean body, its own head
    assert two.loss("held", 0, 2) == pytest.approx((1.53384192 * 0.92991520) ** 2 / 2, abs=1e-6)
    assert list(two.loop.server.weights) == [BODY]
    assert two.loop.method.models(two.loop.server) == {}


def test_fedrep_without_head_epochs_is_fedbabu_before_its_fine_tuning(tmp_path: Path) -> None:
    fedrep = on_product(tmp_path / "1", make("fedrep", head_epochs=0), epochs=2)
    fedbabu = on_product(tmp_path / "2", make("fedbabu"), epochs=2)
    other = on_product(tmp_path / "3", make("fedrep", head_epochs=1), epochs=2)
    assert fedrep.server(BODY) == fedbabu.server(BODY) != other.server(BODY)
    for client in (0, 1):
        assert fedrep.private(client, HEAD) == fedbabu.private(client, HEAD) == 2.0 != other.private(client, HEAD)
        assert fedrep.loss("received", client, 2) == fedbabu.loss("received", client, 2)


def test_fedrep_obeys_its_number_of_head_epochs_and_the_runs_number_of_body_epochs(tmp_path: Path) -> None:
    """A library reads the setting under its value instead of its name and ignores it."""
    bodies = {
        (head, body): on_product(tmp_path / f"{head}{body}", make("fedrep", head_epochs=head), rounds=1, epochs=body)
        for head, body in itertools.product((1, 2), (1, 2))
    }
    assert len({played.server(BODY) for played in bodies.values()}) == 4
    assert bodies[1, 1].private(0, HEAD) == bodies[1, 2].private(0, HEAD) != bodies[2, 1].private(0, HEAD)


# FedBABU


def test_hand_fedbabu(tmp_path: Path) -> None:
    """h = 2 stays: b -> b - (2 b - a) / 5 = 0.6 b + 0.2 a, so the mean goes 0.6 b + 0.6: 1 -> 1.2 -> 1.32.

    Final pass: both receive 1.32 and fine-tune *that* for one step on body and head: r = 2.64, -1.36:
    b = 1.32 - 0.528 = 0.792, 1.32 + 0.272 = 1.592; h = 2 - 0.34848 = 1.65152, 2 + 0.17952 = 2.17952.
    """
    one = on_product(tmp_path / "1", make("fedbabu", ft_epochs=1), rounds=1)
    two = on_product(tmp_path / "2", make("fedbabu", ft_epochs=1))
    assert [one.server(BODY), two.server(BODY)] == near(1.2, 1.32)
    assert [two.private(0, HEAD), two.private(1, HEAD)] == [2.0, 2.0]
    assert [two.personal(0, BODY), two.personal(1, BODY)] == near(0.792, 1.592)
    assert [two.personal(0, HEAD), two.personal(1, HEAD)] == near(1.65152, 2.17952)
    # the global model is whole: everyone has the initial head
    assert two.loss("global", 1, 2) == pytest.approx(1.36**2 / 2, abs=1e-6)
    # held in round 2: the received 1.2 after fine-tuning, r = 2.4: b = 0.72, h = 1.712
    assert two.loss("held", 0, 2) == pytest.approx((0.72 * 1.712) ** 2 / 2, abs=1e-6)


@pytest.mark.parametrize(("part", "body", "head"), [("body", 0.792, 2.0), ("head", 1.32, 1.65152)])
def test_fedbabu_fine_tunes_the_part_it_is_told(part: str, body: float, head: float, tmp_path: Path) -> None:
    played = on_product(tmp_path / "run", make("fedbabu", ft_epochs=1, ft_part=part))
    assert [played.personal(0, BODY), played.personal(0, HEAD)] == near(body, head)


def test_fedbabu_fine_tunes_at_its_own_rate(tmp_path: Path) -> None:
    """A tenth of the step of 1.32 - 0.528 and 2 - 0.34848."""
    played = on_product(tmp_path / "run", make("fedbabu", ft_epochs=1, ft_lr=0.01))
    assert [played.personal(0, BODY), played.personal(0, HEAD)] == near(1.2672, 1.965152)


def test_fine_tuning_leaves_no_trace_in_the_federation(tmp_path: Path) -> None:
    bodies = {on_product(tmp_path / str(n), make("fedbabu", ft_epochs=n)).server(BODY) for n in (0, 1, 7)}
    assert len(bodies) == 1


# LG-FedAvg


def test_hand_lg_fedavg(tmp_path: Path) -> None:
    """FedPer's mirror. Round 1: b = 0.6, 1.4, h = 1.8, 2.2; head 0.45 + 1.65 = 2.1.

    Round 2: r = 1.26, -1.06: b = 0.6 - 0.2646 = 0.3354, 1.4 + 0.2226 = 1.6226;
    h = 2.1 - 0.0756 = 2.0244, 2.1 + 0.1484 = 2.2484; head 0.5061 + 1.6863 = 2.1924.
    """
    one, two = on_product(tmp_path / "1", make("lg-fedavg"), rounds=1), on_product(tmp_path / "2", make("lg-fedavg"))
    assert [one.server(HEAD), two.server(HEAD)] == near(2.1, 2.1924)
    assert [two.private(0, BODY), two.private(1, BODY)] == near(0.3354, 1.6226)
    assert two.loss("received", 1, 2) == pytest.approx(1.06**2 / 2, abs=1e-6)
    assert list(two.loop.server.weights) == [HEAD]


def test_lg_fedavg_with_everything_in_the_head_is_fedavg(tmp_path: Path) -> None:
    """The one layer of Scalar is its head."""
    fedavg = play(tmp_path / "1", make("fedavg"), targets(*HERE))
    assert ends(fedavg) == ends(play(tmp_path / "2", make("lg-fedavg"), targets(*HERE)))
    assert on_product(tmp_path / "3", make("fedavg")).server(HEAD) != on_product(
        tmp_path / "4", make("lg-fedavg")
    ).server(HEAD)


# FedBN


def test_hand_fedbn(tmp_path: Path) -> None:
    """The scale g of the normalisation stays as LG-FedAvg's body does, so the values are those of b and h there."""
    two = play(tmp_path / "2", make("fedbn"), targets(*HERE), "test_part_methods:Scaled", lr=0.1)
    one = play(tmp_path / "1", make("fedbn"), targets(*HERE), "test_part_methods:Scaled", lr=0.1, rounds=1)
    assert [one.server(HEAD), two.server(HEAD)] == near(2.1, 2.1924)
    assert [two.private(0, W), two.private(1, W)] == near(0.3354, 1.6226)
    assert two.loss("received", 1, 2) == pytest.approx(1.06**2 / 2, abs=1e-6)
    assert list(two.loop.server.weights) == [HEAD]


def test_fedbn_without_normalisation_is_fedavg(tmp_path: Path) -> None:
    assert ends(on_product(tmp_path / "1", make("fedavg"))) == ends(on_product(tmp_path / "2", make("fedbn")))
    one = play(tmp_path / "3", make("fedavg"), targets(*HERE), "test_part_methods:Scaled", lr=0.1)
    two = play(tmp_path / "4", make("fedbn"), targets(*HERE), "test_part_methods:Scaled", lr=0.1)
    assert one.server(HEAD) != two.server(HEAD)


RESNET = ModelSettings(name="resnet18-bn", arguments={"width": 2})


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
    """With no training in between, what a client keeps does not change, whoever used the worker before."""
    trained, idle = Bench(make("fedbn"), RESNET), Bench(make("fedbn"), RESNET, epochs=0)
    for client in (0, 1):
        trained.round(client)
        idle.states[client] = trained.states[client]
    for client in (0, 1):
        idle.round(client, 2, idle.moved())
        assert equal(idle.private(client), trained.private(client))
    assert not equal(trained.private(0), trained.private(1))


# FedPHP


def test_hand_fedphp(tmp_path: Path) -> None:
    """lam = mu = 1/2, T = 2 rounds; all samples are x = 1, so MMD^2(b, p) = 8 - 2 sum_a exp(-(b - p)^2 / 2a) and its
    gradient is G(d) = 2 sum_a d/a exp(-d^2 / 2a) with d = b - p and a = 10, 15, 20, 50.

    Round 1, nothing inherited: (b, h) = (0.6, 1.8), (1.4, 2.2) = p; global (1.2, 2.1).
    Round 2: r = 2.52, -1.48; d = 0.6, -0.2; G = 0.28028124, -0.09452803.
    b = 1.2 - (2.646 + 0.14014062)/10 = 0.92138594, 1.2 + (1.554 + 0.04726401)/10 = 1.36012640;
    h = 2.1 - 0.1512 = 1.9488, 2.1 + 0.0888 = 2.1888. mu_2 = 1/2: p = (0.76069297, 1.8744), (1.38006320, 2.1944).
    Global: b = 0.23034648 + 1.02009480 = 1.25044129, h = 0.4872 + 1.6416 = 2.1288.
    """
    method = make("fedphp", lam=0.5, mu=0.5)
    one, two = on_product(tmp_path / "1", method, rounds=1), on_product(tmp_path / "2", method)
    assert [one.server(BODY), one.server(HEAD)] == near(1.2, 2.1)
    assert [two.server(BODY), two.server(HEAD)] == near(1.25044129, 2.1288)
    inherited = [two.state(client)["inherited"] for client in (0, 1)]
    assert [float(p[BODY]) for p in inherited] == near(0.76069297, 1.38006320)
    assert [float(p[HEAD]) for p in inherited] == near(1.8744, 2.1944)
    # the inherited model is the one to deploy; what is received is the global one
    assert two.loss("held", 0, 2) == pytest.approx((0.76069297 * 1.8744) ** 2 / 2, abs=1e-6)
    assert two.loss("received", 0, 2) == pytest.approx(2.52**2 / 2, abs=1e-6)


def test_fedphp_that_neither_transfers_nor_inherits_is_fedavg(tmp_path: Path) -> None:
    fedavg = on_product(tmp_path / "1", make("fedavg"))
    assert ends(fedavg) == ends(on_product(tmp_path / "2", make("fedphp", lam=0.0, mu=0.0)))
    inherits = on_product(tmp_path / "3", make("fedphp", lam=0.0, mu=0.5))
    assert inherits.server(BODY) == fedavg.server(BODY)  # the federation is FedAvg's, the deployed models are not
    assert inherits.personal(0, BODY) != fedavg.personal(0, BODY)
    assert on_product(tmp_path / "4", make("fedphp", lam=0.1, mu=0.0)).server(BODY) != fedavg.server(BODY)


def test_fedphps_defaults_train_the_head_and_inherit(tmp_path: Path) -> None:
    """A library's defaults multiply the loss by zero, so that the head never changes, and inherit nothing."""
    default = on_product(tmp_path / "1", make("fedphp"))
    assert abs(default.server(HEAD) - 2.0) > 0.01
    assert default.personal(0, BODY) != on_product(tmp_path / "2", make("fedphp", mu=0.0)).personal(0, BODY)
    assert make("fedphp").inert() is None
    off = on_product(tmp_path / "3", make("fedphp", lam=1.0))
    once = on_product(tmp_path / "4", make("fedphp", lam=1.0), rounds=1)
    assert off.server(HEAD) == once.server(HEAD)  # after the first round, which has nothing to learn from
    assert "not trained" in (make("fedphp", lam=1.0).inert() or "")


def test_fedphp_uses_outputs_where_there_are_no_features(tmp_path: Path) -> None:
    model, more = "test_part_methods:Unsplittable", {"lr": 0.1}
    plain = play(tmp_path / "1", make("fedavg"), targets(*HERE), model, **more)
    taught = play(tmp_path / "2", make("fedphp", lam=0.5), targets(*HERE), model, **more)
    assert taught.server("body.weight") != plain.server("body.weight")


def test_the_discrepancy_is_zero_for_equal_sets_and_otherwise_that_of_its_definition() -> None:
    stream = torch_stream("discrepancy")
    one, other = (torch.randn(6, 3, generator=stream, dtype=torch.float64) * 3 for _ in range(2))
    assert float(discrepancy(one, one.flip(0))) == pytest.approx(0.0, abs=1e-12)

    def kernel(a: Tensor, b: Tensor) -> float:
        return sum(float(torch.exp(-((a - b) ** 2).sum() / (2 * width))) for width in (10, 15, 20, 50))

    def average(a: Tensor, b: Tensor) -> float:
        return sum(kernel(x, y) for x in a for y in b) / (len(a) * len(b))

    expected = average(one, one) + average(other, other) - 2 * average(one, other)
    assert float(discrepancy(one, other)) == pytest.approx(expected, abs=1e-12)


# FedPAC


def lines(*clients: tuple[list[float], list[float]]) -> Federation:
    """A regression with inputs and targets for each client, which are also its test data."""
    x = np.array([x for xs, _ in clients for x in xs], dtype=np.float32)[:, None]
    y = np.array([y for _, ys in clients for y in ys], dtype=np.float32)[:, None]
    count = len(x)
    samples = Samples(
        x=np.concatenate([x, x]), y=np.concatenate([y, y]), classes=(), official_test=np.zeros(2 * count, dtype=bool)
    )
    offsets = np.cumsum([0, *(len(xs) for xs, _ in clients)]).astype(np.int64)
    first = np.arange(count, dtype=np.int64)
    nobody = Shares(np.zeros(0, dtype=np.int64), np.zeros(len(clients) + 1, dtype=np.int64))
    return Federation(samples, Shares(first, offsets), nobody, Shares(first + count, offsets))


TWO_LINES = (([1.0, 3.0], [0.0, 0.0]), ([0.0, 0.0, 3.0], [0.0, 0.0, 9.0]))


def test_hand_fedpac(tmp_path: Path) -> None:
    """f = h b x, lr 1/10, lam 1, one class. Client 0: x = 1, 3, y = 0: E x = 2, E x^2 = 5, E xy = 0.
    Client 1: x = 0, 0, 3, y = 0, 0, 9: E x = 1, E x^2 = 3, E xy = 9. Weights by data size 2/5, 3/5.
    The gradients are h b^2 Exx - b Exy for h and h^2 b Exx - h Exy (+ 2 (b Exx - c Ex) with a centroid c) for b.

    Round 1 from b = 1, h = 2, no centroid yet: h = 2 - 1 = 1 and 2 + 0.3 = 2.3; b = 1 - 0.5 = 0.5 and
    1 + 0.483 = 1.483; body 0.2 + 0.8898 = 1.0898. Features of the received body: H = 2, 1 and
    V = (5 - 4)/2 = 1/2, (3 - 1)/3 = 2/3, so D between the two is 1. Client 0 minimises
    1/2 a^2 + (1 + 2/3)(1 - a)^2: a = 10/13, head (10 * 1 + 3 * 2.3)/13 = 1.3; client 1 minimises
    2/3 a^2 + (1 + 1/2)(1 - a)^2: a = 9/13, head (4 * 1 + 9 * 2.3)/13 = 1.9.
    Centroid: (2 * 2 * 0.5 + 3 * 1 * 1.483)/5 = 1.2898.
    Round 2: h = 1.3 - 0.77198163 = 0.52801837, 1.9 + 0.30385150 = 2.20385150; b = 1.0898 - 0.15192038 - 1.0898
    + 0.51592 = 0.36400003, 1.0898 + 0.39555138 - 0.65388 + 0.25796 = 1.08941138; body 0.79924684.
    H and V have grown by b and b^2, so the weights are the same: heads 0.91474909, 1.68821054;
    centroid (4 * 0.36400003 + 3 * 1.08941138)/5 = 0.94484685.
    """
    settings = {"federation": lines(*TWO_LINES), "model": PRODUCT, "lr": 0.1}
    one = play(tmp_path / "1", make("fedpac"), rounds=1, **settings)  # type: ignore[arg-type]
    two = play(tmp_path / "2", make("fedpac"), **settings)  # type: ignore[arg-type]
    assert [one.server(BODY), one.server(HEAD)] == near(1.0898, 1.78)
    assert own_heads(one) == near(1.3, 1.9)
    assert float(one.loop.server.state["prototypes"]["means"]) == pytest.approx(1.2898, abs=1e-6)
    assert two.server(BODY) == pytest.approx(0.79924684, abs=1e-6)
    assert own_heads(two) == near(0.91474909, 1.68821054)
    assert float(two.loop.server.state["prototypes"]["means"]) == pytest.approx(0.94484685, abs=1e-6)
    # received in round 2: f = 1.3 * 1.0898 x on x = 1, 3 with targets 0
    assert two.loss("received", 0, 2) == pytest.approx((1.3 * 1.0898) ** 2 * 5 / 2, abs=1e-5)
    assert two.store.state_keys("client") == []


def own_heads(played: Played) -> list[float]:
    return [float(played.loop.server.memory.peek(client)["head"][HEAD]) for client in (0, 1)]


def pac_ends(folder: Path, method: Method, **more: Any) -> list[float]:
    return ends(play(folder, method, lines(*TWO_LINES), PRODUCT, lr=0.1, epochs=2, rounds=3, **more))


def test_fedpac_without_alignment_and_with_own_heads_is_fedrep(tmp_path: Path) -> None:
    fedrep = play(tmp_path / "1", make("fedrep", head_epochs=1), lines(*TWO_LINES), PRODUCT, lr=0.1)
    fedpac = play(tmp_path / "2", make("fedpac", lam=0.0, heads="own"), lines(*TWO_LINES), PRODUCT, lr=0.1)
    assert fedpac.server(BODY) == fedrep.server(BODY)
    assert own_heads(fedpac) == [fedrep.private(0, HEAD), fedrep.private(1, HEAD)]
    for client, name in itertools.product((0, 1), (BODY, HEAD)):
        assert fedpac.personal(client, name) == fedrep.personal(client, name)
    for more in ({"lam": 0.5, "heads": "own"}, {"lam": 0.0, "heads": "optimal"}):
        other = play(tmp_path / str(more), make("fedpac", **more), lines(*TWO_LINES), PRODUCT, lr=0.1)
        assert other.server(BODY) != fedrep.server(BODY)


def test_fedpac_without_alignment_and_with_mean_heads_is_fedrep_that_shares_its_head(tmp_path: Path) -> None:
    shared = pac_ends(tmp_path / "1", everything("fedrep", head_epochs=1))
    assert pac_ends(tmp_path / "2", make("fedpac", lam=0.0, heads="mean")) == shared
    assert pac_ends(tmp_path / "3", make("fedpac", lam=0.0)) != shared
    assert pac_ends(tmp_path / "4", make("fedpac", heads="mean")) != shared


def test_fedpac_serves_clients_by_their_place_in_the_cohort_not_by_their_id() -> None:
    """A library indexes heads by client id, and sizes its programme by who did not drop out."""
    method = make("fedpac")
    network = Network(nn.Sequential(nn.Linear(1, 1, bias=False), nn.Linear(1, 1, bias=False)), ("1",), Inputs((1,), 1))
    server = Server(
        network,
        (5,) * 10,
        TrainingSettings(),
        Moment(0, round=1, rounds=3),
        network.part("all"),
        Memory(lambda _: None, set()),
    )

    def reply(head: float, joint: float, variance: float) -> Payload:
        groups = {
            "model": {BODY: torch.ones(1, 1), HEAD: torch.tensor([[head]])},
            "prototypes": {"means": torch.ones(1, 1), "counts": torch.tensor([5])},
            "statistics": {"H": torch.tensor([[joint]])},
        }
        return Payload(groups, {"samples": 5, "variance": variance})

    failed = {2: "dropped out"}
    method.finish(server, Replies({9: reply(2.3, 1.0, 2 / 3), 4: reply(1.0, 2.0, 1 / 2)}, failed))
    assert list(server.memory) == [4, 9]
    payloads = method.prepare(server, [2, 4, 9])
    assert isinstance(payloads, dict)
    # 4 and 9 as clients 0 and 1 of the derivation by hand; client 2 gets the mean of the last heads
    assert [float(payloads[client]["model"][HEAD]) for client in (2, 4, 9)] == near(1.65, 1.3, 1.9)


def test_centroids_are_weighted_by_class_counts_and_kept_for_classes_nobody_has_now() -> None:
    def reply(means: list[float], counts: list[int]) -> dict[str, Tensor]:
        return {"means": torch.tensor(means)[:, None], "counts": torch.tensor(counts)}

    first = _centroids([reply([1.0, 7.0, 0.0], [1, 2, 0]), reply([5.0, 0.0, 0.0], [3, 0, 0])], None)
    assert first["means"].flatten().tolist() == [4.0, 7.0, 0.0]
    assert first["counts"].tolist() == [4, 2, 0]  # the third class is unknown and aligns nothing
    second = _centroids([reply([0.0, 0.0, 3.0], [0, 0, 1])], first)
    assert second["means"].flatten().tolist() == [4.0, 7.0, 3.0]


def test_head_weights_are_those_of_the_matrices_written_out() -> None:
    """D_i as traces of d x d matrices, the way the paper writes them."""
    stream = torch_stream("heads")
    joint = torch.randn(5, 3, 4, generator=stream, dtype=torch.float64)  # (clients, classes, features)
    variances = torch.rand(5, generator=stream, dtype=torch.float64)
    found = combinations(joint, variances)
    for i in range(5):
        gaps = joint[i] - joint
        form = torch.diag(variances)
        for j, k in itertools.product(range(5), repeat=2):
            form[j, k] += sum(torch.trace(torch.outer(gaps[j, c], gaps[k, c])) for c in range(3))
        torch.testing.assert_close(found[i], smallest(form), rtol=0, atol=1e-9)
    assert not torch.allclose(found, found[0].expand(5, 5), atol=1e-3)


# The quadratic programme


def forms() -> list[Tensor]:
    """Forms of many sizes and ranks: Gram matrices with and without a diagonal, with duplicates, and tiny ones."""
    stream = torch_stream("forms")
    found = [torch.zeros(3, 3), torch.ones(1, 1), torch.ones(4, 4)]
    for size, rank in ((2, 1), (3, 2), (4, 4), (5, 1), (6, 3), (7, 9), (8, 2)):
        factor = torch.randn(size, rank, generator=stream, dtype=torch.float64)
        gram = factor @ factor.T
        doubled = torch.cat([factor, factor[:1]])
        found += [gram, gram + torch.diag(torch.rand(size, generator=stream)), gram * 1e-12, doubled @ doubled.T]
        shifted = factor + 2.0  # the hull is away from zero, so the minimum is a face
        found += [shifted @ shifted.T, gram + 1e3]
    return found


def brute_force(form: Tensor) -> float:
    """The least value over every support whose minimum lies in the simplex."""
    best = float(form.diagonal().min())
    for count in range(2, len(form) + 1):
        for support in itertools.combinations(range(len(form)), count):
            part = form[list(support)][:, list(support)].double()
            system = torch.ones(count + 1, count + 1, dtype=torch.float64)
            scale = float(part.diagonal().max()) or 1.0
            system[:count, :count], system[count, count] = part / scale, 0.0
            right = torch.zeros(count + 1, dtype=torch.float64)
            right[count] = 1.0
            weights = (torch.linalg.pinv(system) @ right)[:count]
            if (weights >= 0).all() and abs(float(weights.sum()) - 1) < 1e-9:
                best = min(best, float(weights @ part @ weights))
    return best


@pytest.mark.parametrize("form", forms(), ids=lambda form: f"{len(form)}")
def test_the_programme_finds_the_minimum_of_all_supports(form: Tensor) -> None:
    weights = smallest(form)
    scale = max(float(form.diagonal().max()), 1e-300)
    assert (weights >= 0).all()
    assert float(weights.sum()) == pytest.approx(1.0, abs=1e-12)
    assert float(weights @ form.double() @ weights) / scale == pytest.approx(brute_force(form) / scale, abs=1e-9)


@pytest.mark.parametrize(("size", "rank"), [(30, 5), (60, 60), (100, 300), (100, 3)])
@pytest.mark.parametrize("shift", [0.0, 1.0])
def test_large_programmes_meet_the_conditions_of_the_minimum(size: int, rank: int, shift: float) -> None:
    """On the support the slope equals the value, elsewhere it is not smaller (Karush, Kuhn, Tucker)."""
    factor = torch.randn(size, rank, generator=torch_stream(size, rank), dtype=torch.float64) + shift
    form = factor @ factor.T
    weights = smallest(form)
    slopes, value = form @ weights, float(weights @ form @ weights)
    scale = float(form.diagonal().max())
    assert (weights >= 0).all()
    assert float(weights.sum()) == pytest.approx(1.0, abs=1e-12)
    assert ((slopes - value) / scale >= -1e-9).all()
    assert ((slopes - value)[weights > 0].abs() / scale <= 1e-9).all()
    assert torch.equal(smallest(form), weights)


# FedALA


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
        tmp_path / "run", make("fedala", layers=layers), targets(*HERE), "test_part_methods:Headless", lr=0.05
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


# What stays, stays to the bit


@pytest.mark.parametrize(
    ("method", "epochs", "frozen"),
    [
        (lambda: make("fedbabu"), 2, "head"),
        (lambda: make("fedrep", head_epochs=0), 2, "head"),
        (lambda: make("fedrep", head_epochs=2), 0, "body"),
        (lambda: make("fedpac", head_epochs=0), 2, "head"),
        (lambda: make("fedpac", head_epochs=2), 0, "body"),
    ],
    ids=["fedbabu", "fedrep-body", "fedrep-head", "fedpac-body", "fedpac-head"],
)
def test_a_frozen_part_stays_to_the_bit_with_its_statistics(
    method: Callable[[], Method], epochs: int, frozen: Any
) -> None:
    bench = Bench(method(), RESNET, epochs=epochs)
    reply = Payload.unpack(bench.round(0).reply or b"")
    whole = {**reply["model"], **bench.private(0)}
    changed = {name for name in whole if not torch.equal(whole[name], bench.initial[name])}
    assert changed
    assert changed <= whole.keys() - bench.network.part(frozen)


# Mechanisms: on clients that differ, every idea changes the numbers


@pytest.mark.parametrize(
    ("on", "off"),
    [
        (("fedrep", {}), ("fedper", {})),
        (("fedbabu", {}), ("fedper", {})),
        (("lg-fedavg", {}), ("fedavg", {})),
        (("fedphp", {}), ("fedphp", {"lam": 0.0})),
        (("fedphp", {}), ("fedphp", {"mu": 0.0})),
        (("fedpac", {}), ("fedpac", {"lam": 0.0})),
        (("fedpac", {}), ("fedpac", {"heads": "own"})),
        (("fedpac", {}), ("fedpac", {"heads": "mean"})),
        (("fedala", {}), ("fedala", {"eta": 0.0})),
        (("fedala", {}), ("fedala", {"layers": 1})),
        (("fedala", {}), ("fedala", {"share": 0.5})),
    ],
    ids=str,
)
def test_switching_an_idea_off_changes_the_numbers(on: Any, off: Any, tmp_path: Path) -> None:
    losses = set()
    for name, settings in (on, off):
        experiment = {
            "rounds": 3,
            "method": {"name": name, **settings},
            "data": {"clients": 4, "samples": 160, "partition": {"kind": "pathological", "classes": 3}},
            "training": {"lr": 0.05, "epochs": 1},
            "engine": {"kind": "inline"},
        }
        with fedtailor.run(experiment, folder=tmp_path / str(len(losses))) as run:
            losses.add(run.last()["final"].loss)
    assert len(losses) == 2


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


def test_settings_that_switch_a_method_off_warn() -> None:
    assert "FedBABU" in (make("fedrep", head_epochs=0).inert() or "")
    assert "global model" in (make("fedbabu", ft_epochs=0).inert() or "")
    assert "FedAvg" in (make("fedphp", lam=0.0, mu=0.0).inert() or "")
    assert "FedRep" in (make("fedpac", lam=0.0, heads="own").inert() or "")
    for name in ("fedrep", "fedbabu", "lg-fedavg", "fedbn", "fedphp", "fedpac", "fedala"):
        assert make(name).inert() is None


def test_fedbn_warns_when_there_is_nothing_to_keep() -> None:
    """On a network without normalisation layers it is FedAvg, and says so."""
    inputs, training = Inputs((1, 8, 8), 10), TrainingSettings()
    plain = build_network(ModelSettings(), inputs, 0)
    normalised = build_network(ModelSettings(name="resnet18-bn"), inputs, 0)
    assert "FedAvg" in (find("fedbn")().misfit(training, plain) or "")
    assert find("fedbn")().misfit(training, normalised) is None
