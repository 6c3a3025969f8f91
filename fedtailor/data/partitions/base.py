"""What every kind of partition shares: its interface, the samples to deal, and steps of dealing."""

from dataclasses import dataclass
from typing import ClassVar

import numpy as np
from pydantic import BaseModel, ConfigDict

from fedtailor.data.shares import Shares
from fedtailor.errors import UserError

Stream = np.random.RandomState


@dataclass(frozen=True, eq=False)
class Pool:
    """The samples to deal: their labels and, if the source has them, their groups."""

    labels: np.ndarray  # int64 (n,)
    classes: tuple[str, ...]
    groups: np.ndarray | None = None  # int64 (n,)
    group_names: tuple[str, ...] = ()


class PartitionSettings(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")

    needs_classes: ClassVar[bool] = True
    pools_test: ClassVar[bool] = False  # also deals the official test samples, for every split
    leaves_test: ClassVar[bool] = False  # never deals the official test samples, for every split

    def deal(self, pool: Pool, clients: int, stream: Stream) -> Shares:
        """Assign the samples of a pool to the clients."""
        raise NotImplementedError

    def names(self, groups: np.ndarray | None, names: tuple[str, ...], shares: Shares) -> tuple[str, ...]:
        """The clients' names, from the groups of all samples, their names, and each client's samples; mostly none."""
        return ()


def check_enough(samples: int, clients: int) -> None:
    if clients > samples:
        raise UserError(f"{clients} clients cannot share {samples} samples: lower data.clients")


def rows_by_class(label: np.ndarray, classes: int, stream: Stream) -> list[np.ndarray]:
    """The rows of each class, in random order."""
    shuffled = stream.permutation(len(label))
    by_class = shuffled[np.argsort(label[shuffled], kind="stable")]
    return np.split(by_class, np.cumsum(np.bincount(label, minlength=classes))[:-1])


def apportion(shares: np.ndarray, total: int) -> np.ndarray:
    """Whole numbers that sum to ``total`` and follow the shares (largest remainders)."""
    exact = np.round(shares / shares.sum() * total, 9)
    whole: np.ndarray = np.floor(exact).astype(np.int64)
    largest = np.argsort(whole - exact, kind="stable")[: total - int(whole.sum())]
    whole[largest] += 1
    return whole
