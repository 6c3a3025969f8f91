"""From summaries of clients to pre-processing: the same numbers in a simulation and in a real federation."""

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np

from fedtailor.data.columns import Column
from fedtailor.errors import UserError

from .prepared import UNKNOWN, Preprocessing
from .settings import Preprocess
from .summary import Summary, check_missing, table

if TYPE_CHECKING:
    from fedtailor.data.samples import Samples
    from fedtailor.data.shares import Shares


def fit(samples: "Samples", train: "Shares", settings: Preprocess, clients: int | None = None) -> Preprocessing | None:
    """The pre-processing of a simulated federation, None if there is nothing to do; only training samples count.

    With ``clients``, only those of the first ones count for what all agree on.
    """
    check_missing(samples, settings)
    if not needed(samples, settings):
        return None
    agreeing = range(len(train) if clients is None else clients)
    summaries = [Summary.of(samples, train[client], settings) for client in agreeing]
    agreed = agree(Kind.of(samples), summaries, settings)
    if settings.statistics == "federation":
        return agreed
    own = [with_own(agreed, samples, train[client]) for client in range(len(train))]
    fill, mean, scale = (np.concatenate([getattr(one, n) for one in own]) for n in ("fill", "mean", "scale"))
    return replace(agreed, fill=fill, mean=mean, scale=scale)


def needed(samples: "Samples", settings: Preprocess) -> bool:
    """Whether these samples need pre-processing; refuses what is not possible for them."""
    asked = settings.standardise or settings.impute != "none"
    if samples.vocabulary and asked:
        raise UserError("data.preprocess is for numbers, categories and images: leave it out for a text")
    if samples.x.dtype == np.uint8 and samples.x.ndim == 4:
        return settings.standardise
    if settings.indicator and samples.x.ndim != 2:
        raise UserError(f"data.preprocess.indicator is for tables, not for samples of shape {samples.x.shape[1:]}")
    return asked or any(column.categories for column in samples.columns)


@dataclass(frozen=True)
class Kind:
    """What a sample is: an image or not, its shape, and its columns if it is a row of a table."""

    image: bool
    shape: tuple[int, ...]
    columns: tuple[Column, ...]

    @classmethod
    def of(cls, samples: "Samples") -> "Kind":
        shape = samples.x.shape[1:]
        image = samples.x.dtype == np.uint8
        names = samples.columns or tuple(Column(f"feature {j}") for j in range(shape[0] if len(shape) == 1 else 0))
        return cls(image, shape, () if image else names)

    @property
    def features(self) -> int:
        return self.shape[-1] if self.image else math.prod(self.shape)


def agree(kind: Kind, summaries: Sequence[Summary], settings: Preprocess) -> Preprocessing:
    """What all clients agree on; the statistics too, unless each client uses its own."""
    columns = kind.columns
    missing = np.array([summary.missing for summary in summaries]).sum(0)
    counts = [np.array([s.categories[j] for s in summaries]).sum(0) for j in range(len(summaries[0].categories))]
    kept = tuple(tuple(np.flatnonzero(count).tolist()) for count in counts) or ((),) * len(columns)
    nothing = np.zeros((0, kind.features))
    agreed = Preprocessing(
        settings, kind.image, columns, kept, tuple(np.flatnonzero(missing).tolist()), nothing, nothing, nothing
    )
    if settings.statistics == "client":
        return agreed
    if settings.impute == "most-frequent":
        named = [bool(column.categories) for column in columns] or [False] * kind.features
        for j in np.flatnonzero((missing > 0) & ~np.array(named)).tolist():
            raise UserError(
                f"data.preprocess.impute = 'most-frequent' of all clients needs their numbers in column "
                f"{columns[j].name if columns else j!r}, and only sums travel: set it to 'mean', or set "
                f"data.preprocess.statistics to 'client'"
            )
    return _with_statistics(agreed, summaries, counts, None)


def with_own(agreed: Preprocessing, samples: "Samples", rows: np.ndarray) -> Preprocessing:
    """The agreed pre-processing with a client's own statistics, from its training rows."""
    whole = agreed.settings.model_copy(update={"statistics": "federation"})
    summary = Summary.of(samples, rows, whole)
    values = None if agreed.image else table(samples.x[rows])
    fill = None
    if values is not None and agreed.settings.impute in ("median", "most-frequent"):
        typical = np.median if agreed.settings.impute == "median" else _most_frequent
        present = [column[~np.isnan(column)] for column in values.T]
        fill = np.array([float(typical(one)) if len(one) else 0.0 for one in present])
    return _with_statistics(agreed, [summary], [np.array(count) for count in summary.categories], fill)


def _with_statistics(
    agreed: Preprocessing, summaries: Sequence[Summary], counts: Sequence[np.ndarray], fill: np.ndarray | None
) -> Preprocessing:
    """One row of statistics from the sums of these clients; ``fill`` replaces the means of missing numbers.

    Without a single value, a number becomes 0 after scaling and a category stays unknown.
    """
    numbers = np.array([summary.counts for summary in summaries], np.float64)  # (clients, features)
    sums, squares = (np.array([getattr(s, name) for s in summaries], np.float64) for name in ("sums", "squares"))
    count = numbers.sum(0)
    mean = sums.sum(0) / np.maximum(count, 1)
    # The squares are about each client's own mean: no digits are lost where means are large.
    between = numbers * np.square(sums / np.maximum(numbers, 1) - mean)
    variance = (squares + between).sum(0) / np.maximum(count, 1)
    fill = mean.copy() if fill is None else fill
    for j, column in enumerate(agreed.columns):
        if column.categories:
            kept = counts[j][list(agreed.kept[j])]
            places, total = np.arange(len(kept)), max(1, int(kept.sum()))
            mean[j] = (kept * places).sum() / total
            variance[j] = (kept * np.square(places - mean[j])).sum() / total
            fill[j] = agreed.kept[j][int(kept.argmax())] if kept.sum() else UNKNOWN
    scale = np.where(variance > 0, np.sqrt(variance), 1.0)
    return replace(agreed, fill=fill[None], mean=mean[None], scale=scale[None])


def _most_frequent(values: np.ndarray) -> float:
    """The most frequent value; of several, the smallest."""
    found, times = np.unique(values, return_counts=True)
    return float(found[times.argmax()])
