"""The best round and the early end: by validation data alone, exact, and the best round is what is deployed."""

import math
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import fedtailor
from fedtailor.data import DataSettings, build
from fedtailor.errors import UserError
from fedtailor.learning import Score
from fedtailor.runs.measures import Measures
from fedtailor.runs.measuring import measures
from fedtailor.runs.sections import Stopping
from fedtailor.runs.stopping import Best, Keeper
from fedtailor.runs.store import Store
from tests.support.fingerprint import assert_same, fingerprint

RUN: dict[str, Any] = {
    "rounds": 12,
    "method": {"name": "fedper"},
    "data": {"clients": 6, "samples": 240},
    "training": {"epochs": 1, "lr": 0.3},
    "participation": {"ratio": 0.5},
    "evaluation": {"every": 5, "new_clients": 0.1},
    "engine": {"kind": "inline"},
    "stopping": {"patience": 2},
}


@pytest.fixture(scope="module")
def stopped(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("stopped") / "run"
    fedtailor.run(RUN, folder=folder).close()
    return folder


def of(accuracy: float, round: int) -> Measures:
    """The measures of one client with 20 validation samples."""
    correct = 0 if math.isnan(accuracy) else round_to(20 * accuracy)
    found = measures({0: Score(correct, 1.0, 20)}, round)
    return replace(found, accuracy=accuracy)


def round_to(value: float) -> int:
    return int(value + 0.5)


@pytest.mark.parametrize(
    ("settings", "values", "best", "stopped"),
    [
        # round 3 ties with round 2, which stays the best; round 4 is the second without a better one
        ({"patience": 2}, [0.5, 0.6, 0.6, 0.55, 0.7], Best(2, 0.6), 4),
        # it may not end before round 5, and round 5 is better
        ({"patience": 2, "min_rounds": 5}, [0.5, 0.6, 0.6, 0.55, 0.7], Best(5, 0.7), None),
        # gains of 0.05 do not count, so that round 1 stays the best
        ({"patience": 3, "min_gain": 0.2}, [0.5, 0.55, 0.6, 0.65], Best(1, 0.5), 4),
        # without patience the run continues to its end
        ({}, [0.5, 0.4, 0.3, 0.2], Best(1, 0.5), None),
        # a model that has diverged is never the best
        ({"patience": 2}, [math.nan, 0.1, math.nan, math.nan], Best(2, 0.1), 4),
        ({"patience": 2}, [math.nan, math.nan], None, 2),
    ],
)
def test_hand_derived_decisions(
    settings: dict[str, Any], values: list[float], best: Best | None, stopped: int | None, tmp_path: Path
) -> None:
    Store.create(tmp_path, {})
    with Store(tmp_path, write=True) as store:
        for round, value in enumerate(values, start=1):
            keeper = Keeper(store, None, Stopping(**settings))  # a new one each time, as after a crash
            if keeper.stopped is not None:
                break
            store.set_state("server", "model", bytes([round]))
            keeper.round_done(round, of(value, round))
        keeper = Keeper(store, None, Stopping(**settings))
        assert (keeper.best, keeper.stopped) == (best, stopped)
        assert store.state("kept best server", "model") == (bytes([best.round]) if best else None)


def test_a_run_ends_early_says_so_and_deploys_its_best_round(stopped: Path, tmp_path: Path) -> None:
    """The final pass and new clients see what they would see in a run that had ended with the best round."""
    with fedtailor.Run(stopped) as run:
        facts = run.summary()
        assert facts.best is not None
        assert facts.stopped == facts.rounds_done == facts.best.round + 2 < 12
        values = {row["round"]: row["accuracy"] for row in run.metrics("validation")}
        assert max(values.values()) == values[facts.best.round] == facts.best.value
        assert facts.as_dict()["best"]["round"] == facts.final.round == facts.best.round
        assert facts.notes[-1] == f"stopped early after round {facts.stopped}"
    short = {**RUN, "rounds": facts.best.round, "stopping": {}}
    with fedtailor.run(short, folder=tmp_path / "short") as run:
        assert run.last()["final"] == facts.final
        assert run.last()["new"] == facts.metrics["new"]
    one, other = fingerprint(stopped), fingerprint(tmp_path / "short")
    assert [row for row in one["scores"] if row["model"] == "final"] == [
        row for row in other["scores"] if row["model"] == "final"
    ]
    with Store(stopped) as store:
        assert store.state("kept best server", "model") != store.state("server", "model")  # so it matters


def test_exports_are_of_the_best_round(stopped: Path, tmp_path: Path) -> None:
    """A client whose model was not stored trains once more from the state of the best round, to the same bits."""
    settings = {**RUN, "evaluation": {"every": 0, "keep_models": 0}, "method": {"name": "fedavg"}, "rounds": 9}
    fedtailor.run({**settings, "evaluation": {"every": 0}}, folder=tmp_path / "kept").close()
    fedtailor.run(settings, folder=tmp_path / "again").close()
    files = [fedtailor.export_client(tmp_path / name, 1, tmp_path / f"{name}-1") for name in ("kept", "again")]
    assert len({(file / "model.safetensors").read_bytes() for file in files}) == 1
    with fedtailor.Run(tmp_path / "kept") as run:
        best = run.best
        assert best is not None
        assert best.round < run.rounds_done
    fedtailor.run({**settings, "rounds": best.round, "stopping": {}}, folder=tmp_path / "short").close()
    files = [fedtailor.export_global(tmp_path / name, tmp_path / f"{name}-g") for name in ("kept", "short")]
    assert len({(file / "model.safetensors").read_bytes() for file in files}) == 1


def test_test_data_have_no_part_in_it(tmp_path: Path) -> None:
    """Inputs and labels of all test samples are replaced: the same decisions and states, other test scores."""
    real = build(DataSettings.model_validate(RUN["data"]), 0, needs_validation=True)
    x, y, tested = real.samples.x.copy(), real.samples.y.copy(), real.test.indices
    x[tested], y[tested] = x[tested][::-1], (y[tested] + 1 + np.arange(len(tested)) % 8) % 10
    other = replace(real, samples=replace(real.samples, x=x, y=y))
    settings = {**RUN, "evaluation": {"every": 1}}
    found = {}
    for name, federation in (("real", real), ("wrong", other)):
        fedtailor.run(settings, folder=tmp_path / name, federation=federation).close()
        with Store(tmp_path / name) as store:
            decided = store.meta("best"), store.meta("stopped")
        found[name] = fingerprint(tmp_path / name), decided
    assert found["real"][1] == found["wrong"][1]
    assert found["real"][1][1] is not None
    for table in ("rounds", "tasks", "state"):
        assert found["real"][0][table] == found["wrong"][0][table]
    assert found["real"][0]["metrics"] != found["wrong"][0]["metrics"]


def test_a_sample_of_tested_clients_changes_no_decision(stopped: Path, tmp_path: Path) -> None:
    """All clients of a cohort are validated, also those that are not tested."""
    fedtailor.run(
        {**RUN, "evaluation": {"every": 5, "new_clients": 0.1, "clients": 2}}, folder=tmp_path / "two"
    ).close()
    one, other = fingerprint(stopped), fingerprint(tmp_path / "two")
    assert one["state"] == other["state"]
    with fedtailor.Run(stopped) as run, fedtailor.Run(tmp_path / "two") as sampled:
        assert (run.best, run.rounds_done) == (sampled.best, sampled.rounds_done)
        assert sampled.last()["validation"] == run.last()["validation"]
        assert sampled.last()["final"].clients == 2


def test_the_decision_does_not_depend_on_the_engine(stopped: Path, tmp_path: Path) -> None:
    fedtailor.run({**RUN, "engine": {"kind": "processes", "workers": 1}}, folder=tmp_path / "other").close()
    assert_same(stopped, tmp_path / "other")


def test_more_rounds_are_refused_after_an_early_end_and_exact_without_one(stopped: Path, tmp_path: Path) -> None:
    before = fingerprint(stopped)
    with pytest.raises(UserError, match=r"stopped early after round .* fedtailor run --from"):
        fedtailor.resume(stopped, rounds=20)
    assert fingerprint(stopped) == before
    patient = {**RUN, "stopping": {"patience": 50}}
    fedtailor.run({**patient, "rounds": 3}, folder=tmp_path / "grown").close()
    fedtailor.resume(tmp_path / "grown", rounds=6).close()
    fedtailor.run({**patient, "rounds": 6}, folder=tmp_path / "meant").close()
    assert_same(tmp_path / "grown", tmp_path / "meant")


def test_a_run_that_cannot_choose_is_refused(tmp_path: Path) -> None:
    clients = {name: (np.random.RandomState(0).rand(12, 3).astype(np.float32), np.arange(12) % 2) for name in "ab"}
    federation = fedtailor.Federation.from_clients(clients)
    settings = {"rounds": 1, "stopping": {}, "engine": {"kind": "inline"}, "model": {"name": "linear"}}
    with pytest.raises(UserError, match="no client has validation samples"):
        fedtailor.run(settings, folder=tmp_path / "run", federation=federation)
    private = {**RUN, "method": {"name": "fedavg"}, "privacy": {"level": "client", "noise": 1.0}}
    with pytest.raises(UserError, match="get no noise"):
        fedtailor.run(private, folder=tmp_path / "run")
    assert not (tmp_path / "run").exists()
