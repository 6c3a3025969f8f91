"""Statistics of a federation from sums of its clients; test samples have no part in them."""

from dataclasses import replace

import numpy as np
import pytest
from pydantic import ValidationError

from fedtailor.data import Column, DataSettings, Federation, Samples, Shares, build
from fedtailor.data.federation import prepared
from fedtailor.data.preprocessing import Preprocess, Preprocessing, fit
from fedtailor.errors import UserError

EVERYTHING = {"standardise": True, "impute": "mean", "indicator": True}


def numbers(*values: float, **more: object) -> Samples:
    x = np.array(values, np.float32)[:, None]
    return Samples(x, np.zeros(len(x), np.int64), ("a",), np.zeros(len(x), bool), **more)  # type: ignore[arg-type]


def fitted(samples: Samples, owners: list[int], **settings: object) -> Preprocessing:
    shares = Shares.from_owners(np.array(owners), max(owners) + 1)
    made = fit(samples, shares, Preprocess(**settings))  # type: ignore[arg-type]
    assert made is not None
    return made


def heart(**preprocess: object) -> Federation:
    return build(
        DataSettings.model_validate({"source": "heart-disease", "preprocess": {**EVERYTHING, **preprocess}}), 0
    )


def test_sums_of_two_clients_by_hand() -> None:
    """1, 2, 3 and 5, -: mean 11 / 4, variance 39 / 4 - (11 / 4)^2 = 35 / 16; the missing one becomes the mean."""
    made = fitted(numbers(1, 2, 3, 5, np.nan), [0, 0, 0, 1, 1], standardise=True, impute="mean")
    assert made.mean.tolist() == [[2.75]]
    assert made.fill.tolist() == [[2.75]]
    assert made.scale == pytest.approx(np.array([[np.sqrt(35) / 4]]))
    assert made.missing == (0,)


def test_sums_of_clients_are_the_statistics_of_the_pool() -> None:
    federation = heart()
    made, samples = federation.samples.preprocessing, federation.samples
    assert made is not None
    pool = samples.x[federation.train.indices].astype(np.float64)
    for j, column in enumerate(samples.columns):
        if not column.categories:
            assert made.mean[0, j] == pytest.approx(np.nanmean(pool[:, j]), rel=1e-12)
            assert made.scale[0, j] == pytest.approx(np.nanstd(pool[:, j]), rel=1e-12)
        else:
            codes = pool[~np.isnan(pool[:, j]), j].astype(int)
            assert made.fill[0, j] == np.bincount(codes).argmax()


def test_large_means_lose_no_digits() -> None:
    """Seconds since 1970: a deviation of 128 beside 1.7e9, which the mean of squares minus the squared mean loses."""
    base = float(np.float32(1.7e9))
    made = fitted(numbers(base, base + 256, base, base + 256), [0, 0, 1, 1], standardise=True)
    assert made.scale.tolist() == [[128.0]]
    assert made.apply(numbers(base).x).tolist() == [[-1.0]]


def test_a_column_of_one_value_is_not_divided_by_zero() -> None:
    made = fitted(numbers(7, 7), [0, 1], standardise=True)
    assert made.apply(numbers(7, 8).x).tolist() == [[0.0], [1.0]]


@pytest.mark.parametrize("statistics", ["federation", "client"])
def test_test_samples_have_no_influence(statistics: str) -> None:
    """Other test rows, also with a category of their own, give the same bits; another training row does not."""
    federation = heart(statistics=statistics)
    others = np.concatenate([federation.test.indices, federation.val.indices])
    x = federation.samples.x.copy()
    x[others, 0] = 1e9
    x[others, 4] = np.nan
    columns = list(federation.samples.columns)
    columns[1] = Column("sex", (*columns[1].categories, "unknown"))
    x[others, 1] = 2
    changed = replace(federation, samples=replace(federation.samples, x=x, columns=tuple(columns), preprocessing=None))

    def statistics_of(one: Federation) -> list[bytes]:
        made = prepared(one, Preprocess.model_validate({**EVERYTHING, "statistics": statistics})).samples.preprocessing
        assert made is not None
        return [
            made.fill.tobytes(),
            made.mean.tobytes(),
            made.scale.tobytes(),
            repr((made.names, made.missing)).encode(),
        ]

    assert statistics_of(changed) == statistics_of(federation)
    x = x.copy()
    x[federation.train.indices[0], 0] += 1
    assert statistics_of(replace(changed, samples=replace(changed.samples, x=x))) != statistics_of(federation)


def test_images_are_scaled_by_the_training_images() -> None:
    settings = {"clients": 5, "preprocess": {"standardise": True}}
    federation = build(DataSettings.model_validate(settings), 0)
    made = federation.samples.preprocessing
    assert made is not None
    pixels = federation.samples.x[federation.train.indices] / 255
    assert made.channels(3) == (pytest.approx((pixels.mean(),)), pytest.approx((pixels.std(),)))
    own = build(
        DataSettings.model_validate({**settings, "preprocess": {"standardise": True, "statistics": "client"}}), 0
    )
    assert own.samples.preprocessing is not None
    mine = own.samples.x[own.train[3]] / 255
    assert own.samples.preprocessing.channels(3) == (pytest.approx((mine.mean(),)), pytest.approx((mine.std(),)))


def test_without_settings_nothing_is_done() -> None:
    assert build(DataSettings(clients=4), 0).samples.preprocessing is None


def test_categories_need_no_setting() -> None:
    samples = numbers(0, 1, 1, columns=(Column("kind", ("cat", "dog")),))
    assert fitted(samples, [0, 0, 1]).apply(samples.x).tolist() == [[1, 0], [0, 1], [0, 1]]


def test_heart_disease_says_what_it_needs() -> None:
    assert DataSettings(source="heart-disease").preprocess == Preprocess.model_validate(EVERYTHING)
    with pytest.raises(UserError, match=r"values are missing, .* in column 'major vessels'"):
        build(DataSettings(source="heart-disease", preprocess=Preprocess()), 0)


def test_what_cannot_be_done_is_one_sentence() -> None:
    with pytest.raises(ValidationError, match="only sums travel"):
        Preprocess(impute="median")
    with pytest.raises(ValidationError, match="indicator needs impute"):
        Preprocess(indicator=True)
    with pytest.raises(UserError, match=r"'most-frequent' of all clients needs their numbers in column 'feature 0'"):
        fitted(numbers(1, np.nan), [0, 0], impute="most-frequent")
    words = replace(numbers(1, 2), vocabulary=5)
    with pytest.raises(UserError, match="leave it out for a text"):
        fitted(words, [0, 0], standardise=True)
