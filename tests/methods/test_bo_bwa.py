"""Hand-derived values, identities, search and exactness of bo-bwa; see `tests.support.adjustment` for its clients."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

import fedtailor
from fedtailor.messages.trees import plain
from fedtailor.methods.adjustment import Adjusted
from fedtailor.methods.bo_bwa import BoBWA, Trial
from fedtailor.runs import pretrain, run
from tests.support.adjustment import (
    DIGITS,
    SCALAR,
    UNEVEN,
    assert_only_validation_labels_matter,
    assert_pre_training_goes_on_exactly,
    by_size,
    deploy,
    fedavg_with_batches_of_seven,
    model_after,
    two,
    with_method,
)
from tests.support.problem import W, largest_gap, model_of


def test_hand_bo_bwa(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """b = 2 and numbers (0.2, 0.6), weights 1/4 and 3/4, in both rounds: w = 41/16, then (41/32 + 3 * 233/64) / 4.

    The objective is 64^(0 - 1) twice.
    """
    monkeypatch.setattr(BoBWA, "_suggestion", lambda *_: Trial(2, [0.2, 0.6]))
    with run(with_method(SCALAR, "bo-bwa"), folder=tmp_path / "run", federation=two()) as done:
        assert float(model_of(done)[W]) == pytest.approx((41 / 32 + 699 / 64) / 4, abs=1e-6)
        (trial,) = done.server_state()["trials"]["complete"]
        assert trial == {"batch": 2, "weights": [0.2, 0.6], "value": 2 / 64}
        assert [row["action"].tolist() for row in done.decisions()] == [pytest.approx([2, 0.25, 0.75])] * 2


def test_one_batch_size_and_weights_by_data_size_are_fedavg(tmp_path: Path) -> None:
    found = model_after(tmp_path / "bo", with_method(UNEVEN, "bo-bwa"), by_size(7.0))
    assert largest_gap(fedavg_with_batches_of_seven(tmp_path / "plain"), found) < 1e-6


def test_evaluations_come_nearer_to_the_best(tmp_path: Path) -> None:
    """A known function: batch 8 and all weight on client 0 are best. A resumed search asks for the same again."""
    method = BoBWA()

    def value(trial: Trial) -> float:
        share = trial.weights[0] / sum(trial.weights)
        return share - abs(np.log(trial.batch / 8))

    trials: list[Trial] = []
    for number in range(25):
        found = method._suggestion(trials, 3, number)
        assert method._suggestion(trials, 3, number) == found
        trials.append(replace(found, value=float(value(found))))
    best = [max(trial.value for trial in part) for part in (trials[:10], trials[10:])]
    assert best[1] > max(best[0], 0.6)


def test_an_evaluation_is_the_objective_of_its_episode(tmp_path: Path) -> None:
    settings = {**with_method(DIGITS, "bo-bwa"), "pretrain": {"episodes": 3}}
    with pretrain(settings, folder=tmp_path / "policy") as done:
        trials = done.server_state()["trials"]["complete"]
        for episode, trial in enumerate(trials):
            rows = [row for row in done.decisions() if row["episode"] == episode]
            assert trial["value"] == pytest.approx(sum(row["reward"] for row in rows), abs=1e-9)
            assert {int(row["action"][0]) for row in rows} == {trial["batch"]}
            assert rows[0]["action"][1:].tolist() == pytest.approx(
                [weight / sum(trial["weights"]) for weight in trial["weights"]], abs=1e-6
            )
        assert len({trial["batch"] for trial in trials}) == 3


def test_what_is_missing_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("fedtailor.methods.bo_bwa.find_spec", lambda _name: None)
    with pytest.raises(fedtailor.UserError, match=r"fedtailor\[bo\]"):
        run(with_method(DIGITS, "bo-bwa"), folder=tmp_path / "run")
    assert not list(tmp_path.iterdir())  # it is said before anything is written
    assert isinstance(BoBWA(), Adjusted)


def test_the_best_evaluation_is_deployed(tmp_path: Path) -> None:
    deployed = deploy(tmp_path, "bo-bwa")
    trials = deployed.state["trials"]["complete"]
    assert trials == plain(deployed.policy.parts["trials"])["complete"]
    best = max(trials, key=lambda trial: trial["value"])
    assert {int(row["action"][0]) for row in deployed.decisions} == {best["batch"]}
    assert deployed.policy.agents == deployed.agents == {}


def test_pre_training_goes_on_exactly_where_it_stopped(tmp_path: Path) -> None:
    """It fits its process from the eleventh evaluation on."""
    settings = {**with_method(DIGITS, "bo-bwa"), "rounds": 1, "pretrain": {"episodes": 13}}
    assert_pre_training_goes_on_exactly(tmp_path, settings, stops=(3, 11, 12))


def test_test_labels_do_not_matter_and_validation_labels_do(tmp_path: Path) -> None:
    assert_only_validation_labels_matter(tmp_path, "bo-bwa")
