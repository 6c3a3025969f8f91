"""Options of the command line as settings: the text of ``--set`` is read once."""

from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from fedtailor.cli.settings import parse_set, settings_from
from fedtailor.errors import UserError


@pytest.mark.parametrize(
    ("text", "read"),
    [
        ("rounds=5", lambda e: e.rounds == 5),
        ("rounds = 5", lambda e: e.rounds == 5),
        ("training.lr=1e-3", lambda e: e.training.lr == 0.001),
        ("name=plain-word", lambda e: e.name == "plain-word"),
        ('name="quoted"', lambda e: e.name == "quoted"),
        ("name=2024-01-31", lambda e: e.name == "2024-01-31"),
        ("validation=true", lambda e: e.validation is True),
        ("participation.ratio=[0.1, 0.5]", lambda e: e.participation.ratio == (0.1, 0.5)),
        ("data.partition=iid", lambda e: e.data.partition.kind == "iid"),
        ('data.partition={kind="mixed", sigma=1}', lambda e: e.data.partition.sigma == 1),
        ("method=local", lambda e: e.method.name == "local"),
        ("method.name=fedper", lambda e: e.method.name == "fedper"),
        ("model.arguments.hidden=7", lambda e: e.model.arguments == {"hidden": 7}),
        ("model.head=linear", lambda e: e.model.head == "linear"),
        ("devices.deadline=9", lambda e: (e.devices.deadline, e.devices.profiles.kind) == (9, "uniform")),
        ("devices.profiles=tiers", lambda e: e.devices.profiles.kind == "tiers"),
        ("name=a=b", lambda e: e.name == "a=b"),
    ],
)
def test_a_setting_is_changed_on_the_command_line(text: str, read: Any) -> None:
    assert read(settings_from(None, sets=[text]))


def test_the_last_change_of_a_setting_wins() -> None:
    assert settings_from(None, {"rounds": 9}, ["rounds=2", "rounds=3"]).rounds == 3
    assert settings_from(None, {"rounds": 9, "seed": None}).rounds == 9
    made = settings_from(None, {"method": {"name": "fedprox"}}, ["method.mu=0.5", "method=fedavg"])
    assert made.method.name == "fedavg"


@pytest.mark.parametrize("text", ["rounds", "=5", "", "a..b=1", ".a=1", "training.=1"])
def test_a_change_without_key_or_value_is_refused_with_an_example(text: str) -> None:
    with pytest.raises(UserError, match=r"^--set .*write key=value, as in --set training\.lr=0\.05$"):
        parse_set(text)


def test_a_second_line_in_a_change_is_not_dropped() -> None:
    assert parse_set("name=1\nrounds = 3") == ("name", "1\nrounds = 3")


@settings(max_examples=400, deadline=None, suppress_health_check=list(HealthCheck))
@given(st.text(max_size=20) | st.sampled_from(["a=" + "9" * 5000, "a=" + "[" * 5000, "a={", "a=nan", "a='x"]))
def test_any_text_is_a_key_with_a_value_or_one_sentence(text: str) -> None:
    try:
        key, _ = parse_set(text)
    except UserError as error:
        sentence = str(error)
    else:
        assert all(key.split("."))
        return
    assert len(sentence.splitlines()) == 1
    assert len(sentence) < 200
