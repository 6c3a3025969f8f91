"""Hand-derived values, identities and mechanisms of FedPHP."""

from pathlib import Path

import pytest
import torch
from torch import Tensor, nn

from fedtailor.methods.fedphp import discrepancy
from fedtailor.seeding import torch_stream
from tests.support.problem import BODY, HEAD, HERE, ends, make, near, on_product, play, targets


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
    model, more = "tests.methods.test_fedphp:Unsplittable", {"lr": 0.1}
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
