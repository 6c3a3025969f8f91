"""The form that starts a run: made from the settings' schema, read back into settings, errors beside their fields."""

import pytest

from fedtailor.__main__ import main
from fedtailor.errors import UserError
from fedtailor.methods import catalogue
from fedtailor.runs import experiment
from fedtailor.views.dashboard.form import form_fields, placed, settings_of, values_of


def test_a_field_has_the_range_description_and_default_of_its_setting() -> None:
    fields = {field["key"]: field for field in form_fields()}
    rounds = fields["rounds"]
    assert (rounds["kind"], rounds["min"], rounds["max"], rounds["default"]) == ("whole", 1, 1_000_000, "20")
    assert rounds["about"] == "number of rounds"
    assert fields["training.optimiser"]["choices"] == ["sgd", "adam"]
    assert fields["devices.speed"]["when"] == (("devices", "true"),)
    (mu,) = (field for field in form_fields() if ("method.name", "fedprox") in field["when"])
    assert (mu["key"], mu["allowed"], mu["default"]) == ("method.mu", "number ≥ 0 and ≤ 1000", "0.1")


@pytest.mark.parametrize(
    "settings",
    [
        {},
        *({"method": {"name": name}} for name in catalogue()),
        {
            "name": "007",
            "rounds": 3,
            "method": {"name": "hapfl", "md": 3.0, "agents": {"size": {"hidden": [8]}}},
            "devices": {"profiles": {"kind": "log-normal", "sigma": 0.7}, "deadline": 9},
            "data": {"clients": 7, "partition": {"kind": "dirichlet", "alpha": 0.5}},
            "participation": {"ratio": [0.1, 0.5], "absent": [[1, 2]]},
            "attack": {"kind": "scale"},
        },
        {"data": {"split": {"train": 0.5, "test": 0.5}}, "model": {"name": "mlp", "arguments": {"hidden": [3, 4]}}},
        {"method": {"name": "fedavg"}, "training": {"dp_sgd": {"noise": 2.0}, "schedule": {"kind": "step"}}},
    ],
)
def test_the_form_of_a_run_gives_its_settings_again(settings: dict[str, object]) -> None:
    made = experiment(settings)
    assert settings_of(values_of(made.as_dict())) == made


@pytest.mark.parametrize(
    ("values", "key"),
    [
        ({"rounds": "0"}, "rounds"),
        ({"name": "a/b"}, "name"),
        ({"data.source": "nothing"}, "data.source"),
        ({"data.partition.kind": "dirichlet", "data.partition.alpha": "-1"}, "data.partition.alpha"),
        ({"method.name": "fedprox", "method.mu": "-3"}, "method.mu"),
        ({"devices": "true", "devices.speed": "0"}, "devices.speed"),
        ({"participation.clients": "99", "data.clients": "5"}, "participation.clients"),
        ({"more": "no equals sign"}, "more"),
        ({"more": "method.name=nix"}, "method.name"),
        ({"more": "colour=3"}, ""),
    ],
)
def test_an_error_stands_beside_its_field(values: dict[str, str], key: str) -> None:
    with pytest.raises(UserError) as caught:
        settings_of(values)
    assert [one["key"] for one in placed(caught.value)] == [key]


def test_errors_are_those_of_the_command_line(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(UserError) as caught:
        settings_of({"rounds": "0", "training.lr": "fast"})
    assert main(["run", "--set", "rounds=0", "--set", "training.lr=fast"]) == 2
    said = capsys.readouterr().err
    assert all(one["text"] in said for one in placed(caught.value))


def test_a_field_that_does_not_apply_changes_nothing() -> None:
    assert settings_of({"method.name": "fedavg", "method.mu": "0.5", "devices.speed": "3"}) == experiment()
    with pytest.raises(UserError, match="no field 'secret'"):
        settings_of({"secret": "1"})
    with pytest.raises(UserError, match="texts by key"):
        settings_of({"rounds": 3})
