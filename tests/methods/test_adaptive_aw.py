"""Hand-derived values and identities of adaptive-aw; see `tests.support.adjustment` for its clients."""

from pathlib import Path

import pytest
import torch
from torch import Tensor

from fedtailor.methods import Question, Server
from fedtailor.methods.adjustment import ADJUSTMENT
from fedtailor.runs import run
from tests.support.adjustment import (
    SCALAR,
    SEVEN,
    UNEVEN,
    agents,
    assert_policy_stays,
    by_size,
    deploy,
    fedavg_with_batches_of_seven,
    model_after,
    two,
    with_method,
)
from tests.support.problem import W, largest_gap, model_of


def test_hand_adaptive_aw(tmp_path: Path) -> None:
    """Weights (1/4, 3/4), full batches: w = 1/8 + 15/8 = 2; then (1/2, 1/2) gives (1 + 3) / 2, (1/4, 3/4) 5/2."""
    settings = with_method(SCALAR, "adaptive-aw", agents=agents())
    for share, wanted in ((0.5, 2.0), (0.25, 2.5)):

        def script(server: Server, _question: Question, share: float = share) -> Tensor:
            return torch.tensor([0.25, 0.75] if server.round == 1 else [share, 1 - share])

        deciders = {ADJUSTMENT: script}
        with run(settings, folder=tmp_path / str(share), federation=two(), deciders=deciders) as done:
            assert float(model_of(done)[W]) == pytest.approx(wanted, abs=1e-6)


def test_weights_by_data_size_are_fedavg_with_the_run_s_batch_size(tmp_path: Path) -> None:
    plain = fedavg_with_batches_of_seven(tmp_path / "plain")
    assert largest_gap(plain, model_after(tmp_path / "7", with_method(SEVEN, "adaptive-aw"), by_size(None))) < 1e-6
    assert largest_gap(plain, model_after(tmp_path / "10", with_method(UNEVEN, "adaptive-aw"), by_size(None))) > 1e-3


def test_a_policy_is_deployed_greedily_and_learns_no_more(tmp_path: Path) -> None:
    assert_policy_stays(deploy(tmp_path, "adaptive-aw"))
