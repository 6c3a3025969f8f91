"""What a client reports about its training samples: counts and sums, never a sample."""

import math
from collections.abc import Sequence
from dataclasses import dataclass, fields
from typing import TYPE_CHECKING, Any

import numpy as np

from fedtailor.data.columns import Column
from fedtailor.errors import UserError

from .settings import Preprocess

if TYPE_CHECKING:
    from fedtailor.data.samples import Samples

LARGEST = 1e200  # of a sum or a sum of squares; samples are 32-bit numbers, so real ones are smaller
MOST = 1 << 24  # features, or categories of a column, in a summary of unknown origin


@dataclass(frozen=True)
class Summary:
    """Counts and sums of one client's training samples.

    A feature is a column of a table, a channel of images, or a place in an unnamed input. The three tuples about
    numbers are empty if each client uses its own statistics: then only the categories must be agreed on.
    """

    missing: tuple[int, ...]  # values that are missing, by feature
    categories: tuple[tuple[int, ...], ...] = ()  # samples of each category, by column; empty for numbers
    counts: tuple[int, ...] = ()  # values that are present, by feature
    sums: tuple[float, ...] = ()
    squares: tuple[float, ...] = ()  # of the deviations from the client's own mean

    @classmethod
    def of(cls, samples: "Samples", rows: np.ndarray, settings: Preprocess) -> "Summary":
        """Summarise these training rows."""
        if samples.x.dtype == np.uint8:
            counts, sums, squares = _of_channels(samples.x[rows])
            missing = [0] * len(counts)
            numbers = (counts, sums, squares)
        else:
            values = table(samples.x[rows])
            absent = np.isnan(values)
            missing = absent.sum(0).tolist()
            numbers = _of_numbers(values, absent, samples.columns)
        told = numbers if settings.statistics == "federation" else ([], [], [])
        categories = tuple(_of_categories(samples.x[rows, j], column) for j, column in enumerate(samples.columns))
        return cls(tuple(missing), categories, tuple(told[0]), tuple(told[1]), tuple(told[2]))

    @classmethod
    def read(cls, facts: Any) -> "Summary":
        """Read the summary that a node sent; raise a `ValueError`, and nothing else, if it is none."""
        if not isinstance(facts, dict) or facts.keys() != {field.name for field in fields(cls)}:
            raise ValueError("its sums cannot be read")
        return cls(
            missing=tuple(_count(n) for n in _list(facts["missing"])),
            categories=tuple(tuple(_count(n) for n in _list(c)) for c in _list(facts["categories"])),
            counts=tuple(_count(n) for n in _list(facts["counts"])),
            sums=tuple(_number(n) for n in _list(facts["sums"])),
            squares=tuple(_number(n) for n in _list(facts["squares"])),
        )

    def check(self, features: int, columns: Sequence[Column], values: int) -> None:
        """Raise a `ValueError` if these cannot be the sums of this number of features and values."""
        told = len(self.counts)
        sizes = [len(column.categories) for column in columns]
        if not (len(self.missing) == features and told == len(self.sums) == len(self.squares) in (0, features)):
            raise ValueError("its sums do not fit its shape")
        if [len(counts) for counts in self.categories] != sizes or any(sum(c) > values for c in self.categories):
            raise ValueError("its counts do not fit its categories")
        if max((*self.missing, *self.counts)) > values or min(self.squares, default=0) < 0:
            raise ValueError("its sums do not fit its samples")

    def recoded(self, own: Sequence[Column], agreed: Sequence[Column]) -> "Summary":
        """The same with the categories of the whole federation, of which this client may have only some."""
        counts = []
        for mine, ours, known in zip(own, agreed, self.categories, strict=True):
            by_name = dict(zip(mine.categories, known, strict=True))
            counts.append(tuple(by_name.get(name, 0) for name in ours.categories))
        return Summary(self.missing, tuple(counts), self.counts, self.sums, self.squares)


def check_missing(samples: "Samples", settings: Preprocess, who: str = "") -> None:
    """Refuse data with missing values if the settings do not say what replaces them."""
    if settings.impute != "none" or samples.x.dtype.kind != "f" or not np.isnan(samples.x).any():
        return
    missing = np.isnan(table(samples.x)).sum(0)
    worst = int(missing.argmax())
    name = samples.columns[worst].name if samples.columns else worst
    choices = "'mean', 'median' or 'most-frequent'" if settings.statistics == "client" else "'mean'"
    others = "" if settings.statistics == "client" else ", or data.preprocess.statistics to 'client' for other ways"
    raise UserError(
        f"{who}{int(missing.sum())} values are missing, {int(missing[worst])} of them in column {name!r}: set "
        f"data.preprocess.impute to {choices} (a category becomes the most frequent one){others}"
    )


def table(x: np.ndarray) -> np.ndarray:
    """Inputs as a table of float64, a row per sample."""
    return x.reshape(len(x), math.prod(x.shape[1:])).astype(np.float64)


def _of_numbers(
    values: np.ndarray, absent: np.ndarray, columns: Sequence[Column]
) -> tuple[list[int], list[float], list[float]]:
    """Counts, sums and squares; those of columns with categories are 0, because their counts say it all."""
    named = np.array([bool(column.categories) for column in columns] or [False] * values.shape[1])
    absent = absent | named
    present = np.where(absent, 0.0, values)
    counts, sums = len(values) - absent.sum(0), present.sum(0)
    deviations = np.where(absent, 0.0, present - sums / np.maximum(counts, 1))
    return counts.tolist(), sums.tolist(), np.square(deviations).sum(0).tolist()


def _of_channels(images: np.ndarray) -> tuple[list[int], list[float], list[float]]:
    """The same for the channels of images, scaled to 0..1; the sums are of whole numbers and exact."""
    counts, sums, squares = [], [], []
    for channel in range(images.shape[-1]):
        levels = np.bincount(images[..., channel].reshape(-1), minlength=256).tolist()
        count, total = sum(levels), sum(level * n for level, n in enumerate(levels))
        square = sum(level * level * n for level, n in enumerate(levels))
        counts.append(count)
        sums.append(total / 255)
        squares.append((square * count - total * total) / max(count, 1) / 255**2)
    return counts, sums, squares


def _of_categories(codes: np.ndarray, column: Column) -> tuple[int, ...]:
    known = codes[~np.isnan(codes)].astype(np.int64) if column.categories else np.zeros(0, np.int64)
    return tuple(np.bincount(known, minlength=len(column.categories)).tolist()) if column.categories else ()


def _list(value: Any) -> list[Any]:
    if not isinstance(value, list) or len(value) > MOST:
        raise ValueError("a list is too long or not a list")
    return value


def _count(value: Any) -> int:
    if type(value) is not int or not 0 <= value <= 1 << 40:
        raise ValueError("a count is not a whole number, or too large")
    return value


def _number(value: Any) -> float:
    if type(value) not in (int, float) or not abs(value) <= LARGEST:
        raise ValueError("a sum is not a number, or too large")
    return float(value)
