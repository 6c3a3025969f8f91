"""The numbers behind the figures."""

from pathlib import Path

import fedtailor
from fedtailor.views.html import facts
from fedtailor.views.html.facts import comparison_facts, quantiles, run_facts, thinned


def test_a_run_has_the_curves_and_clients_that_it_recorded(named_run: Path) -> None:
    with fedtailor.Run(named_run) as run:
        found = run_facts(run)
        curves = {curve["model"]: curve for curve in found["curves"]}
        held = [row["accuracy"] for row in run.metrics("held")]
        assert curves["held"]["mean"] == held
        assert curves["held"]["x"]["round"] == [1, 2, 3]
        costs = curves["held"]["x"]["megabytes"]
        assert costs[-1] * 1e6 == sum(row["bytes_up"] + row["bytes_down"] for row in run.rounds())
        assert costs == sorted(costs)
        assert found["final"] == run.last()["final"].accuracy
        assert found["clients"]["values"]["final"] == [row["accuracy"] for row in run.scores("final")]
        assert found["cohort"] == run.rounds()[-1]["cohort"]


def test_a_comparison_has_each_client_once_per_seed(compared: Path) -> None:
    comparison = fedtailor.Comparison(compared)
    found = comparison_facts(comparison, comparison.summary())
    assert [row["label"] for row in found["clients"]] == ["local", "<b>strong</b>"]
    with fedtailor.Run(compared / "local-s1") as run:
        assert found["clients"][0]["seeds"][1] == [row["accuracy"] for row in run.scores("final")]
    assert set(found["clients"][0]["seeds"]) == {0, 1, 2}
    assert all(set(curve["x"]) == {"round", "megabytes", "seconds"} for curve in found["curves"])


def test_a_page_of_very_many_clients_keeps_some_of_them(compared: Path, monkeypatch) -> None:
    comparison = fedtailor.Comparison(compared)
    monkeypatch.setattr(facts, "VALUES", 4)  # of 2 methods x 4 clients x 3 seeds
    found = comparison_facts(comparison, comparison.summary())
    assert found["every"] == 2
    assert {seed: len(row) for seed, row in found["clients"][0]["seeds"].items()} == {0: 2}


def test_quantiles_go_from_the_lowest_to_the_highest() -> None:
    assert quantiles([0.5, None, float("nan"), 0.1, 0.9]) == [0.1, 0.5, 0.9]
    many = quantiles(k / 1000 for k in range(1001))
    assert (len(many), many[0], many[50], many[-1]) == (101, 0.0, 0.5, 1.0)
    assert quantiles([1.0]) == []


def test_thinning_keeps_both_ends() -> None:
    kept = thinned(range(1000), 10)
    assert (len(kept), kept[0], kept[-1]) == (10, 0, 999)
    assert thinned([1, 2]) == [1, 2]


def test_of_very_many_clients_a_run_shows_those_with_a_score(named_run: Path, monkeypatch) -> None:
    with fedtailor.Run(named_run) as run:
        whole = run_facts(run)["clients"]
        assert whole["ids"] is None
        monkeypatch.setattr(facts, "VALUES", 3 * len(whole["values"]))
        found = run_facts(run)["clients"]
        assert len(found["ids"]) == 3
        for model, values in found["values"].items():
            assert values == [whole["values"][model][client] for client in found["ids"]]
