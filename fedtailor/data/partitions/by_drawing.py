"""A partition in which clients draw their samples with replacement, so that there may be more clients than samples."""

from typing import ClassVar, Literal

import numpy as np
from pydantic import Field

from fedtailor.data.shares import Shares
from fedtailor.errors import UserError

from .base import PartitionSettings, Pool, Stream, rows_by_class

TOGETHER = 2**14  # clients that draw at once, which bounds the memory; results depend on it


class Resampled(PartitionSettings):
    """Every client draws its samples from all training samples, with replacement; for any number of clients.

    Clients share samples. Test samples are drawn from the data's own test split, so no client trains on one.
    """

    kind: Literal["resampled"] = "resampled"
    alpha: float = Field(
        0.3, gt=0, le=1e6, description="Concentration: small is near one class each, 100 and more is close to iid."
    )
    size: int = Field(20, ge=1, description="Training samples per client.")
    test: int = Field(5, ge=1, description="Test samples per client, of the classes that it trains on.")
    needs_classes: ClassVar[bool] = False
    leaves_test: ClassVar[bool] = True

    def deal(self, pool: Pool, clients: int, stream: Stream) -> Shares:
        return resampled(pool.labels, clients, stream, self.alpha, self.size)

    def tests(self, train: Shares, labels: np.ndarray, test_rows: np.ndarray, stream: Stream) -> Shares:
        """The test samples of every client, drawn from ``test_rows``; ``labels`` are those of all samples."""
        return resampled_tests(train, labels, test_rows, stream, self.test)


def resampled(labels: np.ndarray, clients: int, stream: Stream, alpha: float, size: int) -> Shares:
    """``size`` samples for every client, in class proportions that it draws from Dir(alpha)."""
    if not len(labels):
        raise UserError("partition resampled has no training samples to draw from")
    present, label, counts = np.unique(labels, return_inverse=True, return_counts=True)
    rows = np.concatenate(rows_by_class(label, len(present), stream))
    firsts = np.cumsum(counts) - counts
    indices = np.empty((clients, size), np.int64)
    for start in range(0, clients, TOGETHER):
        some = len(indices[start : start + TOGETHER])
        shape = (some, len(present))
        # As in partition dirichlet: the logarithm of a Gamma(alpha) variable does not underflow for a small alpha.
        drawn = np.log(stream.standard_gamma(alpha + 1, shape)) + np.log1p(-stream.random_sample(shape)) / alpha
        weights = np.exp(drawn - drawn.max(1, keepdims=True))
        borders = np.round(np.cumsum(weights, 1) / weights.sum(1, keepdims=True), 9)  # the last bits differ
        where = stream.random_sample((some, size))
        chosen = np.zeros((some, size), np.int64)  # a class
        for border in borders.T[:-1]:
            chosen += where >= border[:, None]
        indices[start : start + some] = rows[firsts[chosen] + _uniform(counts[chosen], stream)]
    return Shares(indices.reshape(-1), np.arange(clients + 1, dtype=np.int64) * size)


def resampled_tests(train: Shares, labels: np.ndarray, test_rows: np.ndarray, stream: Stream, count: int) -> Shares:
    """``count`` test samples for every client, each of the class of one of its training samples."""
    kinds = int(labels.max()) + 1
    supply = np.bincount(labels[test_rows], minlength=kinds)
    lacking = np.flatnonzero((np.bincount(labels[train.indices], minlength=kinds) > 0) & (supply == 0))
    if len(lacking):
        raise UserError(
            f"partition resampled: the data's own test split has no sample of class {lacking[0]}, which clients "
            f"train on: choose another data.partition"
        )
    rows = np.concatenate(rows_by_class(labels[test_rows], kinds, stream))
    firsts = np.cumsum(supply) - supply
    like = train.offsets[:-1, None] + _uniform(np.repeat(train.sizes[:, None], count, 1), stream)  # (clients, count)
    chosen = labels[train.indices[like]]
    indices = test_rows[rows[firsts[chosen] + _uniform(supply[chosen], stream)]]
    return Shares(indices.reshape(-1), np.arange(len(train) + 1, dtype=np.int64) * count)


def _uniform(below: np.ndarray, stream: Stream) -> np.ndarray:
    """A whole number from 0 to ``below`` - 1 for every entry."""
    drawn: np.ndarray = np.minimum((stream.random_sample(below.shape) * below).astype(np.int64), below - 1)
    return drawn
