"""Partitions that decide how much of each class a client has: iid, dirichlet, dirichlet-clients."""

import heapq
from typing import ClassVar, Literal

import numpy as np
from pydantic import Field

from fedtailor.data.shares import Shares
from fedtailor.errors import UserError

from .base import PartitionSettings, Pool, Stream, apportion, check_enough, rows_by_class

DRAWS = 10  # Dirichlet draws before the best of them is repaired
FRABONI_SIZES = np.array([100, 250, 500, 750, 1000])
FRABONI_SHARES = np.array([0.1, 0.4, 0.7, 0.9, 1.0])  # share of the clients that have at most this size


class Iid(PartitionSettings):
    """Every client gets a random share of equal size."""

    kind: Literal["iid"] = "iid"
    needs_classes: ClassVar[bool] = False

    def deal(self, pool: Pool, clients: int, stream: Stream) -> Shares:
        return iid(pool.labels, clients, stream)


class Dirichlet(PartitionSettings):
    """Each class is spread over the clients in proportions drawn from a Dirichlet distribution."""

    kind: Literal["dirichlet"] = "dirichlet"
    alpha: float = Field(
        0.3, gt=0, le=1e6, description="Concentration: small is very uneven, 100 and more is close to iid."
    )
    min_size: int | None = Field(
        None,
        ge=1,
        description="Minimum samples per client; default: 10, or half the mean share if that is less.",
    )

    def deal(self, pool: Pool, clients: int, stream: Stream) -> Shares:
        return dirichlet(pool.labels, clients, stream, self.alpha, self.min_size)


class DirichletClients(PartitionSettings):
    """Each client draws its own class proportions from a Dirichlet distribution; other samples are not used.

    As alpha goes to 0 every client has a single class, which spreading the classes over the clients does not give.
    """

    kind: Literal["dirichlet-clients"] = "dirichlet-clients"
    alpha: float = Field(
        0.3, gt=0, le=1e6, description="Concentration: small is near one class each, 100 and more is close to iid."
    )
    size: int = Field(
        200,
        ge=10,
        description="Mean samples per client; a tenth of the clients has a fifth of it, a tenth has twice it.",
    )

    def deal(self, pool: Pool, clients: int, stream: Stream) -> Shares:
        return dirichlet_clients(pool.labels, clients, stream, self.alpha, self.size, pool.classes)


def iid(labels: np.ndarray, clients: int, stream: Stream) -> Shares:
    """Equally large random shares."""
    check_enough(len(labels), clients)
    return Shares.from_owners(stream.permutation(np.arange(len(labels)) % clients), clients)


def dirichlet(
    labels: np.ndarray, clients: int, stream: Stream, alpha: float = 0.3, min_size: int | None = None
) -> Shares:
    """Each class spread over the clients by Dir(alpha), and at least ``min_size`` samples for every client.

    Takes the first of a few draws that satisfies the minimum; if none does (many clients, small
    alpha), the best of them is repaired with samples of the richest clients.
    """
    check_enough(len(labels), clients)
    if min_size is None:
        min_size = max(1, min(10, len(labels) // (2 * clients)))
    if min_size * clients > len(labels):
        raise UserError(
            f"partition dirichlet cannot give {clients} clients {min_size} of {len(labels)} samples each: "
            f"lower data.partition.min_size or data.clients"
        )
    present, label, sizes = np.unique(labels, return_inverse=True, return_counts=True)
    best = _dirichlet_counts(sizes, clients, alpha, stream)
    for _ in range(DRAWS - 1):
        if best.sum(0).min() >= min_size:
            break
        draw = _dirichlet_counts(sizes, clients, alpha, stream)
        best = max(best, draw, key=lambda counts: int(counts.sum(0).min()))
    owners = np.empty(len(labels), np.int64)
    for each, rows in enumerate(rows_by_class(label, len(present), stream)):
        owners[rows] = np.repeat(np.arange(clients), best[each])
    return Shares.from_owners(_raise_to_minimum(owners, clients, min_size, stream), clients)


def dirichlet_clients(
    labels: np.ndarray,
    clients: int,
    stream: Stream,
    alpha: float = 0.3,
    size: int = 200,
    classes: tuple[str, ...] = (),
) -> Shares:
    """Class proportions of every client by Dir(alpha); client sizes as in Fraboni et al. (2021), scaled to ``size``."""
    check_enough(len(labels), clients)
    present, label = np.unique(labels, return_inverse=True)
    place = (stream.permutation(clients) + 0.5) / clients  # a client's rank by size, in (0, 1)
    relative = FRABONI_SIZES[np.searchsorted(FRABONI_SHARES, place)]
    counts = _dirichlet_counts(apportion(relative, size * clients), len(present), alpha, stream)  # (clients, classes)
    owners = np.full(len(labels), -1, np.int64)
    for each, rows in enumerate(rows_by_class(label, len(present), stream)):
        wanted = int(counts[:, each].sum())
        if wanted > len(rows):
            name = classes[present[each]] if classes else str(present[each])
            raise UserError(
                f"partition dirichlet-clients drew {wanted} samples of class {name!r} but there are {len(rows)}: "
                f"lower data.clients or data.partition.size, or raise data.partition.alpha"
            )
        owners[rows[:wanted]] = np.repeat(np.arange(clients), counts[:, each])
    return Shares.from_owners(owners, clients)


def _dirichlet_counts(sizes: np.ndarray, clients: int, alpha: float, stream: Stream) -> np.ndarray:
    """The number of samples of each class for each client in one draw, (classes, clients)."""
    shape = (len(sizes), clients)
    # A Gamma(alpha) variable is Gamma(alpha + 1) times U^(1/alpha); its logarithm does not underflow
    # to 0 for small alpha, where the usual formula gives 0/0.
    log_gamma = np.log(stream.standard_gamma(alpha + 1, shape)) + np.log1p(-stream.random_sample(shape)) / alpha
    weights = np.exp(log_gamma - log_gamma.max(1, keepdims=True))
    cuts = np.cumsum(weights, 1) / weights.sum(1, keepdims=True)
    # Rounded, because the last bits of exp and log differ between processors.
    # To the nearest whole number: cutting off would leave the last client a sample of nearly every class.
    edges = np.floor(np.round(cuts, 9) * sizes[:, None] + 0.5).astype(np.int64)
    edges[:, -1] = sizes
    return np.diff(edges, axis=1, prepend=0)


def _raise_to_minimum(owners: np.ndarray, clients: int, min_size: int, stream: Stream) -> np.ndarray:
    """Give every client ``min_size`` samples, each time from the client that has the most."""
    sizes = np.bincount(owners, minlength=clients)
    poor = np.flatnonzero(sizes < min_size)
    if not len(poor):
        return owners
    owners = owners.copy()
    shuffled = stream.permutation(len(owners))
    rows = shuffled[np.argsort(owners[shuffled], kind="stable")]  # client by client, random within
    ends = np.cumsum(sizes)
    rich = [(-int(size), client) for client, size in enumerate(sizes) if size > min_size]
    heapq.heapify(rich)
    for client in poor.tolist():
        for _ in range(min_size - int(sizes[client])):
            size, donor = heapq.heappop(rich)
            ends[donor] -= 1
            owners[rows[ends[donor]]] = client
            if -size - 1 > min_size:
                heapq.heappush(rich, (size + 1, donor))
    return owners
