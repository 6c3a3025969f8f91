"""The samples of each client."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np


@dataclass(frozen=True, eq=False)
class Shares:
    """One flat array of sample indices and where each client's part of it begins.

    There is no object per client, so a million clients cost two arrays.
    """

    indices: np.ndarray  # int64 (samples that have an owner,)
    offsets: np.ndarray  # int64 (clients + 1,)

    @classmethod
    def from_owners(cls, owners: np.ndarray, clients: int) -> "Shares":
        """Build shares from each sample's owner (-1: none), so a sample never has two owners."""
        order = np.argsort(owners, kind="stable")
        unowned = int(np.count_nonzero(owners < 0))
        sizes = np.bincount(owners[owners >= 0], minlength=clients)
        return cls(order[unowned:].astype(np.int64), _offsets(sizes))

    @classmethod
    def empty(cls, clients: int) -> "Shares":
        return cls(np.zeros(0, np.int64), np.zeros(clients + 1, np.int64))

    def __len__(self) -> int:
        return len(self.offsets) - 1

    def __getitem__(self, client: int) -> np.ndarray:
        """The sample indices of one client, as a view."""
        if not -len(self) <= client < len(self):
            raise IndexError(f"client {client} of {len(self)}")
        client %= len(self)
        return self.indices[self.offsets[client] : self.offsets[client + 1]]

    @property
    def sizes(self) -> np.ndarray:
        """int64 (clients,): how many samples each client has."""
        return np.diff(self.offsets)

    @property
    def owners(self) -> np.ndarray:
        """int64 (len(indices),): the client of each entry of ``indices``."""
        return np.repeat(np.arange(len(self)), self.sizes)

    def keep(self, mask: np.ndarray) -> "Shares":
        """The entries of ``indices`` where mask is true, with the same owners."""
        return Shares(self.indices[mask], _offsets(np.bincount(self.owners[mask], minlength=len(self))))

    def reordered(self, order: Sequence[int]) -> "Shares":
        """The same shares with client ``order[k]`` in place k."""
        chosen = np.asarray(order, np.int64)
        sizes = self.sizes[chosen]
        offsets = _offsets(sizes)
        places = np.repeat(self.offsets[chosen] - offsets[:-1], sizes) + np.arange(offsets[-1])
        return Shares(self.indices[places], offsets)

    def within(self, rows: np.ndarray) -> "Shares":
        """The same shares when entry i means row ``rows[i]`` of a larger set."""
        same = np.array_equal(rows, np.arange(len(rows)))  # the larger set only continues
        return self if same else Shares(rows[self.indices], self.offsets)


def _offsets(sizes: np.ndarray) -> np.ndarray:
    return np.concatenate([[0], np.cumsum(sizes)]).astype(np.int64)
