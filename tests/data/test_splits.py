"""Splits of a client's samples at random, by group and by time."""

import numpy as np
import pytest

from fedtailor.data import DataSettings, Samples, Shares
from fedtailor.data.federation import one_client
from fedtailor.data.splits import By, by_fractions, split_off
from fedtailor.errors import UserError
from fedtailor.seeding import numpy_stream


def samples(count: int, **more: np.ndarray) -> Samples:
    x = np.arange(count, dtype=np.float32)[:, None]
    return Samples(x, np.arange(count) % 2, ("a", "b"), np.zeros(count, bool), **more)


def shares(*owners: int) -> Shares:
    return Shares.from_owners(np.array(owners), max(owners) + 1)


def split(data: Samples, owned: Shares, val: float, test: float, by: By = None) -> list[Shares]:
    return list(by_fractions(data, owned, val, test, by, numpy_stream(0, "test")))


@pytest.fixture
def patients() -> Samples:
    """Thirty patients with one to four rows each, in mixed order; two clients see five patients both."""
    stream = np.random.RandomState(0)
    units = np.repeat(np.arange(30), 1 + np.arange(30) % 4)
    return samples(len(units), units=stream.permutation(units))


def test_no_patient_is_on_two_sides(patients: Samples) -> None:
    assert patients.units is not None
    owned = Shares.from_owners((patients.units >= 15).astype(np.int64), 2)
    parts = split(patients, owned, 0.2, 0.3)
    assert sorted(np.concatenate([part.indices for part in parts]).tolist()) == list(range(len(patients)))
    for client in (0, 1):
        train, val, test = (set(patients.units[part[client]].tolist()) for part in parts)
        assert train.isdisjoint(val)
        assert test.isdisjoint(train | val)
        # 0.2 and 0.3 of fifteen patients, 3 and 4.5 rounded up
        assert (len(train), len(val), len(test)) == (7, 3, 5)


def test_groups_matter_a_random_split_of_the_same_rows_parts_patients(patients: Samples) -> None:
    assert patients.units is not None
    owned = Shares.from_owners(np.zeros(len(patients), np.int64), 1)
    train, _, test = (set(patients.units[part[0]].tolist()) for part in split(patients, owned, 0.0, 0.3, "random"))
    assert train & test


def test_a_client_with_one_patient_trains_on_it() -> None:
    data = samples(4, units=np.array([7, 7, 7, 7]))
    train, _, test = split(data, shares(0, 0, 0, 0), 0.0, 0.5)
    assert (len(train[0]), len(test[0])) == (4, 0)


def test_a_patient_of_two_clients_is_a_group_on_each() -> None:
    """Groups are within a client: nobody knows that two hospitals treat the same person."""
    data = samples(8, units=np.array([0, 0, 1, 1, 0, 0, 1, 1]))
    train, _, test = split(data, shares(0, 0, 0, 0, 1, 1, 1, 1), 0.0, 0.5)
    assert train.sizes.tolist() == test.sizes.tolist() == [2, 2]


def test_the_last_samples_in_time_are_for_testing() -> None:
    """Ten moments in mixed order: 0.2 of them are test (8, 9), 0.3 validation (5, 6, 7)."""
    moments = np.array([3, 9, 0, 7, 5, 1, 8, 2, 6, 4])
    data = samples(10, times=np.stack([moments, moments], 1))
    train, val, test = split(data, shares(*[0] * 10), 0.3, 0.2)
    assert sorted(moments[train[0]].tolist()) == [0, 1, 2, 3, 4]
    assert sorted(moments[val[0]].tolist()) == [5, 6, 7]
    assert sorted(moments[test[0]].tolist()) == [8, 9]


def test_no_window_crosses_the_border() -> None:
    """Windows of 4 moments, one per moment 0..19: four test windows begin at 16, so training ends before 16."""
    begin = np.arange(20)
    data = samples(20, times=np.stack([begin, begin + 3], 1))
    train, _, test = split(data, shares(*[0] * 20), 0.0, 0.2)
    assert sorted(begin[test[0]].tolist()) == [16, 17, 18, 19]
    assert sorted(begin[train[0]].tolist()) == list(range(13)), "13, 14 and 15 read moment 16 and are left out"


def test_moments_that_are_equal_are_on_one_side() -> None:
    moments = np.array([0, 0, 1, 1, 1, 1])
    train, _, test = split(samples(6, times=np.stack([moments] * 2, 1)), shares(*[0] * 6), 0.0, 0.2)
    assert (train[0].tolist(), test[0].tolist()) == ([0, 1], [2, 3, 4, 5])


@pytest.mark.parametrize(
    ("data", "by", "says"),
    [
        (samples(4), "time", "needs data that name each sample's time"),
        (samples(4), "group", "needs data that name each sample's group"),
        (samples(4, times=np.zeros((4, 2))), "time", "client 0 has no sample that ends before its test samples"),
    ],
)
def test_what_cannot_be_split_is_one_sentence(data: Samples, by: By, says: str) -> None:
    with pytest.raises(UserError, match=says):
        split(data, shares(0, 0, 0, 0), 0.0, 0.5, by)


def test_what_the_data_declare_is_the_default_and_settings_decide() -> None:
    moments = np.arange(8)
    data = samples(8, times=np.stack([moments] * 2, 1), units=np.zeros(8, np.int64))
    owned, stream = shares(*[0] * 8), numpy_stream(0, "test")
    assert split_off(data, owned, 0.25, owned, None, stream)[1][0].tolist() == [6, 7]
    assert split_off(data, owned, 0.25, owned, "group", stream)[1].sizes.tolist() == [0]
    assert split_off(data, owned, 0.25, owned, "random", stream)[1].sizes.tolist() == [2]


def test_validation_data_follow_the_split() -> None:
    """The validation samples that a method needs come after the training samples and before the test samples."""
    moments = np.arange(40)
    data = samples(40, times=np.stack([moments, moments + 1], 1))
    nothing = np.zeros(0, np.int64)
    rows = {"train": moments, "val": nothing, "test": nothing}
    made = one_client(data, rows, DataSettings(), 0, needs_validation=True)
    assert made.test[0].tolist() == list(range(30, 40))
    assert made.val[0].tolist() == [25, 26, 27, 28]  # 0.15 of the 29 windows that end before 30, rounded
    assert made.train[0].tolist() == list(range(24))  # those that end before 25
