"""What a model learns from another one's outputs: values by hand and the ends of the range."""

import math

import pytest
import torch

from fedtailor.methods.distillation import distilled, divergence


def test_equal_outputs_do_not_diverge_whatever_their_level() -> None:
    """A softmax does not change when all logits move together; squared error sees the distance."""
    own = torch.tensor([[1.0, -2.0, 0.5]])
    assert divergence("cross-entropy", own, own + 7).item() == pytest.approx(0, abs=1e-6)
    assert divergence("squared-error", own, own).item() == 0.0


def test_a_divergence_by_hand() -> None:
    """(3/4, 1/4) from (1/4, 3/4): 3/4 log 3 - 1/4 log 3 = log(3) / 2. Squared error of 0 and 2: 2."""
    one, other = torch.tensor([[math.log(3), 0.0]]), torch.tensor([[0.0, math.log(3)]])
    assert divergence("cross-entropy", one, other).item() == pytest.approx(math.log(3) / 2, abs=1e-6)
    assert divergence("squared-error", torch.zeros(1, 1), torch.full((1, 1), 2.0)).item() == 2.0


def test_a_divergence_from_a_model_that_is_certain_is_finite() -> None:
    """Logits of +-100: the other model gives class 1 e^-200, so D = -log(2) + 1/2 * 200 for an even softmax."""
    certain = torch.tensor([[100.0, -100.0]])
    assert divergence("cross-entropy", torch.zeros(1, 2), certain).item() == pytest.approx(100 - math.log(2), abs=1e-4)
    assert divergence("cross-entropy", certain, torch.zeros(1, 2)).item() == pytest.approx(math.log(2), abs=1e-6)


def test_the_shares_weigh_the_two_terms() -> None:
    """Output 1, target 3, other model 2: losses (1 - 3)^2 / 2 = 2 and (1 - 2)^2 / 2 = 1/2."""
    own, other, target = (torch.full((1, 1), value) for value in (1.0, 2.0, 3.0))

    def found(hard: float, soft: float) -> float:
        return distilled("squared-error", own, other, target, hard=hard, soft=soft).item()

    assert found(1.0, 0.0) == 2.0
    assert found(0.0, 1.0) == 0.5
    assert found(0.5, 2.0) == pytest.approx(0.5 * 2 + 2 * 0.5)


def test_a_share_of_zero_leaves_its_term_out_even_if_it_is_not_finite() -> None:
    own, target = torch.ones(1, 1), torch.full((1, 1), 3.0)
    broken = torch.full((1, 1), float("nan"))
    assert distilled("squared-error", own, broken, target, hard=1.0, soft=0.0).item() == 2.0
    assert distilled("squared-error", own, own, broken, hard=0.0, soft=1.0).item() == 0.0


def test_two_shares_of_zero_are_a_loss_of_zero_with_a_gradient() -> None:
    own = torch.ones(1, 1, requires_grad=True)
    distilled("squared-error", own, torch.zeros(1, 1), torch.zeros(1, 1), hard=0.0, soft=0.0).backward()
    assert own.grad is not None
    assert own.grad.item() == 0.0


def test_the_other_model_learns_nothing() -> None:
    own, other = torch.ones(1, 1, requires_grad=True), torch.zeros(1, 1, requires_grad=True)
    distilled("squared-error", own, other, torch.zeros(1, 1), hard=0.5, soft=0.5).backward()
    assert own.grad is not None
    assert own.grad.item() == 1.0
    assert other.grad is None


def test_the_distillation_losses_by_hand() -> None:
    """Softmax (1/4, 3/4) and (1/2, 1/2): D_KL(own || other) = log(1/2) / 4 + 3 log(3/2) / 4 = 0.13081204.

    The other way round it is 0.14384104. With the label 1, the cross-entropy is -log(3/4) = 0.28768207. The gradient
    of the divergence in own logit i is p_i (log(p_i / q_i) - D) = -+0.20598980; the other model gets none.
    """
    own, other = torch.tensor([[0.0, math.log(3)]]).requires_grad_(), torch.zeros(1, 2).requires_grad_()
    label = torch.tensor([1])
    assert divergence("cross-entropy", own, other).item() == pytest.approx(0.13081204, abs=1e-6)
    assert divergence("cross-entropy", other, own).item() == pytest.approx(0.14384104, abs=1e-6)
    found = distilled("cross-entropy", own, other, label, hard=0.4, soft=0.6)
    assert found.item() == pytest.approx(0.4 * 0.28768207 + 0.6 * 0.13081204, abs=1e-6)
    distilled("cross-entropy", own, other, label, hard=0.0, soft=1.0).backward()
    assert own.grad is not None
    assert own.grad.tolist() == [pytest.approx([-0.2059898, 0.2059898], abs=1e-6)]
    assert other.grad is None


def test_a_batch_s_divergence_is_the_mean_of_its_samples() -> None:
    own, other = torch.tensor([[0.0, math.log(3)], [1.0, 1.0]]), torch.zeros(2, 2)
    assert divergence("cross-entropy", own, other).item() == pytest.approx(0.13081204 / 2, abs=1e-6)
    assert divergence("squared-error", own, other).item() == pytest.approx((math.log(3) ** 2 + 2) / 4, abs=1e-6)
