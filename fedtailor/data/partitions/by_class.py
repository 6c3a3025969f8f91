"""Partitions that decide which classes a client has: pathological, groups, one-label, mixed."""

import heapq
from collections.abc import Sequence
from typing import Annotated, ClassVar, Literal

import numpy as np
from pydantic import Field

from fedtailor.data.shares import Shares
from fedtailor.errors import UserError

from .base import PartitionSettings, Pool, Stream, check_enough, rows_by_class


class Pathological(PartitionSettings):
    """Every client has samples of exactly ``classes`` classes."""

    kind: Literal["pathological"] = "pathological"
    classes: int = Field(2, ge=1, description="Number of distinct classes every client has.")

    def deal(self, pool: Pool, clients: int, stream: Stream) -> Shares:
        return pathological(pool.labels, clients, stream, self.classes)


class Groups(PartitionSettings):
    """Clients form groups of about equal size; each group has its own classes. Other classes are not used."""

    kind: Literal["groups"] = "groups"
    labels: tuple[tuple[Annotated[int, Field(ge=0)], ...], ...] = Field(
        ((0, 1), (1, 2), (3, 4)), min_length=1, description="The classes of each group, by number."
    )

    def deal(self, pool: Pool, clients: int, stream: Stream) -> Shares:
        return groups(pool.labels, clients, stream, self.labels)


class OneLabel(PartitionSettings):
    """Every client has one class, drawn from train and test samples together; replaces ``data.split``."""

    kind: Literal["one-label"] = "one-label"
    train: int = Field(500, ge=1, description="Training samples per client.")
    test: int = Field(100, ge=1, description="Test samples per client.")
    pools_test: ClassVar[bool] = True

    def deal(self, pool: Pool, clients: int, stream: Stream) -> Shares:
        return one_label(pool.labels, clients, stream, self.train + self.test, pool.classes)


class Mixed(PartitionSettings):
    """A share of the clients has two classes, the others have all of them."""

    kind: Literal["mixed"] = "mixed"
    sigma: float = Field(0.5, ge=0, le=1, description="Share of clients with two classes; 0 is iid.")

    def deal(self, pool: Pool, clients: int, stream: Stream) -> Shares:
        return mixed(pool.labels, clients, stream, self.sigma)


def pathological(labels: np.ndarray, clients: int, stream: Stream, classes: int = 2) -> Shares:
    """Exactly ``classes`` distinct labels per client, from ``classes * clients`` shards without overlap."""
    check_enough(len(labels), clients)
    present, label, sizes = np.unique(labels, return_inverse=True, return_counts=True)
    if classes > len(present):
        raise UserError(
            f"partition pathological cannot give every client {classes} classes because the data has "
            f"only {len(present)}: lower data.partition.classes"
        )
    if clients * classes < len(present):
        raise UserError(
            f"partition pathological with {clients} clients of {classes} classes leaves some of the "
            f"{len(present)} classes without an owner: raise data.clients or data.partition.classes"
        )
    classes_of = _assign_classes(_shards_per_class(sizes, clients, classes), clients, stream)
    owners = np.empty(len(labels), np.int64)
    for each, rows in enumerate(rows_by_class(label, len(present), stream)):
        holders = stream.permutation(np.flatnonzero((classes_of == each).any(1)))
        owners[rows] = holders[np.arange(len(rows)) * len(holders) // len(rows)]
    return Shares.from_owners(owners, clients)


def groups(labels: np.ndarray, clients: int, stream: Stream, classes: Sequence[Sequence[int]]) -> Shares:
    """A class is shared evenly among all clients whose group has it."""
    check_enough(len(labels), clients)
    if clients < len(classes):
        raise UserError(
            f"partition groups has {len(classes)} groups for {clients} clients: raise data.clients or name fewer groups"
        )
    group = np.arange(clients) * len(classes) // clients
    rows = rows_by_class(labels, int(labels.max()) + 1, stream)
    owners = np.full(len(labels), -1, np.int64)
    for label in sorted({label for each in classes for label in each}):
        if label >= len(rows) or not len(rows[label]):
            raise UserError(f"partition groups: there is no class {label}; change data.partition.labels")
        holders = np.flatnonzero([label in classes[int(one)] for one in group])
        owners[rows[label]] = holders[np.arange(len(rows[label])) * len(holders) // len(rows[label])]
    return Shares.from_owners(owners, clients)


def one_label(
    labels: np.ndarray, clients: int, stream: Stream, size: int = 600, classes: tuple[str, ...] = ()
) -> Shares:
    """``size`` samples of a single class for every client; all classes have nearly equally many clients."""
    check_enough(len(labels), clients)
    present, label = np.unique(labels, return_inverse=True)
    class_of = stream.permutation(len(present))[np.arange(clients) % len(present)]  # (clients,)
    owners = np.full(len(labels), -1, np.int64)
    for each, rows in enumerate(rows_by_class(label, len(present), stream)):
        holders = stream.permutation(np.flatnonzero(class_of == each))
        if len(holders) * size > len(rows):
            name = classes[present[each]] if classes else str(present[each])
            raise UserError(
                f"partition one-label needs {len(holders)} x {size} samples of class {name!r} for {clients} "
                f"clients but there are {len(rows)}: lower data.clients, data.partition.train or "
                f"data.partition.test"
            )
        owners[rows[: len(holders) * size]] = np.repeat(holders, size)
    return Shares.from_owners(owners, clients)


def mixed(labels: np.ndarray, clients: int, stream: Stream, sigma: float = 0.5) -> Shares:
    """``sigma`` of the clients have two classes, the others all; shares are equally large where possible."""
    check_enough(len(labels), clients)
    narrow = int(np.floor(sigma * clients + 0.5))
    if narrow == clients:
        return pathological(labels, clients, stream, 2)
    wide = clients - narrow
    present, label, sizes = np.unique(labels, return_inverse=True, return_counts=True)
    if narrow and len(present) < 2:
        raise UserError("partition mixed needs data with at least 2 classes: choose another data.source")
    order = stream.permutation(clients)  # the first `narrow` of these have two classes
    shards = np.zeros(len(present), np.int64)
    if narrow:
        chosen = stream.permutation(len(present))[: 2 * narrow]
        shards[chosen] = _shards_per_class(sizes[chosen], narrow, 2)
    classes_of = _assign_classes(shards, narrow, stream) if narrow else np.zeros((0, 2), np.int64)
    half = len(labels) // (2 * clients)
    owners = np.empty(len(labels), np.int64)
    turn = 0  # cycles through the wide clients, so that left-over samples are spread evenly
    for each, rows in enumerate(rows_by_class(label, len(present), stream)):
        holders = order[np.flatnonzero((classes_of == each).any(1))]
        size = min(half, (len(rows) - wide) // max(1, len(holders)))
        if len(rows) < wide or (len(holders) and size < 1):
            raise UserError(
                f"partition mixed cannot give {wide} of {clients} clients a sample of every class because "
                f"one class has only {len(rows)} samples: lower data.clients or raise data.partition.sigma"
            )
        taken = size * len(holders)
        owners[rows[:taken]] = np.repeat(holders, size)
        owners[rows[taken:]] = order[narrow + (turn + np.arange(len(rows) - taken)) % wide]
        turn += len(rows) - taken
    return Shares.from_owners(owners, clients)


def _shards_per_class(sizes: np.ndarray, clients: int, each: int) -> np.ndarray:
    """The number of the ``clients * each`` shards cut from each class, so that shards have similar sizes.

    A class gives at least one shard, at most one per client, and no empty ones; the next shard is
    always cut from the class whose shards are then largest.
    """
    most = np.minimum(sizes, clients)
    if most.sum() < clients * each:
        raise UserError(
            f"partition pathological cannot give {clients} clients {each} classes each because some classes "
            f"have too few samples: lower data.clients or data.partition.classes"
        )
    shards = np.ones(len(sizes), np.int64)
    # Exact order without floats: compare size / (shards + 1) as fractions scaled by a common power of two.
    queue = [(-(int(size) << 32) // 2, k) for k, size in enumerate(sizes) if most[k] > 1]
    heapq.heapify(queue)
    for _ in range(clients * each - len(sizes)):
        _, k = heapq.heappop(queue)
        shards[k] += 1
        if shards[k] < most[k]:
            heapq.heappush(queue, (-(int(sizes[k]) << 32) // int(shards[k] + 1), k))
    return shards


def _assign_classes(shards: np.ndarray, clients: int, stream: Stream) -> np.ndarray:
    """The classes of each client, (clients, shards per client), without repetition in a row.

    Shards are assigned class by class, to one client after the other. No class has more shards than
    there are clients, so no client gets a class twice. Random exchanges between random pairs of
    clients then mix the classes; an exchange that would repeat a class is skipped.
    """
    order = stream.permutation(len(shards))
    laid = np.repeat(order, shards[order])
    classes_of = laid.reshape(-1, clients).T[stream.permutation(clients)].copy()
    each = classes_of.shape[1]
    for _ in range(10 * (each + 1)):
        pairs = stream.permutation(clients)[: clients // 2 * 2].reshape(2, -1)
        slots = stream.randint(each, size=pairs.shape)
        mine, yours = classes_of[pairs[0], slots[0]], classes_of[pairs[1], slots[1]]
        fits = ~(classes_of[pairs[0]] == yours[:, None]).any(1) & ~(classes_of[pairs[1]] == mine[:, None]).any(1)
        classes_of[pairs[0][fits], slots[0][fits]] = yours[fits]
        classes_of[pairs[1][fits], slots[1][fits]] = mine[fits]
    return classes_of
