"""Experiments from files, mappings and the command line: a valid experiment, or one good sentence."""

import copy
import datetime
import math
import tomllib
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from fedtailor.errors import UserError
from fedtailor.methods import catalogue
from fedtailor.methods.fedprox import FedProx
from fedtailor.runs.settings import Experiment, experiment, method_dict
from fedtailor.runs.toml import dumps

VALID: dict[str, Any] = {
    "name": "full",
    "seed": 3,
    "rounds": 7,
    "validation": True,
    "data": {
        "source": "synthetic",
        "clients": 9,
        "partition": {"kind": "dirichlet", "alpha": 0.3, "min_size": 2},
        "split": {"train": 0.6, "val": 0.2, "test": 0.2},
        "synthetic": {"samples": 500, "image": [8, 8, 1]},
    },
    "model": {"name": "cnn", "head": ["fc1", "fc2"], "arguments": {"hidden": 16}},
    "training": {"lr": 0.05, "schedule": {"kind": "step", "every": 5, "gamma": 0.5}, "clip": 1.0},
    "method": {"name": "fedprox", "mu": 0.3},
    "participation": {"ratio": [0.2, 0.8], "dropout": 0.1},
    "devices": {
        "profiles": {"kind": "tiers", "tiers": [{"share": 1.0, "speed": 0.5, "bandwidth": 2.0}]},
        "availability": {"kind": "daily", "share": 0.3},
        "speed": 20.0,
        "deadline": 30.0,
    },
    "evaluation": {"every": 2, "clients": "cohort", "models": ["held"], "final": False},
    "engine": {"kind": "inline", "workers": 2},
    "compare": {"methods": ["local", {"name": "fedprox", "mu": 0.1}], "seeds": [0, 1], "model": "held"},
}


def refusal(source: Any = None, changes: dict[str, Any] | None = None) -> str:
    with pytest.raises(UserError) as error:
        experiment(source, changes)
    text = str(error.value)
    assert len(text.splitlines()) == 1
    return text


# From settings to an experiment and back


@pytest.mark.parametrize(
    "values",
    [
        {},
        VALID,
        {"data": {"partition": "iid", "split": "official"}},
        {"training": {"clip": math.inf}},
        {"model": {"arguments": {"widths": [1, 2], "deep": {"x": True, "y": 1.5}}}},
        *({"method": {"name": name}} for name in catalogue()),
        *({"training": {"schedule": {"kind": kind}}} for kind in ("constant", "exponential", "step", "cosine")),
        *(
            {"data": {"partition": kind}}
            for kind in ("iid", "pathological", "dirichlet", "one-label", "mixed", "by-writer", "by-domain", "given")
        ),
        *({"participation": value} for value in ({"ratio": 0.5}, {"ratio": [0.1, 0.1]}, {"clients": 4})),
        *({"devices": value} for value in ({}, {"profiles": "log-normal"}, {"availability": "daily", "noise": 0})),
        {"devices": {"profiles": {"kind": "csv", "file": "d.csv"}, "availability": {"kind": "csv", "file": "a.csv"}}},
    ],
    ids=str,
)
def test_an_experiment_as_plain_values_and_as_toml_is_the_same_experiment(values: dict[str, Any]) -> None:
    made = experiment(values)
    assert experiment(made.as_dict()) == made
    assert experiment(tomllib.loads(dumps(made.as_dict()))) == made
    assert experiment(made) is made
    assert experiment(made.as_dict()).as_dict() == made.as_dict()


def test_every_setting_that_was_given_is_in_the_plain_values() -> None:
    def inside(part: Any, whole: Any) -> bool:
        if isinstance(part, dict):
            return all(key in whole and inside(value, whole[key]) for key, value in part.items())
        return bool(part == whole)

    assert inside(VALID, experiment(VALID).as_dict())


def test_the_name_of_a_file_is_the_name_of_its_experiment(tmp_path: Path) -> None:
    (tmp_path / "trial.toml").write_text("rounds = 4\n")
    assert experiment(tmp_path / "trial.toml").name == "trial"
    assert experiment(str(tmp_path / "trial.toml")).rounds == 4
    (tmp_path / "trial.toml").write_text('name = "other"\n')
    assert experiment(tmp_path / "trial.toml").name == "other"


def test_the_given_mapping_is_not_changed() -> None:
    values = copy.deepcopy(VALID)
    table = {"name": "fedprox"}
    experiment(values, {"data.partition.alpha": 0.9, "method": table, "method.mu": 0.5, "rounds": 1})
    assert values == VALID
    assert table == {"name": "fedprox"}


# Changes by dotted key


def test_changes_work_on_experiments_files_and_bare_names(tmp_path: Path) -> None:
    assert experiment(experiment({"seed": 4}), {"rounds": 2}).as_dict()["rounds"] == 2
    assert experiment(experiment({"seed": 4}), {"rounds": 2}).seed == 4
    (tmp_path / "a.toml").write_text('method = "fedprox"\n[data]\npartition = "dirichlet"\n')
    made = experiment(tmp_path / "a.toml", {"method.mu": 0.7, "data.partition.alpha": 0.7})
    assert (method_dict(made.method)["mu"], made.data.partition.alpha) == (0.7, 0.7)
    assert experiment({"method": FedProx(mu=1.0)}, {"method.mu": 0.7}).method == FedProx(mu=0.7)


def test_changes_apply_in_order() -> None:
    made = experiment({"method": {"name": "fedprox", "mu": 0.5}}, {"method": {"name": "fedprox"}, "method.mu": 0.7})
    assert made.method == FedProx(mu=0.7)
    assert experiment({}, {"method.mu": 0.7, "method": "fedprox"}).method == FedProx()


@pytest.mark.parametrize("key", ["rounds.x", "data.split.train", "name.x"])
def test_a_change_inside_something_that_is_no_table_is_refused(key: str) -> None:
    text = refusal({"rounds": 3, "name": "x", "data": {"split": "official"}}, {key: 0.5})
    assert text == f"experiment: {key} = 0.5: {key.split('.')[-2]} is not a table"


# One sentence: the file, the key, the value, what is allowed


@pytest.mark.parametrize(
    ("values", "parts"),
    [
        ({"rouds": 3}, ["rouds = 3", "did you mean 'rounds'?", "training"]),
        ({"Rounds": 3}, ["Rounds = 3", "did you mean 'rounds'?"]),
        ({"training": {"leraning": 1}}, ["training.leraning = 1", "known: batch_size"]),
        ({"training": {"momentun": 1}}, ["training.momentun = 1", "did you mean 'momentum'?"]),
        ({"training": {"Str": 1}}, ["training.Str = 1", "unknown setting 'Str'"]),
        ({"data": {"partition": {"kind": "dirichlet", "alhpa": 1}}}, ["data.partition.alhpa = 1", "mean 'alpha'?"]),
        ({"data": {"partition": {"kind": "mixed", "sgma": 1}}}, ["data.partition.sgma = 1", "mean 'sigma'?"]),
        ({"data": {"split": {"trian": 0.5}}}, ["data.split.trian = 0.5", "did you mean 'train'?", "test, train, val"]),
        ({"data": {"synthetic": {"sampels": 5}}}, ["data.synthetic.sampels = 5", "did you mean 'samples'?"]),
        ({"training": {"schedule": {"kind": "step", "evry": 3}}}, ["training.schedule.evry = 3", "mean 'every'?"]),
        ({"method": {"name": "fedprox", "muu": 1}}, ["method.muu = 1", "did you mean 'mu'?"]),
        ({"method": {"name": "fedavg", "mu": 1}}, ["method.mu = 1", "there are none here"]),
        ({"method": "fedprx"}, ["'fedprx'", "did you mean 'fedprox'?"]),
        ({"data": {"source": "mnits"}}, ["data.source 'mnits'", "did you mean 'mnist'?"]),
        ({"data": {"partition": "dirichle"}}, ["data.partition", "'dirichle'", "did you mean 'dirichlet'?"]),
        ({"training": {"schedule": {"kind": "cosin"}}}, ["training.schedule", "did you mean 'cosine'?", "step"]),
        ({"devices": {"sped": 1}}, ["devices.sped = 1", "did you mean 'speed'?"]),
        ({"devices": {"profiles": {"kind": "uniform", "spraed": 5}}}, ["devices.profiles.spraed = 5", "'spread'?"]),
        ({"devices": {"availability": "dayly"}}, ["devices.availability", "did you mean 'daily'?"]),
        ({"a\nb": 1}, [r"'a\nb' = 1", "unknown setting"]),
    ],
    ids=str,
)
def test_a_misspelled_name_gives_its_place_and_the_nearest_one(values: dict[str, Any], parts: list[str]) -> None:
    text = refusal(values)
    assert text.startswith("experiment: ")
    assert [part for part in parts if part not in text] == []


@pytest.mark.parametrize(
    ("values", "sentence"),
    [
        ({"training": {"lr": -1}}, "training.lr = -1: should be greater than 0"),
        ({"training": 5}, "training = 5: should be a table"),
        ({"rounds": 1.5}, "rounds = 1.5: should be a whole number"),
        ({"rounds": "many"}, "rounds = 'many': should be a whole number"),
        ({"validation": "perhaps"}, "validation = 'perhaps': should be true or false"),
        ({"name": 5}, "name = 5: should be text"),
        ({"participation": {"ratio": "x"}}, "participation.ratio = 'x': should be a number, or a list"),
        ({"participation": {"ratio": 5}}, "participation.ratio = 5: should be less than or equal to 1"),
        ({"participation": {"ratio": [0.5, 2]}}, "participation.ratio.1 = 2: should be less than or equal to 1"),
        ({"participation": {"ratio": [0.5]}}, "participation.ratio.1 is missing"),
        ({"data": {"split": "oficial"}}, "data.split = 'oficial': should be 'official', or a table"),
        ({"data": {"split": {"train": "x"}}}, "data.split.train = 'x': should be a number"),
        ({"data": {"split": {"train": 0.5}}}, "data.split = {'train': 0.5}: train, val and test must sum to 1"),
        ({"model": {"head": "lst"}}, "model.head = 'lst': should be 'last' or 'linear', or a list"),
        ({"model": {"head": 3}}, "model.head = 3: should be 'last' or 'linear', or a list"),
        ({"model": {"head": []}}, "model.head = []: should have at least 1 item"),
        ({"model": {"head": ["fc1", 1]}}, "model.head.1 = 1: should be text"),
        (
            {"training": {"schedule": "cosine"}},
            "training.schedule = 'cosine': should be a table with a kind, one of constant, cosine, exponential, step",
        ),
        (
            {"training": {"schedule": {"gamma": 3}}},
            "training.schedule = {'gamma': 3}: should be a table with a kind, one of constant, cosine, exponential, "
            "step",
        ),
        ({"training": {"schedule": {"kind": "step", "every": 0}}}, "training.schedule.every = 0: should be greater"),
        ({"method": {"name": "fedprox", "mu": "a"}}, "method.mu = 'a': should be a number"),
        ({"method": {"mu": 1}}, 'method needs a name, as in method.name = "fedavg"'),
        ({"evaluation": {"models": ["recieved"]}}, "evaluation.models.0 = 'recieved': should be 'received', 'held'"),
        ({"compare": {"methods": [3]}}, "compare.methods.0 = 3: should be text, or a table"),
        ({"participation": {"clients": 50}}, "participation.clients = 50: there are only 20 clients (data.clients)"),
        ({"devices": 5}, "devices = 5: should be a table"),
        ({"devices": {"profiles": {"kind": "csv"}}}, "devices.profiles.file is missing"),
        (
            {"devices": {"profiles": {"kind": "tiers", "tiers": [{"share": 0.5}]}}},
            "devices.profiles.tiers = [{'share': 0.5}]: the shares of the tiers must sum to 1",
        ),
        ({"rounds": 10**5000}, "rounds = a value too large to show: should be less than or equal to 1000000"),
        ({"rounds": datetime.date(2020, 1, 1)}, "rounds = datetime.date(2020, 1, 1): should be a whole number"),
        ({"rounds": np.eye(2)}, "rounds = array([[1., 0.], [0., 1.]]): should be a whole number"),
        (
            {"rounds": 0, "seed": -1, "method": {"name": "fedprox", "mu": -1, "nu": 3}},
            "4 problems: method.mu = -1: should be greater than or equal to 0; method.nu = 3: unknown setting 'nu' "
            "(known: mu); seed = -1: should be greater than or equal to 0; rounds = 0: should be ",
        ),
        (
            {"learning_rate": 1, "global-rounds": 2, "training": {"num_clients": 3}},
            "3 problems: training.num_clients = 3: unknown setting 'num_clients': did you mean data.clients?; "
            "learning_rate = 1: unknown setting 'learning_rate': did you mean training.lr?; "
            "global-rounds = 2: unknown setting 'global-rounds': did you mean rounds?",
        ),
        ({"batch_size": 3}, "batch_size = 3: unknown setting 'batch_size': did you mean training.batch_size?"),
    ],
    ids=lambda value: str(value)[:40] if isinstance(value, str) else "",
)
def test_a_bad_value_is_shown_with_its_key_and_what_is_allowed(values: dict[str, Any], sentence: str) -> None:
    assert refusal(values).startswith(f"experiment: {sentence}")


UNIONS = [
    ("participation", "ratio"),
    ("data", "split"),
    ("data", "partition"),
    ("model", "head"),
    ("training", "schedule"),
]
WRONG: list[Any] = [3.5, -1, "wrong", [], [[]], [{}], {"x": 1}, [1, "x"], {"kind": 3}, None, math.nan]


@pytest.mark.parametrize(  # None means in [data]: not decided yet
    ("table", "key", "value"),
    [(*union, value) for union in UNIONS for value in WRONG if (union[0], value) != ("data", None)],
)
def test_a_wrong_type_in_a_union_shows_nothing_of_the_code(table: str, key: str, value: Any) -> None:
    text = refusal({table: {key: value}})
    assert f"{table}.{key}" in text
    for leak in (
        "constrained",
        "function-",
        "tagged",
        "literal",
        "tuple",
        "Fractions",
        "instance",
        "dictionary",
        "tag",
    ):
        assert leak not in text


def test_the_file_is_named(tmp_path: Path) -> None:
    file = tmp_path / "bad.toml"
    for text in (
        "rouds = 3",
        "method = 'x'",
        "[data]\nsource = 'x'",
        "[method]\nname='fedprox'\nmu=-1",
        "a = [",
        "é=1",
    ):
        file.write_text(text, encoding="utf-8")
        assert refusal(file).startswith(str(file))
    file.write_bytes(b"\xff\xfe")
    assert refusal(file).startswith(str(file))
    assert "does not exist" in refusal(tmp_path / "none.toml")
    assert "cannot be read" in refusal(tmp_path)


@pytest.mark.parametrize(
    "text",
    [
        "a = " + "[" * 20_000,
        "a = " + "{b=" * 20_000,
        ".".join("a" * 5000) + " = 1",
        "rounds = " + "9" * 5000,
        "rounds = 1" + "0" * 400,
        "[training]\nlr = 1" + "0" * 400,
        "[training]\nlr = 0x" + "f" * 4000,
        "[training]\nlr = 1e999",
        "[training]\nlr = nan",
        '"" = 1',
        '"a\\nb" = 1',
        "rounds = 2020-01-01T00:00:00Z",
        "rounds = 3\nrounds = 4",
        "[[training]]\nlr = 1",
        "[data]\n[data]",
    ],
    ids=lambda text: text[:20],
)
def test_an_extreme_file_is_refused_in_one_sentence(tmp_path: Path, text: str) -> None:
    (tmp_path / "x.toml").write_text(text)
    assert refusal(tmp_path / "x.toml").startswith(str(tmp_path / "x.toml"))


@pytest.mark.parametrize("name", [":c", ".x:c", "a.b:c", "os:path", "math:nothing", "fedtailor.errors:UserError", "::"])
def test_a_method_that_cannot_be_imported_is_refused(name: str) -> None:
    assert repr(name) in refusal({"method": name})


def test_a_method_whose_module_fails_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "broken_method.py").write_text("raise RuntimeError('first\\nsecond')")
    monkeypatch.syspath_prepend(tmp_path)
    assert "RuntimeError: first second" in refusal({"method": "broken_method:Mine"})


@pytest.mark.parametrize(
    "name", ["", ".", "..", ".hidden", "a/b", "a\\b", "a\nb", "a\tb", "a\0b", "é" * 150, "x" * 101]
)
def test_a_name_that_cannot_be_a_folder_is_refused(name: str) -> None:
    assert "name = " in refusal({"name": name})


# Hundreds of random settings: a valid experiment or one sentence, never another exception

ANY_TEXT = st.text(max_size=8) | st.sampled_from(["iid", "fedavg", "official", "cosine", "last", "a.b:c", "inf", "1"])
LEAVES = (
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats()
    | ANY_TEXT
    | st.binary(max_size=4)
    | st.dates()
    | st.datetimes()
    | st.sampled_from([10**400, -(2**63), 2**62, np.float64(0.5), np.arange(200), Path("x"), {1, 2}, len])
)


def known_keys(values: Any = VALID) -> set[str]:
    inner = [known_keys(value) for value in values.values() if isinstance(value, dict)]
    return set(values).union(*inner)


KEYS = st.sampled_from(sorted(known_keys() | {"kind", "name", "mu", "every", "float", "str", "int", "Fractions"})) | (
    st.text(max_size=5)
)
RANDOM = st.recursive(
    LEAVES,
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(KEYS | st.integers() | st.none() | st.floats(), inner, max_size=4)
    ),
    max_leaves=8,
)


@st.composite
def mutations(draw: st.DrawFn) -> dict[str, Any]:
    """Valid settings with one to three places replaced, renamed, added or removed."""
    values = copy.deepcopy(VALID)
    for _ in range(draw(st.integers(1, 3))):
        table = values
        while True:
            key = draw(st.sampled_from(sorted(table, key=str)))
            if not isinstance(table[key], dict) or not table[key] or draw(st.booleans()):
                break
            table = table[key]
        change = draw(st.sampled_from(["replace", "rename", "add", "remove"]))
        if change == "replace":
            table[key] = draw(RANDOM)
        elif change == "rename":
            name = str(key)
            table[draw(st.sampled_from([name[::-1], name + "x", name.title(), name[1:]]))] = table.pop(key)
        elif change == "add":
            table[draw(KEYS)] = draw(RANDOM)
        elif len(table) > 1:
            del table[key]
    return values


def judge(source: Any, changes: dict[str, Any] | None = None) -> None:
    try:
        made = experiment(source, changes)
    except UserError as error:
        text = str(error)
    else:
        assert isinstance(made, Experiment)
        if made.model.arguments in ({}, VALID["model"]["arguments"]):  # others may be anything at all
            assert experiment(tomllib.loads(dumps(made.as_dict()))) == made
        return
    assert text.strip()
    assert len(text.splitlines()) == 1, text
    assert len(text) < 6000, text  # of at most twelve mistakes


THOROUGH = settings(max_examples=400, deadline=None, suppress_health_check=list(HealthCheck))


@THOROUGH
@given(mutations())
def test_mutated_settings_give_an_experiment_or_one_sentence(values: dict[str, Any]) -> None:
    judge(values)


@THOROUGH
@given(st.dictionaries(KEYS | st.integers() | st.none(), RANDOM, max_size=5))
def test_random_settings_give_an_experiment_or_one_sentence(values: dict[Any, Any]) -> None:
    judge(values)


DOTTED = st.lists(KEYS, min_size=1, max_size=4).map(".".join)
TOML_TEXT = st.sampled_from(
    ["1", "0.5", "-1", "true", "nan", "[1]", "[0.1, 0.5]", "{}", '{kind="iid"}', "'x", "9" * 5000]
)


@THOROUGH
@given(st.dictionaries(DOTTED | st.text(max_size=20), RANDOM, max_size=3), st.sampled_from([{}, VALID, None]))
def test_random_changes_give_an_experiment_or_one_sentence(changes: dict[str, Any], source: Any) -> None:
    judge(source, changes)


LINES = st.builds("{} = {}".format, DOTTED, TOML_TEXT | ANY_TEXT.map(repr)) | DOTTED.map("[{}]".format)


@THOROUGH
@given(
    st.binary(max_size=60) | st.lists(LINES, max_size=5).map(lambda lines: "\n".join(lines).encode("utf-8", "replace"))
)
def test_random_files_give_an_experiment_or_one_sentence(tmp_path_factory: pytest.TempPathFactory, data: bytes) -> None:
    file = tmp_path_factory.getbasetemp() / "random.toml"
    file.write_bytes(data)
    judge(file)


def test_a_kind_that_is_no_name_is_said_in_one_short_line() -> None:
    with pytest.raises(UserError) as caught:
        experiment({"training": {"schedule": {"kind": [np.arange(200)]}}})
    assert "\n" not in str(caught.value)
    assert len(str(caught.value)) < 250
