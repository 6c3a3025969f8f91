"""Advice on a method: right where the answer is known, exact, resumable, and blind to test data."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import fedtailor
from fedtailor.data import DataSettings, Federation, build
from fedtailor.methods import AgentMethod, find
from fedtailor.runs.advice import Advice, LeftOut, Needs, Standing, advise, race
from fedtailor.runs.advice.race import Arm, Race, lengths, variants
from fedtailor.runs.advice.reasons import about, difference_words, reasons
from fedtailor.runs.advice.rules import choose
from fedtailor.runs.advice.traits import feature_skew, traits_of
from fedtailor.runs.settings import experiment
from fedtailor.runs.statistics import Difference
from fedtailor.runs.trials import TrialRunner, held_out
from fedtailor.runs.trials.plan import data_of, trial_settings, whole_of
from fedtailor.runs.trials.trial import carry_out
from tests.support.dying_search import killed

SETTINGS: dict[str, Any] = {
    "rounds": 4,
    "data": {"clients": 4, "samples": 160},
    "training": {"epochs": 1, "lr": 0.05},
    "engine": {"kind": "inline"},
}
METHODS = ["fedavg", "local", "fedper"]


def search(folder: Path, **more: Any) -> Advice:
    settings = {**SETTINGS, **more.pop("settings", {})}
    return advise(settings, **{"methods": METHODS, "seeds": [0], "folder": folder, **more})


def outcome(advice: Advice) -> Any:
    """All that an advice says, without measured times."""
    return [replace(one, seconds=0.0) for one in advice.standings], advice.reasons, advice.best.as_dict()["training"]


@pytest.fixture(scope="module")
def real() -> Federation:
    return build(DataSettings.model_validate(SETTINGS["data"]), 0)


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory: pytest.TempPathFactory) -> Advice:
    return search(tmp_path_factory.mktemp("advice") / "search")


# Exact, resumable, blind to test data


def test_other_test_samples_change_nothing(undisturbed: Advice, real: Federation, tmp_path: Path) -> None:
    """Labels and inputs of all test samples are replaced: the same ranking, values, traits and reasons."""
    x, y, tested = real.samples.x.copy(), real.samples.y.copy(), real.test.indices
    y[tested], x[tested] = (y[tested] + 1 + np.arange(len(tested)) % 8) % 10, 0
    wrong = replace(real, samples=replace(real.samples, x=x, y=y))
    assert wrong.digest() != real.digest()
    again = search(tmp_path / "wrong", federation=wrong)
    assert (outcome(again), again.traits) == (outcome(undisturbed), undisturbed.traits)
    y[real.train.indices[:40]] = 0  # an advice that is blind to everything would pass, too
    assert outcome(search(tmp_path / "other", federation=wrong))[0] != outcome(undisturbed)[0]


def test_the_number_of_workers_changes_nothing(undisturbed: Advice, tmp_path: Path) -> None:
    two = search(tmp_path / "two", settings={"engine": {"kind": "processes", "workers": 2}})
    assert outcome(two) == outcome(undisturbed)


def test_killed_and_resumed_it_ends_with_the_same_answer(undisturbed: Advice, tmp_path: Path) -> None:
    """Two kills, in the middle of a round and in the middle of a record."""
    folder = tmp_path / "search"
    for event in (21, 40):
        assert killed("tests.runs.test_advice", folder, event)
    half = (folder / "readings.jsonl").read_bytes().splitlines()
    assert 0 < len(half) < len((undisturbed.folder / "readings.jsonl").read_bytes().splitlines())
    assert outcome(search(folder)) == outcome(undisturbed)
    assert not any((folder / "trials").iterdir())


def test_the_recommended_settings_are_a_file_that_runs(undisturbed: Advice, tmp_path: Path) -> None:
    best = experiment(undisturbed.written)
    assert best.as_dict() == undisturbed.best.as_dict()
    assert best.method == find(undisturbed.method).model_validate(best.method.model_dump())
    with fedtailor.run(best, folder=tmp_path / "run") as run:
        assert run.finished


# Answers that are known


def two_camps(opposed: bool) -> Federation:
    """Eight clients who judge the same inputs by one rule; the camps of a conflict have opposite labels."""
    stream = np.random.default_rng(0)
    rule = stream.normal(size=10)

    def part(client: int, count: int) -> tuple[np.ndarray, np.ndarray]:
        x = stream.normal(size=(count, 10)).astype(np.float32)
        return x, ((x @ rule > 0).astype(np.int64) + (opposed and client % 2)) % 2

    clients = {f"c{k}": {"train": part(k, 20), "val": part(k, 40), "test": part(k, 4)} for k in range(8)}
    return Federation.from_clients(clients, classes=("no", "yes"))


LINEAR: dict[str, Any] = {
    "rounds": 5,
    "model": {"name": "mlp", "arguments": {"hidden": 8}},
    "training": {"epochs": 2, "lr": 0.3, "batch_size": 8},
    "engine": {"kind": "inline"},
    "compare": {"model": "received"},  # what the exchange gives them, before they train
}


@pytest.fixture(scope="module")
def camps(tmp_path_factory: pytest.TempPathFactory) -> dict[bool, Advice]:
    folder = tmp_path_factory.mktemp("camps")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(race, "variants", lambda _: [])  # the question is about methods
        return {
            opposed: advise(
                LINEAR, methods=["fedavg", "local", "ifca"], folder=folder / str(opposed), federation=two_camps(opposed)
            )
            for opposed in (False, True)
        }


def test_clients_that_are_alike_share_one_model(camps: dict[bool, Advice]) -> None:
    alike = camps[False]
    assert alike.of("fedavg") is alike.standings[0] or alike.of("fedavg").difference.outcome != "ahead"
    assert alike.of("local").difference.outcome == "ahead"
    assert not alike.traits.labels_differ
    assert not alike.traits.features_differ


def test_clients_whose_labels_conflict_are_clustered(camps: dict[bool, Advice]) -> None:
    """The inputs and the shares of labels are the same in both camps; only their relation differs."""
    conflict = camps[True]
    assert conflict.method == "ifca"
    assert conflict.of("fedavg").difference.outcome == "ahead"
    assert not conflict.traits.labels_differ
    assert conflict.traits.features_differ  # within a class, the inputs of the camps are opposite
    assert "It was ahead of fedavg, which gives all clients one model. Your clients' inputs differ." in " ".join(
        conflict.reasons
    )


def test_clients_with_two_of_six_classes_get_models_of_their_own(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By what clients receive: a head for two classes against one that must tell six apart."""
    stream = np.random.default_rng(1)
    centres = stream.normal(size=(6, 6))

    def part(client: int, count: int) -> tuple[np.ndarray, np.ndarray]:
        y = (client + np.arange(count) % 2) % 6
        return (centres[y] + 0.9 * stream.normal(size=(count, 6))).astype(np.float32), y

    clients = {f"c{k}": {"train": part(k, 20), "val": part(k, 40), "test": part(k, 4)} for k in range(6)}
    skewed = Federation.from_clients(clients, classes=tuple("abcdef"))
    monkeypatch.setattr(race, "variants", lambda _: [])
    advice = advise(LINEAR, methods=METHODS, folder=tmp_path / "s", federation=skewed)
    assert advice.method in ("fedper", "local")
    assert advice.of("fedavg").difference.outcome == "ahead"
    assert advice.traits.labels_differ
    assert "Your clients have 2 of 6 classes each" in " ".join(advice.reasons)


def test_all_candidates_spare_the_same_validation_samples(tmp_path: Path) -> None:
    """What one candidate needs, all spare: FedAvg trains on as many samples as Tailor, which chooses by the others."""
    alone = search(tmp_path / "alone", methods=["fedavg", "local"])
    made = search(tmp_path / "s", methods=["fedavg", "local", "tailor"])
    assert made.samples == alone.samples
    assert made.of("fedavg").value != alone.of("fedavg").value
    assert made.of("tailor").value is not None


def test_the_table_says_where_a_rule_decides(tmp_path: Path) -> None:
    made = search(tmp_path / "s", methods=["fedavg", "bwa", "pfedrlla"])
    rules = [note for note in made.notes if "decides" in note]
    assert [note.partition(", not")[0] for note in rules] == [
        "bwa: the rule 'uniform' decides",
        "pfedrlla: the rule 'similarity' decides",
    ]


def test_reasons_say_what_was_measured() -> None:
    """By hand: local is 3 points ahead of FedAvg and 1 behind FedRep. No sentence says why."""
    traits = traits_of(
        experiment(SETTINGS), data_of(whole_of(experiment(SETTINGS), None), experiment(SETTINGS), False)(0)
    )

    def standing(method: str, ahead: float | None) -> Standing:
        found = None if ahead is None else Difference((ahead, ahead + 0.1, ahead - 0.1), "points")
        return Standing(method, {}, True, 4, 0.5, {0: 0.5}, found, None, 1.0, 1.0, 1.0)

    said = reasons(traits, [standing("fedrep", None), standing("local", 1), standing("fedavg", 4)], "fedavg", False)
    assert "On validation data, fedavg is behind local by 3.0 points [3.0, 3.0]." in said
    said += reasons(traits, [standing("local", None), standing("fedavg", 4)], "fedavg", False)
    assert any("local: every client trains" in one and "It was ahead of fedavg" in one for one in said)
    assert not [one for one in said if "harm" in one or "serve" in one or "gain from" in one]


# The race


def test_the_better_half_continues_and_the_last_seeds_chose_nothing(undisturbed: Advice) -> None:
    assert lengths(50) == [7, 7, 13, 25, 50]
    assert lengths(2) == [2] * 5
    assert (undisturbed.seeds, undisturbed.choosing) == ((0,), (1,))
    names = [line.split(b'"')[3].decode() for line in (undisturbed.folder / "readings.jsonl").read_bytes().splitlines()]
    by_length = {until: [name for name in names if name.endswith(f"@{until}")] for until in (3, 4)}
    assert {name.rpartition("-s")[2] for name in by_length[3]} == {"1@3"}
    assert {name.rpartition("-s")[2] for name in by_length[4]} == {"0@4"}
    arms = 3 + 3 * 2  # three methods, and each with two other learning rates
    assert len(by_length[3]) == arms
    changed = {one.method for one in undisturbed.standings if one.changes}
    assert 3 + len(changed) <= len(by_length[4]) <= 6  # changed settings meet the own ones once more


def test_only_leading_methods_vary_their_settings(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """By hand: of four methods one leads and both references go on; what is worse never gets a second trial."""
    for name, value in (("METHODS", 1), ("ARMS", (1, 1)), ("FINALISTS", 1)):
        monkeypatch.setattr(race, name, value)
    made = search(tmp_path / "s", methods=["fedavg", "local", "fedper", "apple"], seeds=[0])
    assert made.of("apple").rounds == 3
    assert not made.of("apple").last
    assert made.of("apple").difference is None
    assert {one.method for one in made.standings if one.last} >= {"fedavg", "local"}


def test_settings_are_varied_by_a_factor_inside_their_limits() -> None:
    arm = Arm(experiment({"method": {"name": "fedprox", "mu": 0.1}, "training": {"lr": 0.05}}))
    assert [dict(one.changes) for one in variants(arm)] == [
        {"training.lr": 0.0167},
        {"training.lr": 0.15},
        {"method.mu": 0.0333},
        {"method.mu": 0.3},
    ]
    assert all(one.settings.method.inert() is None for one in variants(arm))


@pytest.mark.parametrize("name", ["bwa", "pfedrlla"])
def test_settings_that_change_nothing_are_not_varied(name: str) -> None:
    arm = Arm(experiment({**SETTINGS, "method": {"name": name}}))
    changed = {key.removeprefix("method.") for one in variants(arm) for key in one.changes}
    assert "training.lr" in changed
    assert not changed & arm.settings.method.idle_settings()


def test_of_methods_that_deploy_the_same_models_the_simplest_is_a_candidate() -> None:
    """While the rule decides, Adaptive-B is FedAvg and Adaptive-AW is BWA, which it extends."""
    left = left_out({"validation": True})
    assert left["adaptive-b"].startswith("it coincides with fedavg: the rule 'uniform' decides")
    assert left["adaptive-aw"].startswith("it coincides with bwa: the rule 'uniform' decides")
    assert not {"bwa", "fedavg"} & set(left)


def test_too_little_time_ends_after_a_stage_and_says_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(fedtailor.UserError, match="the first trials of 3 methods alone take about"):
        search(tmp_path / "s", minutes=1e-6)
    monkeypatch.setattr(Race, "_probe", lambda *_: None)
    made = search(tmp_path / "s", minutes=1e-6)
    assert "--minutes 1e-06 ended the search after trials of 3 of 4 rounds" in made.notes[-1]
    assert not any(one.last for one in made.standings)


def test_a_method_whose_models_diverge_stands_last_with_the_reason(tmp_path: Path) -> None:
    """lr x mu = 50: every step moves the model 49 times as far from the received one as it was."""
    often = {"training": {"lr": 0.05, "epochs": 3, "batch_size": 2}}
    methods = ["fedavg", "local", {"name": "fedprox", "mu": 1000.0}]
    made = search(tmp_path / "s", settings={**often, "rounds": 1}, methods=methods)
    worst = made.standings[-1]
    assert worst.method == "fedprox"
    assert worst.value is None
    assert worst.failure


def test_a_trial_that_lost_clients_in_the_final_pass_has_no_value(tmp_path: Path, real: Federation) -> None:
    """The mean over the others would reward it. One client's inputs are so large that its model overflows."""
    x = real.samples.x.astype(np.float32)
    x[np.concatenate([real.train[2], real.test[2]])] *= np.float32(1e30)
    broken = replace(real, samples=replace(real.samples, x=x.reshape(len(x), -1)))
    settings = experiment({**SETTINGS, "rounds": 1, "method": {"name": "local"}, "model": {"name": "mlp"}})
    trial = race.trial_of("local", trial_settings(settings, 0), 1)
    from fedtailor.runs.resources import Resources

    with Resources(held_out(broken, 0, DataSettings().preprocess)) as resources:
        reading = carry_out(trial, tmp_path / "trial", resources)
    assert reading.value is None
    assert reading.failure.startswith("1 of 4 clients failed in the final pass")


def test_new_clients_take_no_part_in_a_search() -> None:
    settings = experiment(SETTINGS, {"evaluation.new_clients": 0.25})
    whole = whole_of(settings, None)
    made = data_of(whole, settings, needs_validation=False)(0)
    assert (whole.clients, whole.everyone, made.everyone, made.new) == (3, 4, 3, 0)
    assert len(made.samples) == sum(len(whole.train[k]) for k in range(3))
    assert trial_settings(settings, 0).evaluation.new_clients == 0


# The rules


def left_out(settings: dict[str, Any], needs: Needs | None = None, **more: Any) -> dict[str, str]:
    """The methods that rules leave out, by name."""
    made = experiment({**SETTINGS, **settings})
    data = data_of(whole_of(made, None), made, needs_validation=False)(0)
    traits = replace(traits_of(made, data), **more)
    _, left = choose(made, data, traits, (), needs or Needs())
    return {one.method: one.reason for one in left}


def test_rules_of_a_plain_experiment() -> None:
    left = left_out({})
    assert left["fedbn"] == "the network has no normalisation layer: this is FedAvg"
    assert "[devices]" in left["hapfl"]
    assert set(left) < set(fedtailor.methods.catalogue())
    assert not {"fedavg", "local", "fedrep", "ditto", "fedala", "fedamp", "ifca", "fedah", "fedalp"} & set(left)
    assert not {"fedfomo", "tailor", "bwa", "pfedrlla"} & set(left)  # they need validation samples, and get them


def test_agents_without_a_policy_are_left_out() -> None:
    """By what the methods declare: trials are too short to learn from scratch."""
    left = left_out({"validation": True, "devices": {"profiles": {"kind": "uniform", "spread": 4}}})
    scratch = {name for name, reason in left.items() if "learn from scratch" in reason}
    agents = {name: kind() for name, kind in fedtailor.methods.catalogue().items() if issubclass(kind, AgentMethod)}
    assert scratch == {name for name, made in agents.items() if not made.has_policy}


def test_needs_leave_out_what_they_forbid() -> None:
    sums = left_out({}, Needs(only_sums=True))
    assert "single replies" in sums["fedamp"]
    assert not {"fedrep", "ifca", "local"} & set(sums)
    peers = left_out({"validation": True}, Needs(no_peers=True))
    assert {name for name, reason in peers.items() if "models of other clients" in reason} == {"apple", "fedfomo"}


def test_privacy_leaves_out_what_it_cannot_cover() -> None:
    pytest.importorskip("opacus")
    left = left_out({"privacy": {"level": "client"}})
    assert "more than one sum" in left["ifca"]
    assert not {"fedavg", "fedrep", "ditto"} & set(left)


def test_normalisation_layers_devices_and_sizes_admit_their_methods() -> None:
    assert "fedbn" not in left_out({"model": {"name": "resnet18-bn", "arguments": {"width": 2}}})
    devices = {"devices": {"profiles": {"kind": "uniform", "spread": 4}}, "validation": True}
    assert "hapfl" not in left_out(devices)
    sizes = [{"name": "mlp", "arguments": {"hidden": hidden}} for hidden in (4, 8)]
    assert "hapfl" not in left_out({**devices, "model": {"name": "mlp"}, "method": {"name": "hapfl", "sizes": sizes}})


def test_many_clients_and_rare_turns_leave_out_what_keeps_models() -> None:
    many = left_out({}, clients=501)
    assert "keeps a model of every client" in many["fedamp"]
    assert "fedrep" not in many
    rare = left_out({}, turns=1.0)
    assert "take part in 1.0 rounds" in rare["fedrep"]
    assert not {"fedavg", "local", "fedprox"} & set(rare)


def test_a_method_that_the_user_names_and_forbids_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(fedtailor.UserError, match="--methods apple: it may show clients"):
        search(tmp_path / "s", methods=["fedavg", "apple"], no_peers=True)
    with pytest.raises(fedtailor.UserError, match="names 'fedavg' twice"):
        search(tmp_path / "s", methods=["fedavg", "fedavg"])
    assert not (tmp_path / "s").exists()


def test_a_method_without_a_global_model_is_left_out_where_that_is_the_headline() -> None:
    left = left_out({"compare": {"model": "global"}})
    assert left["fedper"] == "it has no global model, and compare.model = 'global' asks for it"
    assert "fedavg" not in left


# Traits and words


def federation(*clients: tuple[list[list[float]], list[int]]) -> Federation:
    given = {
        f"c{k}": {"train": (np.array(x, np.float32), y), "test": (np.zeros((1, 1)), [0])}
        for k, (x, y) in enumerate(clients)
    }
    return Federation.from_clients(given, classes=("a", "b"))


def test_hand_feature_skew() -> None:
    """Class a: clients 0 and 1 have 0, 2 and 4, 6. Class means 3; SSB = 2 (1 - 3)^2 + 2 (5 - 3)^2 = 16; SSW = 4.

    b = 2 cells - 1 class = 1, w = 4 - 2 = 2, so omega squared = (16 - 2) / (16 + 4 + 2) = 7 / 11.
    """
    made = federation(([[0.0], [2.0]], [0, 0]), ([[4.0], [6.0]], [0, 0]))
    data = replace(made, test=type(made.test).empty(2))
    assert feature_skew(data) == pytest.approx(7 / 11)
    apart = federation(([[0.0], [2.0]], [0, 0]), ([[4.0], [6.0]], [1, 1]))  # the labels explain it
    assert feature_skew(replace(apart, test=type(made.test).empty(2))) is None


def test_chance_explains_the_skew_of_small_clients() -> None:
    """Labels dealt at random to clients of five samples look skewed, but not more than by chance."""
    stream = np.random.default_rng(2)
    clients = {f"c{k}": (stream.normal(size=(8, 3)).astype(np.float32), stream.integers(0, 5, 8)) for k in range(12)}
    data = held_out(Federation.from_clients(clients, classes=tuple("abcde")), 0, DataSettings().preprocess)
    traits = traits_of(experiment(SETTINGS), data)
    assert traits.label_skew == pytest.approx(traits.label_chance, abs=0.1)
    assert traits.label_skew > 0.2
    assert not traits.labels_differ


def test_differences_in_words() -> None:
    assert (
        difference_words("a", Difference((1.0, 1.2, 1.4), "points"), "b") == "a is ahead of b by 1.2 points [0.7, 1.7]"
    )
    assert difference_words("a", Difference((-1.0, -1.2, -1.4), "%", better=-1), "b").startswith(
        "a is ahead of b by 1.2 %"
    )
    assert "not decidable" in difference_words("a", Difference((5.0, -5.0, 1.0), "points"), "b")
    assert (
        difference_words("a", Difference((0.1, -0.1, 0.0), "points"), "b")
        == "a and b are level: +0.0 points [-0.2, 0.2]"
    )
    assert about("fedper") == "shared body, private head."
    assert isinstance(LeftOut("a", "b"), LeftOut)


def test_a_regression_is_advised_by_its_own_measure(tmp_path: Path) -> None:
    stream = np.random.default_rng(3)
    clients = {}
    for k in range(4):
        x = stream.normal(size=(30, 3)).astype(np.float32)
        clients[f"c{k}"] = (x, (x @ [1.0, 2.0, 3.0]).astype(np.float32))
    made = advise(
        {**LINEAR, "rounds": 3, "training": {"lr": 0.02}},
        methods=["fedavg", "local"],
        seeds=[0],
        folder=tmp_path / "s",
        federation=Federation.from_clients(clients),
    )
    assert (made.measure, made.less_is_better, made.traits.label_skew) == ("rmse", True, None)
    values = [one.value for one in made.standings]
    assert values == sorted(values)
    assert "hapfl" not in {one.method for one in made.standings}


def test_finished_trials_are_not_carried_out_again(undisturbed: Advice, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(TrialRunner, "_carry_out", lambda *_: pytest.fail("a trial was carried out again"))
    assert outcome(search(undisturbed.folder)) == outcome(undisturbed)
