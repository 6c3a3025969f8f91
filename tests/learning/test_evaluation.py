"""Evaluation counts, and leaves no trace."""

import copy

import pytest
import torch
import torch.nn.functional as F

from fedtailor.learning import Score, evaluate, outcomes
from tests.support.networks import cnn, images, line, normalised, vectors, with_dropout


@pytest.mark.parametrize(("build", "data"), [(cnn, images), (normalised, vectors), (lambda: with_dropout(2), vectors)])
@pytest.mark.parametrize("training", [True, False])
def test_evaluation_has_no_side_effects(build, data, training: bool) -> None:
    net = build()
    net.module.train(training)
    net.module[1].training = not training
    before = copy.deepcopy(net.module.state_dict())
    modes = [layer.training for layer in net.module.modules()]
    random = torch.get_rng_state()
    x, y = data(200)
    kept = x.clone()
    evaluate(net, x, y, "cross-entropy")
    assert all(torch.equal(tensor, before[name]) for name, tensor in net.module.state_dict().items())
    assert [layer.training for layer in net.module.modules()] == modes
    assert torch.equal(torch.get_rng_state(), random)
    assert all(parameter.grad is None and parameter.requires_grad for parameter in net.module.parameters())
    assert torch.equal(x, kept)


@pytest.mark.parametrize("count", [1, 127, 128, 129, 300])
def test_outcomes_of_every_sample_agree_with_a_plain_forward(count: int) -> None:
    net = cnn()
    x, y = images(count)
    with torch.no_grad():
        outputs = cnn().module(x)
    lost, right = outcomes(net, x, y, "cross-entropy")
    torch.testing.assert_close(lost, F.cross_entropy(outputs, y, reduction="none"), rtol=1e-5, atol=1e-5)
    assert torch.equal(right, outputs.argmax(1) == y)
    score = evaluate(net, x, y, "cross-entropy")
    assert (score.correct, score.samples) == (int((outputs.argmax(1) == y).sum()), count)
    assert score.loss == pytest.approx(float(F.cross_entropy(outputs, y, reduction="sum")), rel=1e-5)


def test_evaluation_uses_running_statistics_and_no_dropout() -> None:
    for build in (normalised, lambda: with_dropout(2)):
        net = build()
        x, y = vectors(10)
        alone = [outcomes(net, x[i : i + 1], y[i : i + 1], "cross-entropy")[0] for i in range(10)]
        torch.testing.assert_close(torch.cat(alone), outcomes(net, x, y, "cross-entropy")[0])


def test_a_regression_is_half_the_squared_distance_and_has_no_hits() -> None:
    x, y = torch.tensor([[3.0, 1.0], [1.0, 0.0]]), torch.tensor([[1.0], [3.0]])  # errors 4 and -2
    lost, right = outcomes(line(), x, y, "squared-error")
    assert lost.tolist() == [8.0, 2.0]
    assert right.tolist() == [False, False]
    assert outcomes(line(), x, y.flatten(), "squared-error")[0].tolist() == [8.0, 2.0]
    assert evaluate(line(), x, y, "squared-error") == Score(0, 10.0, 2)


def test_no_samples_are_counted_as_nothing() -> None:
    x, y = images(0)
    assert evaluate(cnn(), x, y, "cross-entropy") == Score(0, 0.0, 0)


def test_outcomes_can_be_used_for_further_computation() -> None:
    lost, _ = outcomes(cnn(), *images(5), "cross-entropy")
    lost.mul_(2)
    assert not lost.requires_grad


def test_the_means_of_a_score_by_hand() -> None:
    score = Score(correct=3, loss=2.0, samples=4)
    assert (score.accuracy, score.mean_loss) == (0.75, 0.5)
    assert (Score(0, 0.0, 0).accuracy, Score(0, 0.0, 0).mean_loss) == (0.0, 0.0)
