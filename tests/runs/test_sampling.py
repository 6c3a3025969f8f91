"""A sample of the clients is tested in place of everyone: the same numbers, fewer tasks, and an interval."""

import json
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

import fedtailor
from fedtailor.cli.app import app
from fedtailor.errors import UserError
from fedtailor.runs import Resources, sampling
from fedtailor.runs.assembly import assemble, job_of
from fedtailor.runs.measures import population
from fedtailor.views.report import remarks
from tests.runs.test_evaluation import Counting

SETTINGS: dict[str, Any] = {
    "rounds": 3,
    "data": {"clients": 12, "samples": 500},
    "training": {"epochs": 1},
    "participation": {"clients": 5},
    "engine": {"kind": "inline"},
}


def settings(method: str = "fedper", **evaluation: Any) -> dict[str, Any]:
    return {**SETTINGS, "method": {"name": method}, "evaluation": evaluation}


@pytest.fixture(scope="module")
def both(tmp_path_factory: pytest.TempPathFactory) -> Any:
    """The same run with all clients tested, and with four of twelve."""
    folder = tmp_path_factory.mktemp("sampling")
    engine = Counting()
    with (
        fedtailor.run(settings(), folder=folder / "all") as everyone,
        fedtailor.run(settings(clients=4), folder=folder / "some", resources=Resources(engine=engine)) as some,
    ):
        yield everyone, some, engine


def test_a_tested_client_has_the_scores_that_it_has_when_everyone_is_tested(both: Any) -> None:
    """In every round and in the final pass; so a mean over the tested clients estimates the mean over all."""
    everyone, some, _ = both
    drawn = {row["client"] for row in some.scores("final")}
    assert len(drawn) == 4
    for model in ("received", "held", "final"):
        expected = [row for row in everyone.scores(model) if row["client"] in drawn]
        found = some.scores(model)
        assert [row["client"] for row in found] == [row["client"] for row in expected]
        assert [row["correct"] for row in found] == [row["correct"] for row in expected]
    final = [row["accuracy"] for row in everyone.scores("final") if row["client"] in drawn]
    assert some.last()["final"].accuracy == pytest.approx(sum(final) / 4)
    held = some.last()["held"]
    trained = {client for row in some.rounds() for client in row["cohort"]}
    assert (held.clients, held.untrained) == (4, len(drawn - trained))


def test_testing_fewer_clients_changes_no_training(both: Any) -> None:
    everyone, some, _ = both
    one, other = (run.server_state()["model"] for run in (everyone, some))
    assert all(one[name].equal(other[name]) for name in one)


def test_only_the_drawn_clients_cost_tasks(both: Any) -> None:
    """Three rounds of five clients; four clients train once more at the end."""
    _, _, engine = both
    assert engine.kinds["fit"] == 15
    assert engine.kinds["final"] == 4
    assert engine.kinds.get("preview", 0) <= 3 * 4


def test_the_seed_draws_the_tested_clients_alike_for_every_method() -> None:
    drawn = {}
    for seed, method in ((0, "fedper"), (0, "fedavg"), (1, "fedavg")):
        made = fedtailor.experiment(settings(method, clients=4), {"seed": seed, "data.seed": 7})
        drawn[seed, method] = sampling.tested_clients(made, job_of(made, Resources()).federation)
    assert drawn[0, "fedper"] == drawn[0, "fedavg"] == sorted(set(drawn[0, "fedavg"]))
    assert drawn[0, "fedavg"] != drawn[1, "fedavg"]


def test_results_name_their_clients_and_their_interval(both: Any) -> None:
    everyone, some, _ = both
    assert "the results are over 4 of 12 clients, which the seed drew (evaluation.clients)" in some.warnings
    (sentence, *_) = remarks(some.last())
    assert sentence.startswith("over 4 of 12 clients; the worst are those of the tested clients; 95 % interval")
    final = some.summary().as_dict()["metrics"]["final"]
    assert final["population"] == 12
    # t(3) = 3.182446; the deviation with 4 - 1 in the denominator; eight of twelve clients are not tested
    assert final["interval"] == pytest.approx(3.182446 * final["deviation"] / 3**0.5 * (8 / 12) ** 0.5, rel=1e-6)
    assert "population" not in everyone.summary().as_dict()["metrics"]["final"]
    assert not [line for line in remarks(everyone.last()) if "interval" in line]
    shown = CliRunner().invoke(app, ["list", str(some.folder.parent)], env={"COLUMNS": "200"}).output
    assert shown.count("±") == 1


def test_a_client_that_is_not_tested_has_a_model_too(both: Any, tmp_path: Path) -> None:
    """The final pass trained the tested clients only; for another one an export does what it would have done."""
    everyone, some, _ = both
    untested = next(c for c in range(12) if c not in {row["client"] for row in some.scores("final")})
    one, other = (
        fedtailor.export_client(run.folder, untested, tmp_path / name) for run, name in ((everyone, "1"), (some, "2"))
    )
    assert (one / "model.safetensors").read_bytes() == (other / "model.safetensors").read_bytes()


def test_new_clients_are_drawn_too(tmp_path: Path) -> None:
    with fedtailor.run({**settings("fedavg", clients=2, new_clients=0.5), "rounds": 1}, folder=tmp_path / "run") as run:
        found = run.scores("new")
        assert len(found) == 2
        assert all(6 <= row["client"] < 12 for row in found)
        assert run.last()["new"].population == 6


def test_a_comparison_says_it_below_its_table(tmp_path: Path) -> None:
    made = {**settings(clients=4), "rounds": 1, "compare": {"methods": ["fedavg", "fedper"], "seeds": [0]}}
    notes = [note.sentence for note in fedtailor.compare(made, folder=tmp_path / "both").summary().notes]
    (said,) = [note for note in notes if "interval" in note]
    assert said.startswith("over 4 of 12 clients, the same for all rows of a seed; 95 % interval of a run's mean")


def test_all_clients_are_no_sample() -> None:
    made = fedtailor.experiment(settings(clients=12))
    assert population(made.evaluation.clients, 12) == 0
    assert list(assemble(made, job_of(made, Resources())).tested) == list(range(12))


@pytest.mark.parametrize("clients", [1, 13, "some"])
def test_a_number_of_clients_that_cannot_be_drawn_is_refused(clients: Any) -> None:
    with pytest.raises(UserError, match=r"evaluation\.clients"):
        fedtailor.experiment(settings(clients=clients))


def test_a_resumed_run_tests_the_same_clients(both: Any, tmp_path: Path) -> None:
    _, some, _ = both

    class Stop(fedtailor.Callback):
        def round_done(self, report: Any) -> None:
            raise RuntimeError

    with pytest.raises(RuntimeError):
        fedtailor.run(settings(clients=4), folder=tmp_path / "run", callbacks=Stop())
    with fedtailor.resume(tmp_path / "run") as run:
        assert json.dumps(run.metrics()) == json.dumps(some.metrics())
