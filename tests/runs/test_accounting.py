"""Differential privacy of clients: what a run promises, and what it refuses."""

import json
import math

import pytest

import fedtailor
from fedtailor.errors import UserError
from fedtailor.runs.accounting import gaussian_epsilon
from fedtailor.runs.cohort import choose_cohort
from fedtailor.runs.settings import experiment

pytest.importorskip("opacus")

PRIVATE = {
    "rounds": 3,
    "data": {"clients": 10, "partition": "iid"},
    "participation": {"ratio": 0.5},
    "privacy": {"level": "client", "noise": 0.5, "clip": 0.5},
    "evaluation": {"every": 3},
    "engine": {"kind": "inline"},
}


def refused(tmp_path, **tables):
    with pytest.raises(UserError) as caught:
        fedtailor.run({**PRIVATE, **tables}, folder=tmp_path / "run")
    assert not (tmp_path / "run").exists()
    return str(caught.value)


def test_epsilon_without_sampling_is_that_of_the_gaussian_mechanism():
    """One round of all clients: Renyi divergence a / (2 z^2); epsilon is at most the classic min over orders a of
    a / (2 z^2) + log(1 / delta) / (a - 1), and the improved conversion gives less."""
    z, delta = 4.0, 1e-5
    classic = min(a / (2 * z * z) + math.log(1 / delta) / (a - 1) for a in (1 + x / 10 for x in range(1, 1000)))
    found = gaussian_epsilon(z, 1.0, 1, delta)
    assert 0.5 * classic < found <= classic


def test_epsilon_grows_with_rounds_and_rate_and_falls_with_noise():
    base = gaussian_epsilon(1.0, 0.1, 100, 1e-5)
    assert gaussian_epsilon(1.0, 0.1, 200, 1e-5) > base
    assert gaussian_epsilon(1.0, 0.2, 100, 1e-5) > base
    assert gaussian_epsilon(2.0, 0.1, 100, 1e-5) < base
    assert gaussian_epsilon(0.0, 0.1, 100, 1e-5) == math.inf
    assert gaussian_epsilon(1.0, 0.1, 0, 1e-5) == 0


@pytest.mark.parametrize("method", ["fedavg", "fedper", "fedrep", "fedah", "ditto", "pfedme"])
def test_a_private_run_states_its_epsilon_in_summary_and_footnote(tmp_path, method):
    run = fedtailor.run({**PRIVATE, "method": {"name": method}}, folder=tmp_path / "run")
    summary = run.summary()
    expected = gaussian_epsilon(0.5, 0.5, 3, 1e-5)
    assert [promise.epsilon for promise in summary.privacy] == [expected]
    assert summary.as_dict()["privacy"][0]["rounds"] == 3
    assert any(f"epsilon = {expected:.3g}" in sentence and "not covered" in sentence for sentence in run.warnings)
    fedtailor.export_client(tmp_path / "run", 1, tmp_path / "export")
    assert "epsilon" in json.loads((tmp_path / "export" / "card.json").read_text())["privacy"][0]


def test_noise_changes_the_model_and_repeats_with_the_seed(tmp_path):
    def loss(name, noise):
        settings = {**PRIVATE, "privacy": {"level": "client", "noise": noise, "clip": 0.5}}
        return fedtailor.run(settings, folder=tmp_path / name).summary().metrics["global"].loss

    assert loss("one", 0.5) == loss("two", 0.5)
    assert loss("three", 2.0) > loss("one-more", 0.0)


def test_the_private_part_gets_no_noise(tmp_path):
    """Noise that ruins every shared model does not reach Local's models, of which nothing is shared."""

    def loss(method, noise, name):
        settings = {**PRIVATE, "privacy": {"level": "client", "noise": noise}, "method": {"name": method}}
        return fedtailor.run(settings, folder=tmp_path / name).summary().held.loss

    assert loss("local", 1000.0, "a") == loss("local", 0.0, "b")
    assert loss("fedper", 1000.0, "c") > loss("fedper", 0.0, "d")


def test_cohorts_are_drawn_client_by_client():
    """Poisson sampling: sizes differ between rounds, with mean q N and variance N q (1 - q)."""
    from fedtailor.methods import Moment

    settings = experiment({**PRIVATE, "data": {"clients": 100}})
    sizes = [len(choose_cohort(settings, 100, Moment(0, 0, round, 400))) for round in range(400)]
    mean = sum(sizes) / 400
    variance = sum((size - mean) ** 2 for size in sizes) / 400
    assert abs(mean - 50) < 5 * 5 / 20
    assert 18 < variance < 33


def test_an_empty_cohort_still_adds_noise(tmp_path):
    settings = {**PRIVATE, "participation": {"ratio": 1e-9}, "rounds": 1}
    run = fedtailor.run(settings, folder=tmp_path / "empty")
    quiet = {**settings, "privacy": {"level": "client", "noise": 0.0}}
    other = fedtailor.run(quiet, folder=tmp_path / "quiet")
    assert run.rounds()[0]["cohort"] in ([], "[]")
    assert run.summary().metrics["global"].loss != other.summary().metrics["global"].loss


def test_a_round_that_is_repeated_with_other_noise_is_charged_again(tmp_path):
    """A run of three rounds ends in its second one and is resumed: four rounds were begun."""

    class Ends(fedtailor.Callback):
        def round_done(self, report):
            if report.round == 1:
                self.task_done = self.fail

        def fail(self, *_):
            raise KeyError("power cut")

    settings = {**PRIVATE, "privacy": {**PRIVATE["privacy"], "generator": "system"}, "participation": {"ratio": 1.0}}
    with pytest.raises(KeyError):
        fedtailor.run(settings, folder=tmp_path / "run", callbacks=Ends())
    run = fedtailor.resume(tmp_path / "run")
    assert [promise.rounds for promise in run.privacy] == [4]
    assert run.privacy[0].epsilon == gaussian_epsilon(0.5, 1.0, 4, 1e-5)


RECORDS = {key: value for key, value in PRIVATE.items() if key != "privacy"}


@pytest.mark.parametrize("method", ["fedavg", "fedrep", "ditto", "local"])
def test_dp_sgd_states_the_epsilon_of_the_client_that_spent_most(tmp_path, method):
    settings = {**RECORDS, "method": {"name": method}, "training": {"epochs": 1, "dp_sgd": {"noise": 1.0}}}
    run = fedtailor.run(settings, folder=tmp_path / "run")
    (promise,) = run.privacy
    spent = {}
    for row in run.tasks():
        spent.setdefault(row["client"], []).append(row["steps"])
    sizes = run.federation().train.sizes
    expected = max(
        gaussian_epsilon(1.0, min(1.0, 10 / sizes[client]), sum(steps) + max(steps), 1e-5)
        for client, steps in spent.items()
    )
    assert promise.level == "record"
    assert promise.epsilon == pytest.approx(expected)
    assert any("record-level" in sentence for sentence in run.warnings)


@pytest.mark.parametrize(
    ("tables", "said"),
    [
        ({"method": {"name": "fedah"}}, "fedah uses clients' data in other ways"),
        ({"method": {"name": "fedala"}}, "fedala uses clients' data in other ways"),
        ({"method": {"name": "hapfl"}}, "hapfl uses clients' data in other ways"),
        ({"training": {"dp_sgd": {}, "precision": "bf16"}}, "fp32"),
        ({"training": {"dp_sgd": {}, "loss": "balanced-cross-entropy"}}, "balanced-cross-entropy"),
    ],
)
def test_what_dp_sgd_does_not_cover_is_refused(tmp_path, tables, said):
    with pytest.raises(UserError, match=said):
        fedtailor.run({**RECORDS, "training": {"dp_sgd": {}}, **tables}, folder=tmp_path / "run")
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize(
    ("tables", "said"),
    [
        ({"method": {"name": "scaffold"}}, "scaffold needs more than one sum"),
        ({"method": {"name": "fedfomo"}}, "fedfomo needs more than one sum"),
        ({"participation": {"clients": 3}}, "participation.ratio"),
        ({"participation": {"ratio": [0.1, 0.5]}}, "participation.ratio"),
        ({"aggregation": {"rule": "median"}}, "aggregation looks at single clients"),
        ({"devices": {"availability": {"kind": "daily"}}}, "availability"),
    ],
)
def test_what_cannot_be_private_is_refused_before_anything_is_written(tmp_path, tables, said):
    assert said in refused(tmp_path, **tables)
