"""What a client tells of its training samples, by hand."""

import json
from dataclasses import asdict

import numpy as np
import pytest

from fedtailor.data import Column, Samples
from fedtailor.data.preprocessing import Preprocess, Summary, check_missing
from fedtailor.errors import UserError

NAN = float("nan")
SETTINGS = Preprocess(standardise=True, impute="mean")


def samples(x: list[list[float]], *columns: Column) -> Samples:
    rows = np.array(x, np.float32)
    return Samples(rows, np.zeros(len(rows), np.int64), ("a",), np.zeros(len(rows), bool), columns=columns)


TABLE = samples(
    [[1, 0], [2, 2], [NAN, NAN], [6, 2], [100, 1]], Column("age"), Column("kind", ("cat", "dog", "eel", "fox"))
)


def test_counts_sums_and_squares_by_hand() -> None:
    """Rows 0 to 3: ages 1, 2, 6 with mean 3, squares 4 + 1 + 9; a cat, two eels; one of each is missing."""
    made = Summary.of(TABLE, np.arange(4), SETTINGS)
    assert made.missing == (1, 1)
    assert (made.counts, made.sums, made.squares) == ((3, 0), (9.0, 0.0), (14.0, 0.0))
    assert made.categories == ((), (1, 0, 2, 0))


def test_clients_with_their_own_statistics_send_no_sums() -> None:
    made = Summary.of(TABLE, np.arange(4), Preprocess(standardise=True, impute="median", statistics="client"))
    assert (made.counts, made.sums, made.squares) == ((), (), ())
    assert (made.missing, made.categories) == ((1, 1), ((), (1, 0, 2, 0)))


def test_channels_are_exact() -> None:
    """Pixels 0, 255, 255, 0 in one channel and 51 in the other: sums of 2 and 0.8, squares of 4 x 0.25 and 0."""
    x = np.array([[[[0, 51], [255, 51]]], [[[255, 51], [0, 51]]]], np.uint8)
    images = Samples(x, np.zeros(2, np.int64), ("a",), np.zeros(2, bool))
    made = Summary.of(images, np.arange(2), SETTINGS)
    assert (made.counts, made.sums, made.squares) == ((4, 4), (2.0, 0.8), (1.0, 0.0))


def test_categories_have_the_places_of_the_whole_federation() -> None:
    made = Summary.of(TABLE, np.arange(4), SETTINGS)
    agreed = (Column("age"), Column("kind", ("bee", "cat", "eel", "dog", "fox")))
    assert made.recoded(TABLE.columns, agreed).categories == ((), (0, 1, 2, 0, 0))


def test_a_summary_survives_the_way_and_its_numbers_are_checked() -> None:
    made = Summary.of(TABLE, np.arange(4), SETTINGS)
    sent = json.loads(json.dumps(asdict(made)))
    assert Summary.read(sent) == made
    made.check(2, TABLE.columns, 4)
    for key, wrong in (
        ("missing", [-1, 0]),
        ("missing", None),
        ("sums", [NAN, 0.0]),
        ("sums", "9"),
        ("sums", [1e201, 0.0]),
        ("categories", [[], [True, 0, 2, 0]]),
        ("more", 1),
    ):
        with pytest.raises(ValueError):
            Summary.read({**sent, key: wrong})
    for key, wrong in (
        ("missing", [5, 0]),
        ("counts", [3]),
        ("counts", [5, 0]),
        ("squares", [-1.0, 0.0]),
        ("categories", [[], [1, 2]]),
        ("categories", [[], [1, 0, 4, 0]]),
    ):
        with pytest.raises(ValueError, match="do not fit"):
            Summary.read({**sent, key: wrong}).check(2, TABLE.columns, 4)


def test_missing_values_need_a_decision() -> None:
    with pytest.raises(
        UserError, match=r"2 values are missing, 1 of them in column 'age': set data\.preprocess\.impute"
    ):
        check_missing(TABLE, Preprocess())
    check_missing(TABLE, SETTINGS)
