"""The pre-processing inside a program is the one of the run, to the bit."""

from itertools import product

import numpy as np
import pytest
import torch
from torch import nn

from fedtailor.data.columns import Column
from fedtailor.data.preprocessing import Preprocess, Preprocessing
from fedtailor.errors import UserError
from fedtailor.learning.program import Program, preparing_of
from fedtailor.learning.tensors import prepared_inputs

COLUMNS = (Column("age"), Column("sex", ("f", "m")), Column("weight"), Column("town", ("a", "b", "c")))
X = np.array(
    [[31, 0, np.nan, 2], [np.nan, 1, 70.5, 0], [44.25, np.nan, 1e6, 1], [-3, -1, 0, np.nan], [7, 0, 3, -1]], np.float32
)


def prepared(settings: Preprocess, columns: tuple[Column, ...] = COLUMNS) -> Preprocessing:
    """Town b has no training sample."""
    kept = ((), (0, 1), (), (0, 2)) if columns else ()
    statistics = [np.array([row]) for row in ([33.3, 1.0, 61.1, 2.0], [30.1, 0.4, 60.7, 0.7], [7.7, 0.5, 13.1, 0.9])]
    return Preprocessing(settings, False, columns, kept, (0, 2), *statistics)


@pytest.mark.parametrize(
    "settings",
    [
        {"standardise": standardise, "impute": impute, "indicator": indicator, "categories": categories}
        for standardise, impute, indicator, categories in product(
            (False, True), ("none", "mean"), (False, True), ("one-hot", "codes")
        )
        if impute != "none" or not indicator
    ],
    ids=str,
)
@pytest.mark.parametrize("columns", [COLUMNS, ()], ids=["named", "array"])
def test_a_table_is_prepared_to_the_bit(settings: dict[str, object], columns: tuple[Column, ...]) -> None:
    fitted = prepared(Preprocess.model_validate(settings), columns)
    ours = preparing_of(X.dtype, fitted, ((), ()))(torch.from_numpy(X))
    assert ours.numpy().tobytes() == prepared_inputs(X, fitted, ((), ())).numpy().tobytes()


def test_images_are_prepared_to_the_bit() -> None:
    x = np.random.RandomState(0).randint(0, 256, (3, 5, 4, 2)).astype(np.uint8)
    channels = (0.3, 0.6), (0.2, 0.7)
    ours = preparing_of(x.dtype, None, channels)(torch.from_numpy(x))
    assert torch.equal(ours, prepared_inputs(x, None, channels))


def test_without_statistics_there_is_no_program() -> None:
    fitted = prepared(Preprocess(standardise=True)).without_statistics()
    with pytest.raises(UserError, match="export the model of a client"):
        preparing_of(X.dtype, fitted, ((), ()))


def test_classes_have_probabilities_and_numbers_have_none() -> None:
    """Outputs 2 and 0 at temperature 2: exp(1) / (exp(1) + 1)."""
    samples = torch.tensor([[2.0, 0.0]])
    (outputs,) = Program(nn.Identity(), nn.Identity(), None)(samples)
    assert torch.equal(outputs, samples)
    outputs, chances = Program(nn.Identity(), nn.Identity(), "cross-entropy", 2.0)(samples)
    assert torch.equal(outputs, samples)
    assert chances[0, 0].item() == pytest.approx(1 / (1 + np.exp(-1)))
