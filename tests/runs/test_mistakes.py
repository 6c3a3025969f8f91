"""Sentences about mistakes in settings."""

import pytest

from fedtailor.errors import UserError
from fedtailor.runs import experiment
from fedtailor.runs.mistakes import MOST, SYNONYMS, Mistakes, meant


@pytest.mark.parametrize("setting", sorted(set(SYNONYMS.values())))
def test_every_hint_names_a_setting_that_exists(setting: str) -> None:
    with pytest.raises(UserError) as raised:
        experiment({"data": {"partition": "dirichlet"}}, {setting: object()})
    assert "unknown setting" not in str(raised.value)


def test_no_synonym_is_a_setting_at_the_top() -> None:
    assert not set(SYNONYMS) & set(experiment().as_dict())


def test_words_are_found_however_they_are_written() -> None:
    assert meant("Learning-Rate") == "training.lr"
    assert meant("colour") is None


def test_a_list_of_known_names_stands_once_and_a_message_stays_readable() -> None:
    sentences = [f"key{n} = 1: unknown setting 'key{n}' (known: a, b)" for n in range(MOST + 3)]
    text = str(Mistakes("mine.toml", sentences))
    assert text.startswith(
        f"mine.toml: {MOST + 3} problems: key0 = 1: unknown setting 'key0' (known: a, b); key1 = 1: "
    )
    assert text.count("known:") == 1
    assert text.endswith("; and 3 more")
