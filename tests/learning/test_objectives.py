"""Every loss by hand, and its gradient where weights matter."""

import math

import pytest
import torch
from torch import Tensor

from fedtailor.errors import UserError
from fedtailor.learning import Criterion, TrainingSettings, evaluate, train
from fedtailor.learning.objectives import chosen_loss, losses, mean_loss
from fedtailor.seeding import torch_stream
from tests.support.networks import vectors, with_dropout

LOG2, LOG3 = math.log(2), math.log(3)
# Two classes with odds 1:1 and 3:1 for class 0
OUTPUTS = torch.tensor([[0.0, 0.0], [LOG3, 0.0]])
LABELS = torch.tensor([0, 1])  # cross-entropies: log 2 and log 4


def test_cross_entropy() -> None:
    assert losses("cross-entropy", OUTPUTS, LABELS).tolist() == pytest.approx([LOG2, 2 * LOG2])
    assert mean_loss("cross-entropy", OUTPUTS, LABELS).item() == pytest.approx(1.5 * LOG2)


def test_given_weights_multiply_the_losses_of_their_classes() -> None:
    made = Criterion.of(TrainingSettings(loss="weighted-cross-entropy", class_weights=(3.0, 0.5)), LABELS)
    assert losses(made, OUTPUTS, LABELS).tolist() == pytest.approx([3 * LOG2, LOG2])
    assert mean_loss(made, OUTPUTS, LABELS).item() == pytest.approx(2 * LOG2)


def test_balanced_weights_are_those_of_the_clients_own_classes() -> None:
    """Three samples of class 0, one of class 2: weights 4/(2*3) and 4/(2*1); classes 1 and 3 do not occur."""
    made = Criterion.of(TrainingSettings(loss="balanced-cross-entropy"), torch.tensor([0, 2, 0, 0]))
    assert made.weights is not None
    assert made.weights.tolist() == pytest.approx([2 / 3, 1.0, 2.0])
    outputs = torch.zeros(4, 4)  # every cross-entropy is log 4
    found = losses(made, outputs, torch.tensor([0, 1, 2, 3])) / (2 * LOG2)
    assert found.tolist() == pytest.approx([2 / 3, 1.0, 2.0, 1.0])
    assert losses(made, outputs, torch.tensor([0, 2, 0, 0])).mean().item() == pytest.approx(2 * LOG2)  # mean weight 1


@pytest.mark.parametrize("targets", [[1, 1, 1], [0, 1, 0, 1]])
def test_balanced_weights_of_one_class_or_of_equal_classes_change_nothing(targets: list[int]) -> None:
    labels, outputs = torch.tensor(targets), torch.randn(len(targets), 2, generator=torch.Generator().manual_seed(0))
    made = Criterion.of(TrainingSettings(loss="balanced-cross-entropy"), labels)
    torch.testing.assert_close(losses(made, outputs, labels), losses("cross-entropy", outputs, labels))


def test_binary_cross_entropy_is_the_mean_over_one_against_the_others() -> None:
    """First sample: sigmoids 1/2 and 1/2. Second: sigmoids 3/4 for a wrong class, 1/2 for the right one."""
    found = losses("binary-cross-entropy", OUTPUTS, LABELS).tolist()
    assert found == pytest.approx([LOG2, (-math.log(1 / 4) + LOG2) / 2])


@pytest.mark.parametrize(
    ("kind", "expected"),
    [
        ("mse", [1.0, 6.5]),  # errors (1, 1) and (2, 3): (1 + 1) / 2 and (4 + 9) / 2
        ("squared-error", [1.0, 6.5]),  # half of 2 and of 13
        ("huber", [0.5, 2.0]),  # 0.5 e^2 up to 1, then |e| - 0.5: (0.5 + 0.5) / 2 and (1.5 + 2.5) / 2
    ],
)
def test_losses_of_numbers(kind: str, expected: list[float]) -> None:
    outputs, targets = torch.tensor([[1.0, 1.0], [2.0, 3.0]]), torch.zeros(2, 2)
    assert losses(kind, outputs, targets).tolist() == pytest.approx(expected)
    assert mean_loss(kind, outputs, targets).item() == pytest.approx(sum(expected) / 2)


def test_half_the_squared_distance_is_summed_over_outputs_and_the_mean_square_is_not() -> None:
    outputs, targets = torch.tensor([[1.0, 1.0, 1.0, 1.0]]), torch.zeros(1, 4)
    assert losses("squared-error", outputs, targets).item() == 2.0
    assert losses("mse", outputs, targets).item() == 1.0


def test_hubers_delta_is_a_setting() -> None:
    made = Criterion.of(TrainingSettings(loss="huber", huber_delta=2.0), torch.zeros(1))
    assert losses(made, torch.tensor([[3.0]]), torch.zeros(1)).item() == 2 * (3 - 1)  # delta (|e| - delta / 2)
    assert losses(made, torch.tensor([[2.0]]), torch.zeros(1)).item() == 2.0


def absolute(outputs: Tensor, targets: Tensor) -> Tensor:
    """The user's own."""
    return (outputs - targets.view_as(outputs)).abs().sum(1)


def test_a_loss_of_the_users_own() -> None:
    made = Criterion.of(TrainingSettings(loss=f"{__name__}:absolute"), torch.zeros(1))
    assert losses(made, torch.tensor([[3.0], [-1.0]]), torch.zeros(2)).tolist() == [3.0, 1.0]
    with pytest.raises(UserError, match=r"training.loss = 'nowhere:f' cannot be imported"):
        losses("nowhere:f", torch.zeros(1, 1), torch.zeros(1))


def test_the_targets_choose_the_loss_unless_it_is_set() -> None:
    assert chosen_loss("auto", classes=True) == "cross-entropy"
    assert chosen_loss("auto", classes=False) == "mse"
    assert chosen_loss("huber", classes=False) == "huber"
    assert Criterion.of(TrainingSettings(), torch.zeros(1)).kind == "mse"
    assert Criterion.of(TrainingSettings(), torch.zeros(1, dtype=torch.int64)).for_classes


@pytest.mark.parametrize(
    ("settings", "reason"),
    [
        ({"loss": "crossentropy"}, "should be auto, cross-entropy"),
        ({"loss": "weighted-cross-entropy"}, "need each other"),
        ({"class_weights": [1.0]}, "need each other"),
        ({"loss": "weighted-cross-entropy", "class_weights": [-1.0]}, "greater than or equal to 0"),
    ],
)
def test_settings_that_contradict_each_other_are_refused(settings: dict, reason: str) -> None:
    with pytest.raises(ValueError, match=reason):
        TrainingSettings.model_validate(settings)


def test_training_follows_the_weights_and_evaluation_reports_without_them() -> None:
    """A weight of 0 for every class trains nothing; the reported loss is the plain cross-entropy."""
    x, y = vectors(20)
    network = with_dropout(2)
    before = network.weights()
    classes = int(y.max()) + 1
    nothing = TrainingSettings(loss="weighted-cross-entropy", class_weights=(0.0,) * classes, epochs=1)
    train(network, x, y, nothing, torch_stream(0, "batches"))
    assert all(torch.equal(before[name], value) for name, value in network.weights().items())
    plain = evaluate(network, x, y, "cross-entropy")
    assert evaluate(network, x, y, Criterion.of(nothing, y)) == plain
    train(network, x, y, TrainingSettings(epochs=1), torch_stream(0, "batches"))
    assert not all(torch.equal(before[name], value) for name, value in network.weights().items())
