"""Every measure by hand, against scikit-learn, pooled, and where it is not defined."""

import math
import warnings
from typing import Any

import numpy as np
import pytest
import sklearn.metrics as reference
import torch
from torch import Tensor

from fedtailor.errors import UserError
from fedtailor.learning.measures import MEASURES, Predictions, check_measured, chosen, measure, pooled, values_and_sums

FOR_CLASSES = [name for name, one in MEASURES.items() if one.targets == "classes" and name != "accuracy"]
FOR_NUMBERS = [name for name, one in MEASURES.items() if one.targets == "numbers"]


def certain(*shares: tuple[float, ...]) -> Tensor:
    """Outputs whose softmax has these probabilities."""
    return torch.tensor(shares).log()


def value(name: str, outputs: Any, targets: Any, loss: str = "cross-entropy") -> float | None:
    return values_and_sums([name], Predictions(torch.as_tensor(outputs), torch.as_tensor(targets), loss))[0][name]


# Four samples of two classes with probabilities of class 1: 0.1 (class 0), 0.6 (class 0), 0.8 (class 1), 0.4 (class 1).
# Predicted: 0, 1, 1, 0; right: yes, no, yes, no.
TWO = certain((0.9, 0.1), (0.4, 0.6), (0.2, 0.8), (0.6, 0.4))
OF_TWO = torch.tensor([0, 0, 1, 1])
# Three classes: 0, 0, 0, 1 predicted as 0, 0, 2, 1
THREE = certain((0.8, 0.1, 0.1), (0.8, 0.1, 0.1), (0.05, 0.15, 0.8), (0.1, 0.8, 0.1))
OF_THREE = torch.tensor([0, 0, 0, 1])


@pytest.mark.parametrize(
    ("name", "outputs", "targets", "expected"),
    [
        ("balanced-accuracy", TWO, OF_TWO, 0.5),
        ("balanced-accuracy", THREE, OF_THREE, (2 / 3 + 1) / 2),  # class 2 does not occur
        ("macro-f1", TWO, OF_TWO, 0.5),  # each class: 1 right, 2 samples, 2 predictions
        ("macro-f1", THREE, OF_THREE, (4 / 5 + 1 + 0) / 3),  # class 2 was predicted once, wrongly
        ("macro-f1", certain((0.8, 0.1, 0.1), (0.1, 0.8, 0.1)), [0, 1], 1.0),  # nothing is said about class 2
        ("auroc", TWO, OF_TWO, 3 / 4),  # of the pairs (0.1, 0.6) x (0.8, 0.4) only 0.6 > 0.4 is wrong
        ("auroc", THREE, OF_THREE, (2 / 3 + 1) / 2),  # class 0: 0.05 < 0.1 is wrong; class 1: all right
        ("log-loss", TWO, OF_TWO, -math.log(0.9 * 0.4 * 0.8 * 0.4) / 4),
        ("perplexity", TWO, OF_TWO, (0.9 * 0.4 * 0.8 * 0.4) ** -0.25),
        # confidences 0.9 and 0.8 (right), twice 0.6 (wrong), in the bins up to 0.933, 0.8 and 0.6
        ("calibration-error", TWO, OF_TWO, (0.1 + 1.2 + 0.2) / 4),
        # 1/3 (right) is the upper edge of its bin, 0.36 (wrong) is in the next
        ("calibration-error", certain((1.0, 1.0, 1.0), (0.36, 0.32, 0.32)), [0, 1], (2 / 3 + 0.36) / 2),
        ("mae", [[1.0], [2.0], [4.0]], [1.0, 4.0, 1.0], 5 / 3),
        ("rmse", [[1.0], [2.0], [4.0]], [1.0, 4.0, 1.0], math.sqrt(13 / 3)),
        ("r2", [[1.0], [2.0], [4.0]], [1.0, 4.0, 1.0], 1 - 13 / 6),  # targets have mean 2: 1 + 4 + 1
        ("mae", [[1.0, 0.0], [3.0, 5.0]], [[2.0, 0.0], [3.0, 2.0]], 4 / 4),
        ("r2", [[1.0, 0.0], [3.0, 5.0]], [[2.0, 0.0], [3.0, 2.0]], ((1 - 1 / 0.5) + (1 - 9 / 2)) / 2),
    ],
)
def test_by_hand(name: str, outputs: Any, targets: Any, expected: float) -> None:
    assert value(name, outputs, targets) == pytest.approx(expected, abs=1e-7)


def test_the_probabilities_of_a_binary_loss_are_sigmoids_divided_by_their_sum() -> None:
    """Sigmoids 0.8 and 0.6 become 4/7 and 3/7."""
    outputs = torch.tensor([[math.log(4), math.log(1.5)]])
    assert value("log-loss", outputs, [1], "binary-cross-entropy") == pytest.approx(-math.log(3 / 7))
    assert value("calibration-error", outputs, [0], "binary-cross-entropy") == pytest.approx(3 / 7)


def client(seed: int, samples: int, classes: int) -> tuple[Tensor, Tensor]:
    stream = torch.Generator().manual_seed(seed)
    return torch.randn(samples, classes, generator=stream), torch.randint(classes, (samples,), generator=stream)


@pytest.mark.parametrize("classes", [2, 5])
def test_classes_agree_with_scikit_learn(classes: int) -> None:
    outputs, targets = client(1, 80, classes)
    shares, said = torch.softmax(outputs.double(), 1).numpy(), outputs.argmax(1).numpy()
    score = shares[:, 1] if classes == 2 else shares
    expected = {
        "balanced-accuracy": reference.balanced_accuracy_score(targets, said),
        "macro-f1": reference.f1_score(targets, said, average="macro"),
        "auroc": reference.roc_auc_score(targets, score, multi_class="ovr"),
        "log-loss": reference.log_loss(targets, shares, labels=range(classes)),
    }
    for name, wanted in expected.items():
        assert value(name, outputs, targets) == pytest.approx(wanted, abs=1e-9), name


def test_numbers_agree_with_scikit_learn() -> None:
    stream = torch.Generator().manual_seed(2)
    outputs, targets = torch.randn(50, 3, generator=stream), 1000 + torch.randn(50, 3, generator=stream)
    expected = {
        "mae": reference.mean_absolute_error(targets, outputs),
        "rmse": math.sqrt(reference.mean_squared_error(targets.double(), outputs.double())),
        "r2": reference.r2_score(targets.double(), outputs.double()),
    }
    for name, wanted in expected.items():
        assert value(name, outputs, targets) == pytest.approx(wanted, rel=1e-6), name


def pieces(outputs: Tensor, targets: Tensor) -> list[Predictions]:
    """Three clients of 7, 1 and 42 samples."""
    cuts = [7, 1, 42]
    return [Predictions(o, t) for o, t in zip(torch.split(outputs, cuts), torch.split(targets, cuts), strict=True)]


@pytest.mark.parametrize("name", [*FOR_CLASSES, *FOR_NUMBERS])
def test_a_pooled_value_is_that_of_all_samples_together(name: str) -> None:
    """Clients of 7, 1 and 42 samples, for which not every measure is defined, against one client with all 50."""
    outputs, targets = client(3, 50, 4)
    if name in FOR_NUMBERS:
        outputs, targets = outputs[:, :1], 100 + outputs[:, 1]
    sums = [values_and_sums([name], piece)[1] for piece in pieces(outputs, targets)]
    if name == "auroc":  # ties within a bin
        assert pooled(name, sums) == pytest.approx(value(name, outputs, targets), abs=0.01)
        assert pooled(name, sums) != pytest.approx(value(name, outputs[:7], targets[:7]), abs=0.02)
    else:
        assert pooled(name, sums) == pytest.approx(value(name, outputs, targets), rel=1e-9)
        assert pooled(name, sums) != pytest.approx(value(name, outputs[:7], targets[:7]), rel=1e-3)


def test_the_pooled_auroc_counts_pairs_of_different_clients() -> None:
    """Log-odds of the second class: 1 and -3 with that class, -1 with the other; clients have one class each."""
    of_one = Predictions(torch.tensor([[0.0, 1.0], [0.0, -3.0]]), torch.tensor([1, 1]))
    of_other = Predictions(torch.tensor([[0.0, -1.0]]), torch.tensor([0]))
    found, sums = zip(*(values_and_sums(["auroc"], one) for one in (of_one, of_other)), strict=True)
    assert [one["auroc"] for one in found] == [None, None]
    assert pooled("auroc", sums) == 1 / 2  # 1 > -1 is right, -3 < -1 is wrong
    assert pooled("auroc", sums[:1]) is None
    tie = values_and_sums(["auroc"], Predictions(torch.tensor([[0.0, 1.01]]), torch.tensor([0])))[1]
    assert pooled("auroc", [sums[0], tie]) == 1 / 4  # half of the pair in one bin


@pytest.mark.parametrize("name", ["balanced-accuracy", "macro-f1", "auroc"])
def test_a_client_with_one_class_has_no_value_and_never_zero(name: str) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert value(name, THREE, [0, 0, 0, 0]) is None
        assert value(name, THREE, [0, 0, 0, 2]) is not None


def test_targets_that_do_not_differ_have_no_r2() -> None:
    assert value("r2", [[1.0], [2.0]], [3.0, 3.0]) is None
    assert value("r2", [[1.0]], [3.0]) is None


@pytest.mark.parametrize("name", [*FOR_CLASSES, *FOR_NUMBERS])
def test_a_client_without_samples_has_no_value(name: str) -> None:
    targets = torch.zeros(0, dtype=torch.int64 if name in FOR_CLASSES else torch.float32)
    assert value(name, torch.zeros(0, 2), targets) is None


@pytest.mark.parametrize("name", ["auroc", "log-loss", "calibration-error", "rmse"])
def test_a_model_that_has_diverged_is_not_left_out(name: str) -> None:
    targets = [0, 1] if name in FOR_CLASSES else [[0.0, 1.0], [2.0, 3.0]]
    found = value(name, torch.full((2, 2), math.nan), targets)
    assert found is not None
    assert math.isnan(found)


def second_largest(outputs: Tensor, targets: Tensor) -> float | None:
    """The user's own: the share of samples whose class has the second largest output; undefined for fewer than 2."""
    order = outputs.argsort(1, descending=True)
    return float((order[:, 1] == targets).double().mean()) if len(targets) > 1 else None


second_largest.better = "lower"  # type: ignore[attr-defined]
second_largest.percent = True  # type: ignore[attr-defined]


def test_a_measure_of_the_users_own() -> None:
    name = f"{__name__}:second_largest"
    assert (measure(name).better, measure(name).percent) == ("lower", True)
    assert value(name, TWO, OF_TWO) == 0.5
    assert value(name, TWO[:1], OF_TWO[:1]) is None
    assert values_and_sums([name], Predictions(TWO, OF_TWO))[1] == {}


@pytest.mark.parametrize("name", ["nowhere:f", f"{__name__}:nothing"])
def test_a_measure_that_cannot_be_imported_is_refused_in_one_sentence(name: str) -> None:
    with pytest.raises(UserError, match=r"evaluation.measures = .* cannot be imported") as error:
        measure(name)
    assert "\n" not in str(error.value)


def test_what_is_measured_follows_from_the_targets() -> None:
    assert chosen((), None, classes=True).headline == "accuracy"
    assert chosen((), None, classes=True).further == ()
    assert chosen((), None, classes=False).headline == "rmse"
    assert chosen((), None, classes=False).further == ("rmse", "mae", "r2")
    assert chosen(("auroc",), "macro-f1", classes=True).further == ("auroc", "macro-f1")
    for names, headline, classes in ((("rmse",), None, True), ((), "accuracy", False), (("mae", "auroc"), None, False)):
        with pytest.raises(UserError, match=r"set evaluation.measures and evaluation.headline to"):
            chosen(names, headline, classes)
    assert chosen(("log-loss",), "macro-f1", classes=True).as_dict() == {
        "headline": "macro-f1",
        "classes": True,
        "measures": {
            "log-loss": {"better": "lower", "percent": False},
            "macro-f1": {"better": "higher", "percent": True},
        },
    }
    with pytest.raises(UserError, match="unknown measure 'accurcy'"):
        measure("accurcy")


@pytest.mark.parametrize("name", [*FOR_CLASSES, *FOR_NUMBERS])
def test_what_a_client_sends_is_checked_before_it_is_added(name: str) -> None:
    outputs, targets = client(4, 10, 3)
    values, sums = values_and_sums([name], Predictions(outputs, outputs + 1 if name in FOR_NUMBERS else targets))
    check_measured([name], 3, values, sums)
    for wrong in ({}, {"other": 1.0}, {**values, "other": 1.0}):
        with pytest.raises(ValueError, match="not those of the run"):
            check_measured([name], 3, wrong, sums)
    for bad in ({key: [*row, 0.0] for key, row in sums.items()}, {**sums, "other": [1.0]}):
        if bad != sums:
            with pytest.raises(ValueError, match="cannot be added"):
                check_measured([name], 3, values, bad)


def test_directions() -> None:
    lower = {name for name, one in MEASURES.items() if one.better == "lower"}
    assert lower == {"log-loss", "perplexity", "calibration-error", "mae", "rmse"}
    assert np.all([one.percent for name, one in MEASURES.items() if "accuracy" in name])
