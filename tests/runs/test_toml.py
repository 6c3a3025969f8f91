"""Settings as TOML text."""

import math
import tomllib
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fedtailor.runs.toml import dumps

TEXT = st.text(st.characters(exclude_categories=["Cs"]), max_size=12)
VALUES = st.recursive(
    st.booleans() | st.integers() | st.floats(allow_nan=False) | TEXT,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(TEXT, inner, max_size=3),
    max_leaves=10,
)


@settings(max_examples=400, deadline=None)
@given(st.dictionaries(TEXT, VALUES, max_size=5))
def test_any_settings_read_back_as_they_were_written(values: dict) -> None:
    assert same(tomllib.loads(dumps(values)), values)


def same(a: Any, b: Any) -> bool:
    """Equal, and of the same types: 1 is neither 1.0 nor True."""
    if isinstance(a, dict):
        return type(a) is type(b) and a.keys() == b.keys() and all(same(a[key], b[key]) for key in a)
    if isinstance(a, list):
        return type(a) is type(b) and len(a) == len(b) and all(map(same, a, b))
    return type(a) is type(b) and a == b


@pytest.mark.parametrize(
    "text",
    [
        "",
        '"',
        "'",
        "\\",
        "\n",
        "\r\n",
        "\t\b\f",
        "\x00\x1b\x7f\x9f",
        "é ü 漢字 😀",
        '"""',
        "# no comment",
        "a = 1",
        "\u2028",
    ],
)
def test_any_text_can_be_a_value_and_a_key(text: str) -> None:
    values = {"value": text, "list": [text], "table": {text: {text: text}}, "inline": [{text: text}]}
    assert tomllib.loads(dumps(values)) == values


def test_numbers_that_are_not_finite_are_written() -> None:
    read = tomllib.loads(dumps({"a": math.inf, "b": -math.inf, "c": math.nan, "d": -0.0}))
    assert (read["a"], read["b"]) == (math.inf, -math.inf)
    assert math.isnan(read["c"])
    assert math.copysign(1, read["d"]) == -1


def test_a_number_of_numpy_is_written_as_a_number() -> None:
    assert tomllib.loads(dumps({"lr": np.float64(0.1)})) == {"lr": 0.1}


def test_none_is_left_out_and_empty_tables_are_kept() -> None:
    assert tomllib.loads(dumps({"a": None, "t": {"b": None}, "l": [{"c": None, "d": 1}]})) == {"t": {}, "l": [{"d": 1}]}


def test_it_reads_like_a_file_written_by_hand() -> None:
    values = {"name": "x", "data": {"clients": 5, "partition": {"kind": "iid"}}, "rounds": 3, "models": ("held",)}
    assert dumps(values) == (
        'name = "x"\nrounds = 3\nmodels = ["held"]\n\n[data]\nclients = 5\n\n[data.partition]\nkind = "iid"\n'
    )
