"""Hand-derived values, identities and exactness of adaptive-b; see `tests.support.adjustment` for its clients."""

from pathlib import Path

import pytest
import torch

from fedtailor.methods import Decider
from fedtailor.methods.adjustment import ADJUSTMENT
from fedtailor.runs import run
from tests.support.adjustment import (
    DIGITS,
    SCALAR,
    UNEVEN,
    agents,
    assert_policy_stays,
    assert_pre_training_goes_on_exactly,
    deploy,
    fedavg_with_batches_of_seven,
    model_after,
    two,
    with_method,
)
from tests.support.problem import W, largest_gap, model_of


def test_hand_adaptive_b(tmp_path: Path) -> None:
    """b = 2, then 3; the weights are 1/4 and 3/4: w = (1/2 + 3 * 13/4) / 4 = 41/16, then (41/32 + 3 * 105/32) / 4."""
    settings = with_method(SCALAR, "adaptive-b", agents=agents())
    deciders: dict[str, Decider] = {ADJUSTMENT: lambda server, _: torch.tensor([1.0 + server.round])}
    with run(settings, folder=tmp_path / "run", federation=two(), deciders=deciders) as done:
        assert float(model_of(done)[W]) == pytest.approx(356 / 128, abs=1e-6)


def test_one_batch_size_is_fedavg_with_it(tmp_path: Path) -> None:
    batch: dict[str, Decider] = {ADJUSTMENT: lambda *_: torch.tensor([7.0])}
    found = model_after(tmp_path / "b", with_method(UNEVEN, "adaptive-b"), batch)
    assert largest_gap(fedavg_with_batches_of_seven(tmp_path / "plain"), found) == 0.0


def test_a_policy_is_deployed_greedily_and_learns_no_more(tmp_path: Path) -> None:
    assert_policy_stays(deploy(tmp_path, "adaptive-b"))


def test_pre_training_goes_on_exactly_where_it_stopped(tmp_path: Path) -> None:
    settings = {**with_method(DIGITS, "adaptive-b"), "rounds": 2, "pretrain": {"episodes": 2}}
    assert_pre_training_goes_on_exactly(tmp_path, settings, stops=(3,))
