"""A search for settings: exact, resumable, and blind to test data."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import fedtailor
from fedtailor.data import DataSettings, Federation, build
from fedtailor.runs.settings import experiment
from fedtailor.runs.trials import SearchCallback, TrialRunner, held_out
from fedtailor.runs.trials.plan import rungs, trial_of, trial_settings
from fedtailor.runs.tuning import Tuning, tune
from fedtailor.runs.tuning.space import Dimension, space_of
from tests.support.dying_search import killed

pytest.importorskip("optuna")

SETTINGS: dict[str, Any] = {
    "rounds": 4,
    "data": {"clients": 4, "samples": 160},
    "training": {"epochs": 1, "lr": 0.05},
    "method": {"name": "fedprox"},
    "engine": {"kind": "inline"},
}
OVER = ["training.lr=0.005:0.5:log", "method.mu"]
TRIALS = 6


def search(folder: Path, **more: Any) -> Tuning:
    return tune({**SETTINGS, **more.pop("settings", {})}, over=OVER, trials=TRIALS, folder=folder, **more)


def outcome(tuning: Tuning) -> Any:
    """All that a search found, without measured times."""
    rows = [replace(row, seconds=0.0) for tuned in tuning.methods for row in tuned.trials]
    return rows, [tuned.best.number for tuned in tuning.methods], tuning.best.as_dict()["training"]


@pytest.fixture(scope="module")
def real() -> Federation:
    return build(DataSettings.model_validate(SETTINGS["data"]), 0)


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory: pytest.TempPathFactory) -> Tuning:
    return search(tmp_path_factory.mktemp("tuning") / "search")


def test_other_test_samples_change_nothing(undisturbed: Tuning, real: Federation, tmp_path: Path) -> None:
    """Labels and inputs of all test samples are replaced: the same trials, values and choice."""
    x, y, tested = real.samples.x.copy(), real.samples.y.copy(), real.test.indices
    y[tested] = (y[tested] + 1 + np.arange(len(tested)) % 8) % 10
    x[tested] = 0
    wrong = replace(real, samples=replace(real.samples, x=x, y=y))
    assert wrong.digest() != real.digest()
    assert outcome(search(tmp_path / "wrong", federation=wrong)) == outcome(undisturbed)
    y[real.train.indices[:40]] = 0  # a search that is blind to everything would pass, too
    assert outcome(search(tmp_path / "other", federation=wrong))[0] != outcome(undisturbed)[0]


def test_trials_have_no_test_samples_and_are_tested_on_other_samples_than_they_train_on(real: Federation) -> None:
    made = held_out(real, 0, DataSettings().preprocess, needs_validation=True)
    assert len(made.samples) == len(real.samples) - len(real.test.indices)
    parts = [set(part.indices.tolist()) for part in (made.train, made.val, made.test)]
    assert sum(map(len, parts)) == len(set.union(*parts)) == len(made.samples)
    assert made.test.sizes.all()
    for client in range(real.clients):  # every client keeps its own samples
        mine = np.concatenate([part[client] for part in (made.train, made.val, made.test)])
        kept = np.sort(made.samples.x[mine].reshape(len(mine), -1), axis=0)
        assert (kept == np.sort(real.samples.x[real.train[client]].reshape(len(mine), -1), axis=0)).all()
    assert (
        held_out(real, 1, DataSettings().preprocess).digest() != held_out(real, 0, DataSettings().preprocess).digest()
    )


def test_the_number_of_workers_changes_nothing(undisturbed: Tuning, tmp_path: Path) -> None:
    two = search(tmp_path / "two", settings={"engine": {"kind": "processes", "workers": 2}})
    assert outcome(two) == outcome(undisturbed)


def test_killed_and_resumed_it_ends_with_the_same_trials(undisturbed: Tuning, tmp_path: Path) -> None:
    """Two kills, in the middle of a round and in the middle of a record."""
    folder = tmp_path / "search"
    for event in (9, 14):
        assert killed("tests.runs.test_tuning", folder, event)
    half = (folder / "readings.jsonl").read_bytes()
    assert 0 < len(half.splitlines()) < len((undisturbed.folder / "readings.jsonl").read_bytes().splitlines())
    assert outcome(search(folder)) == outcome(undisturbed)
    assert not any((folder / "trials").iterdir())


def test_more_trials_continue_a_search(undisturbed: Tuning, monkeypatch: pytest.MonkeyPatch) -> None:
    """Finished trials are not carried out again."""
    read: list[str] = []
    original = TrialRunner._here
    monkeypatch.setattr(TrialRunner, "_here", lambda self, trial: read.append(trial.name) or original(self, trial))
    again = search(undisturbed.folder)
    assert read == []
    assert outcome(again) == outcome(undisturbed)


def test_the_best_settings_are_a_file_that_runs(undisturbed: Tuning, tmp_path: Path) -> None:
    tuned = undisturbed.of("fedprox")
    assert tuned.own.values == {"training.lr": 0.05, "method.mu": 0.1}
    assert tuned.best.value == max(row.value for row in tuned.trials if row.value is not None)
    best = experiment(undisturbed.written["fedprox"])
    assert best.training.lr == tuned.best.values["training.lr"]
    assert best.as_dict() == undisturbed.best.as_dict()
    with fedtailor.run(best, folder=tmp_path / "run") as run:
        assert run.finished


def test_a_trial_below_the_median_ends_early(undisturbed: Tuning) -> None:
    rows = undisturbed.of().trials
    assert rungs(4) == [1, 2]
    assert {row.state for row in rows} == {"complete", "stopped"}
    stopped = [row for row in rows if row.rounds == 1]
    assert stopped
    level = float(np.median([row.curve[1] for row in rows]))
    assert all(row.curve[1] < level for row in stopped)


def test_a_setting_that_diverges_is_a_failed_trial(tmp_path: Path) -> None:
    made = tune(
        {**SETTINGS, "training": {"epochs": 3, "lr": 0.05, "batch_size": 4}},
        over=["training.lr=0.01,100.0"],
        trials=5,
        folder=tmp_path / "search",
    )
    rows = made.of().trials[1:]
    assert {row.values["training.lr"] for row in rows} == {0.01, 100.0}
    assert {row.state for row in rows if row.values["training.lr"] == 100.0} == {"failed"}
    assert all("diverged" in row.failure for row in rows if row.state == "failed")
    assert made.best.training.lr == 0.05


def test_several_methods_get_the_same_number_of_trials(tmp_path: Path) -> None:
    made = tune(
        SETTINGS, methods=["fedavg", "fedprox"], over=["training.lr", "method.mu"], trials=3, folder=tmp_path / "s"
    )
    assert {one.method: len(one.trials) for one in made.methods} == {"fedavg": 3, "fedprox": 3}
    assert [one.key for one in made.of("fedavg").space] == ["training.lr"]
    assert sorted(path.name for path in made.written.values()) == ["best-fedavg.toml", "best-fedprox.toml"]


def test_too_little_time_ends_after_the_own_settings_and_says_so(tmp_path: Path) -> None:
    made = search(tmp_path / "search", minutes=1e-6)
    assert len(made.of().trials) == 1
    assert "--minutes 1e-06 ended the search after 1 of 6 trials" in made.notes[-1]


def test_ranges_come_from_limits_and_present_values() -> None:
    """By hand: 0.05 / 30 to 0.05 * 30; 0.1 is far below the limit 1000, and 0.8 is not far below 1."""
    prox, ala = experiment(SETTINGS), experiment({"method": {"name": "fedala"}})
    assert space_of(prox) == [
        Dimension("training.lr", 0.00167, 1.5, log=True),
        Dimension("method.mu", 0.00333, 3.0, log=True),
    ]
    assert space_of(ala, ["method.share"]) == [Dimension("method.share", 0.01, 1.0)]
    assert space_of(prox, ["training.epochs=1:4"]) == [Dimension("training.epochs", 1, 4, whole=True, given=True)]
    assert space_of(prox, ["training.batch_size=8,16"])[0].choices == (8, 16)
    assert space_of(prox, ["training.optimiser"])[0].choices == ("sgd", "adam")
    assert space_of(ala, ["method.layers=1:3"])[0].whole  # a whole number, or all
    mlp = experiment({"model": {"name": "mlp", "arguments": {"hidden": 8}}})
    assert space_of(mlp, ["model.arguments.hidden=4:32"]) == [
        Dimension("model.arguments.hidden", 4, 32, whole=True, given=True)
    ]
    assert not space_of(prox, ["participation.ratio=0.5:1"])[0].whole


@pytest.mark.parametrize("name", ["bwa", "pfedrlla", "per-fedavg"])
def test_settings_that_change_nothing_are_not_searched(name: str, tmp_path: Path) -> None:
    """Those of an agent while a rule decides, and those of a part that is off."""
    settings = experiment({**SETTINGS, "method": {"name": name}})
    keys = [one.key.removeprefix("method.") for one in space_of(settings)]
    idle = settings.method.idle_settings()
    assert keys[0] == "training.lr"
    assert not idle & set(keys)
    named = sorted(idle & {"spread", "b1", "delta"})[0]
    with pytest.raises(fedtailor.UserError, match=f"--over method.{named}: with these settings of {name} it changes"):
        tune(settings, over=[f"method.{named}"], folder=tmp_path / "s")
    assert not (tmp_path / "s").exists()
    made = tune(settings, trials=1, folder=tmp_path / "made")
    assert len([note for note in made.notes if note.startswith(f"{name}: the rule")]) == (name != "per-fedavg")
    on = {"bwa": {"policy": "none"}, "pfedrlla": {"policy": "none"}, "per-fedavg": {"variant": "hessian-free"}}[name]
    searched = space_of(experiment({**SETTINGS, "method": {"name": name, **on}}))
    assert len(searched) == 3
    assert searched != space_of(settings)


def test_trials_keep_no_copies_in_trackers_and_can_be_repeated() -> None:
    changes = {"track": ["tensorboard"], "privacy": {"level": "client", "generator": "system"}}
    made = trial_settings(experiment({**SETTINGS, **changes}), 3)
    assert (made.track, made.privacy.generator, made.privacy.level, made.seed) == ((), "seeded", "client", 3)


@pytest.mark.parametrize(
    ("damage", "said"),
    [(b"nonsense\n", "damaged in line 1"), (b'{"trial": "a", "reading": {}, "digest": "0"}\n', "damaged in line 1")],
)
def test_damaged_records_are_one_sentence(tmp_path: Path, damage: bytes, said: str) -> None:
    folder = tmp_path / "search"
    search(folder, minutes=1e-6)
    (folder / "readings.jsonl").write_bytes(damage)
    with pytest.raises(fedtailor.UserError, match=said):
        search(folder)


def test_a_folder_with_another_search_is_left_alone(undisturbed: Tuning) -> None:
    with pytest.raises(fedtailor.UserError, match="holds another search"):
        search(undisturbed.folder, settings={"rounds": 5})
    with pytest.raises(fedtailor.UserError, match="holds something else"):
        search(undisturbed.folder.parent)


def test_clients_that_can_spare_no_sample(tmp_path: Path) -> None:
    single = Federation.from_clients(
        {name: {"train": (np.ones((1, 3)), [0]), "test": (np.ones((1, 3)), [1])} for name in ("anna", "bert")}
    )
    with pytest.raises(fedtailor.UserError, match="no validation samples"):
        tune({"rounds": 1, "engine": {"kind": "inline"}}, trials=1, folder=tmp_path / "s", federation=single)
    assert not (tmp_path / "s").exists()


@pytest.mark.parametrize(
    ("method", "over", "said"),
    [
        (
            "fedavg",
            "method.mu",
            "fedavg has no setting 'mu', and no other one; apple, fednova, fedphp, fedprox have one",
        ),
        ("fedprox", "method.mue", "did you mean method.mu?"),
        ("fedprox", "method.zzz", "fedprox has no setting 'zzz' (it has mu)"),
        ("pfedrlla", "method.agents.head-weights.hidden", "it is a list or a table"),
        ("fedavg", "model.name", "name choices, as in --over model.name=A,B"),
    ],
)
def test_what_cannot_be_searched_is_said(method: str, over: str, said: str) -> None:
    with pytest.raises(fedtailor.UserError) as found:
        space_of(experiment({"method": {"name": method}}), [over])
    assert str(found.value).startswith(f"--over {over}: {said}")


def test_rounds_of_an_earlier_call_are_no_work_of_this_one(tmp_path: Path) -> None:
    """By hand: a trial of four rounds of which two were read before has two left, whatever its cost is counted in."""
    settings = trial_settings(experiment(SETTINGS), 0)
    given = build(DataSettings.model_validate(SETTINGS["data"]), 0)

    def data(seed: int) -> Federation:
        return held_out(given, seed, DataSettings().preprocess)

    with TrialRunner(tmp_path / "s", {}, settings.engine, data, SearchCallback()) as runner:
        half, whole = (trial_of("fedprox", settings, until) for until in (2, 4))
        runner.read("half", [half])
        assert runner._rounds_left(whole) == 2
        (tmp_path / "s" / "readings.jsonl").unlink()
        runner._records.readings.clear()
        assert runner._rounds_left(whole) == 2  # by its folder
        before = runner._pace[0]
        runner.read("whole", [whole], [100.0])
        assert runner._pace[0] - before == 50.0
