"""What pre-processing does to samples, by hand."""

import json

import numpy as np
import pytest

from fedtailor.data import Column, Samples, Shares
from fedtailor.data.preprocessing import Preprocess, Preprocessing, fit
from fedtailor.errors import UserError

NAN = float("nan")
COLUMNS = (Column("age"), Column("kind", ("cat", "dog", "eel")))
ROWS = [[1, 0], [3, 2], [NAN, 2], [8, NAN], [4, 1]]  # the last row is a test row: its dog is in no training row


def fitted(train: Shares | None = None, **settings: object) -> Preprocessing:
    made = fit(table(), train or Shares.from_owners(np.array([0, 0, 0, 0, -1]), 1), Preprocess(**settings))  # type: ignore[arg-type]
    assert made is not None
    return made


def table(rows: list[list[float]] = ROWS) -> Samples:
    x = np.array(rows, np.float32)
    return Samples(x, np.zeros(len(x), np.int64), ("a",), np.zeros(len(x), bool), columns=COLUMNS)


def test_one_hot_with_indicators_by_hand() -> None:
    """Ages 1, 3, 8 have mean 4 and variance 26 / 3; the most frequent kind is eel; nobody trains on a dog."""
    made = fitted(impute="mean", indicator=True, standardise=True)
    assert made.names == ("age", "kind = cat", "kind = eel", "age is missing", "kind is missing")
    deviation = np.sqrt(26 / 3)
    assert made.apply(table().x) == pytest.approx(
        np.array(
            [
                [-3 / deviation, 1, 0, 0, 0],
                [-1 / deviation, 0, 1, 0, 0],
                [0, 0, 1, 1, 0],
                [4 / deviation, 0, 1, 0, 1],
                [0, 0, 1, 0, 0],  # a dog is unknown, so it counts as the most frequent kind
            ]
        )
    )
    assert made.apply(table().x).dtype == np.float32
    assert made.shape((2,)) == (5,)


def test_codes_by_hand() -> None:
    """Cat is 0 and eel is 1: one cat and two eels have mean 2/3 and variance 2/9."""
    made = fitted(impute="mean", categories="codes")
    assert made.names == ("age", "kind")
    assert made.apply(table().x).tolist() == [[1, 0], [3, 1], [4, 1], [8, 1], [4, 1]]
    scaled = fitted(impute="mean", categories="codes", standardise=True).apply(table().x)
    assert scaled[:2, 1] == pytest.approx([-2 / 3 / np.sqrt(2 / 9), 1 / 3 / np.sqrt(2 / 9)])


@pytest.mark.parametrize(("impute", "expected"), [("median", 3), ("most-frequent", 1), ("mean", 4)])
def test_what_replaces_a_missing_number(impute: str, expected: float) -> None:
    """Of 1, 3 and 8; of several most frequent numbers it is the smallest."""
    assert fitted(impute=impute, statistics="client").apply(table().x)[2, 0] == expected


def test_each_client_has_its_own_statistics() -> None:
    """Client 0 has ages 1 and 3, client 1 only the age 8 and no kind: it stays unknown, and 8 becomes 0."""
    owners = Shares.from_owners(np.array([0, 0, 0, 1, -1]), 2)
    made = fitted(owners, impute="mean", standardise=True, statistics="client")
    assert made.apply(table().x[:3], 0).tolist() == [[-1, 1, 0], [1, 0, 1], [0, 0, 1]]
    assert made.apply(table().x[3:], 1).tolist() == [[0, 0, 0], [-4, 0, 0]]
    assert made.of(1).apply(table().x[3:]).tolist() == [[0, 0, 0], [-4, 0, 0]]
    with pytest.raises(UserError, match="export the model of a client"):
        made.without_statistics().apply(table().x)


def test_a_table_of_words_is_coded_as_the_file_was() -> None:
    made = fitted(impute="mean", indicator=True)
    words = [["1", "cat"], [3.0, "eel"], ["", "eel"], [8, None], [4, "gnu"]]
    assert made.apply(made.codes(words)).tolist() == made.apply(table().x).tolist()
    with pytest.raises(UserError, match="takes 2 columns"):
        made.codes([["1"]])


def test_all_of_it_survives_json() -> None:
    made = fitted(impute="mean", indicator=True, standardise=True)
    again = Preprocessing.from_dict(json.loads(json.dumps(made.as_dict())))
    assert again.apply(table().x).tobytes() == made.apply(table().x).tobytes()
    empty = Preprocessing.from_dict(json.loads(json.dumps(made.without_statistics().as_dict())))
    assert empty.names == made.names
    assert len(empty.mean) == 0


def test_inputs_of_more_dimensions_keep_their_shape() -> None:
    x = np.arange(24, dtype=np.float32).reshape(4, 3, 2)
    samples = Samples(x, np.zeros(4, np.int64), ("a",), np.zeros(4, bool))
    made = fit(samples, Shares.from_owners(np.zeros(4, np.int64), 1), Preprocess(standardise=True))
    assert made is not None
    assert made.shape((3, 2)) == (3, 2)
    # each place holds p, p + 6, p + 12, p + 18: mean p + 9, variance 45
    assert made.apply(x)[:, 1, 1] == pytest.approx(np.array([-9, -3, 3, 9]) / np.sqrt(45))
