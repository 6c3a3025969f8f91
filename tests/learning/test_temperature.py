"""One temperature makes probabilities honest, from validation samples only, and changes no prediction."""

import math

import pytest
import torch

from fedtailor.learning.objectives import probabilities
from fedtailor.learning.temperature import calibrate, log_probabilities


def test_hand_temperature() -> None:
    """Three of four samples are right by a difference of 2: exp(2 / T) = 3, so T = 2 / ln 3.

    The log-loss is then the entropy of 3/4: -(3 ln 0.75 + ln 0.25) / 4.
    """
    outputs = torch.tensor([[2.0, 0.0]] * 4)
    found = calibrate(outputs, torch.tensor([0, 0, 0, 1]), "cross-entropy")
    assert found.temperature == pytest.approx(2 / math.log(3), rel=1e-6)
    assert found.after == pytest.approx(-(3 * math.log(0.75) + math.log(0.25)) / 4)
    assert found.before == pytest.approx((3 * math.log1p(math.exp(-2)) + math.log1p(math.exp(2))) / 4)
    assert found.samples == 4
    assert found.missing == ""


def test_hand_temperature_of_a_binary_loss() -> None:
    """The sigmoids of 2 / T and -2 / T are s and 1 - s, so the first class has s: exp(2 / T) = 3 as above."""
    outputs = torch.tensor([[2.0, -2.0]] * 4)
    found = calibrate(outputs, torch.tensor([0, 0, 0, 1]), "binary-cross-entropy")
    assert found.temperature == pytest.approx(2 / math.log(3), rel=1e-6)


def test_a_temperature_that_outputs_were_multiplied_by_is_found() -> None:
    stream = torch.Generator().manual_seed(0)
    honest = 2 * torch.randn(4000, 5, generator=stream, dtype=torch.float64)
    targets = torch.multinomial(honest.softmax(1), 1, generator=stream).squeeze(1)
    first, second = (calibrate(factor * honest, targets, "cross-entropy") for factor in (1.0, 3.0))
    assert first.temperature == pytest.approx(1, abs=0.05)
    assert second.temperature == pytest.approx(3 * first.temperature, rel=1e-6)
    assert second.after == pytest.approx(first.after)
    assert second.before > second.after + 0.1


@pytest.mark.parametrize(
    ("outputs", "targets", "reason"),
    [
        (torch.zeros(0, 3), [], "no validation samples"),
        (torch.tensor([[2.0, 0.0], [0.0, 1.0]]), [0, 1], "0 of which the model gets wrong"),  # it would be 0
        (torch.tensor([[2.0, 0.0], [0.0, 1.0]]), [1, 0], "2 of which the model gets wrong"),  # it would be infinite
        (torch.tensor([[math.nan, 0.0]]), [0], "not finite"),
    ],
)
def test_what_cannot_be_calibrated_says_why(outputs: torch.Tensor, targets: list[int], reason: str) -> None:
    found = calibrate(outputs, torch.tensor(targets, dtype=torch.int64), "cross-entropy")
    assert found.temperature == 1
    assert reason in found.as_dict()["not_calibrated"]


@pytest.mark.parametrize("loss", ["cross-entropy", "binary-cross-entropy"])
def test_probabilities_are_those_of_the_measures(loss: str) -> None:
    outputs = torch.randn(50, 4, generator=torch.Generator().manual_seed(0))
    found = log_probabilities(loss, outputs, 1.0).exp()
    torch.testing.assert_close(found, probabilities(loss, outputs))
    assert torch.equal(log_probabilities(loss, outputs, 3.0).argmax(1), outputs.argmax(1))
    assert log_probabilities(loss, torch.full((1, 4), -1e4), 0.05).exp().tolist() == [[0.25] * 4]
