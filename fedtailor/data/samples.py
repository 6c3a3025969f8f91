"""All samples of a data set in memory, before they are partitioned."""

from dataclasses import dataclass, replace

import numpy as np

from .columns import Column as Column
from .preprocessing import Preprocessing

CHUNK = 4096  # samples per step when computing statistics; bounds the memory


@dataclass(frozen=True, eq=False)
class Samples:
    """Inputs, labels and what is known about them; never changed after loading.

    ``x`` is uint8 ``(N, H, W, C)`` for images, float32 ``(N, features...)`` used as is, or int32
    ``(N, tokens)`` token ids with 0 as padding. ``y`` is int64 ``(N,)`` class labels, or float32
    ``(N, ...)`` targets when ``classes`` is empty (regression).

    A table with named columns is float32 ``(N, columns)``. In it NaN is a missing value, and a column with
    categories holds whole numbers; the categories are the same for all clients.
    """

    x: np.ndarray
    y: np.ndarray
    classes: tuple[str, ...]
    official_test: np.ndarray  # bool (N,): belongs to the data set's own test split
    official_val: np.ndarray | None = None  # bool (N,): belongs to a client's own validation split
    groups: np.ndarray | None = None  # int64 (N,): the writer, domain or client a sample belongs to
    group_names: tuple[str, ...] = ()
    mean: tuple[float, ...] = ()  # per channel, of image values scaled to 0..1
    std: tuple[float, ...] = ()
    vocabulary: int = 0  # number of token ids for text, else 0
    columns: tuple[Column, ...] = ()  # the columns of x, if it is a table whose columns have names
    units: np.ndarray | None = None  # int64 (N,): the patient, say, whose samples stay on one side of a split
    times: np.ndarray | None = None  # (N, 2): the first and the last moment that a sample covers
    preprocessing: Preprocessing | None = None  # what is done to x before a network sees it

    def __post_init__(self) -> None:
        rows = len(self.x)
        columns = (self.y, self.official_test, self.official_val, self.groups, self.units, self.times)
        if any(column is not None and len(column) != rows for column in columns):
            raise ValueError(f"samples need one label, test flag, group, unit and time each, for all {rows} inputs")
        if self.columns and self.x.shape[1:] != (len(self.columns),):
            raise ValueError(f"a table of {len(self.columns)} columns cannot have inputs of shape {self.x.shape[1:]}")

    def __len__(self) -> int:
        return len(self.x)

    @property
    def labels(self) -> np.ndarray:
        """int64 (N,): the class of each sample; all 0 for regression, which has no classes."""
        return self.y if self.classes else np.zeros(len(self), np.int64)

    @property
    def strata(self) -> np.ndarray:
        """int64 (N,): one number per (group, class), the unit that splits keep in proportion."""
        if self.groups is None:
            return self.labels
        strata: np.ndarray = self.groups * max(1, len(self.classes)) + self.labels
        return strata

    def take(self, rows: np.ndarray) -> "Samples":
        """Only these rows, as a copy."""

        def chosen(column: np.ndarray | None) -> np.ndarray | None:
            return None if column is None else column[rows]

        return replace(
            self,
            x=self.x[rows],
            y=self.y[rows],
            official_test=self.official_test[rows],
            official_val=chosen(self.official_val),
            groups=chosen(self.groups),
            units=chosen(self.units),
            times=chosen(self.times),
        )


def train_and_test(
    train: tuple[np.ndarray, np.ndarray],
    test: tuple[np.ndarray, np.ndarray],
    classes: tuple[str, ...],
    mean: tuple[float, ...] = (),
    std: tuple[float, ...] = (),
    vocabulary: int = 0,
) -> Samples:
    """Samples from a data set that comes as (x, y) for training and (x, y) for testing."""
    return Samples(
        x=np.concatenate([train[0], test[0]]),
        y=np.concatenate([train[1], test[1]]).astype(np.int64),
        classes=classes,
        official_test=np.arange(len(train[1]) + len(test[1])) >= len(train[1]),
        mean=mean,
        std=std,
        vocabulary=vocabulary,
    )


def with_statistics(samples: Samples) -> Samples:
    """Samples with the channel means and deviations of the images that are not official test images.

    The sums are whole numbers far below 2^53, so they are exact and the same on every machine.
    """
    rows = np.flatnonzero(~samples.official_test)
    channels = samples.x.shape[-1]
    total, squares = np.zeros(channels), np.zeros(channels)
    for start in range(0, len(rows), CHUNK):
        chunk = samples.x[rows[start : start + CHUNK]]
        for channel in range(channels):
            values = chunk[..., channel].astype(np.float64).reshape(-1)
            total[channel] += values.sum()
            squares[channel] += values @ values
    count = max(1, samples.x[0].size // channels * len(rows)) if len(samples) else 1
    mean = total / count
    std = np.sqrt(np.maximum(squares / count - mean**2, 1.0))  # a constant channel must not divide by 0
    return replace(samples, mean=tuple((mean / 255).tolist()), std=tuple((std / 255).tolist()))
