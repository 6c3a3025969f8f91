"""Partitions: who gets which samples.

Each kind is a function from labels (or groups) to ``Shares`` and a small settings class of the same
name that calls it. All randomness comes from the stream that is passed in, and only integer results
leave this file, so a partition is the same on every machine.
"""

import heapq
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated, Any, ClassVar, Literal

import numpy as np
from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, model_validator

from fedtailor.errors import UserError

from .shares import Shares

DRAWS = 10  # Dirichlet draws before the best of them is repaired
FRABONI_SIZES = np.array([100, 250, 500, 750, 1000])
FRABONI_SHARES = np.array([0.1, 0.4, 0.7, 0.9, 1.0])  # of the clients that have at most so many samples
Stream = np.random.RandomState


@dataclass(frozen=True, eq=False)
class Pool:
    """The samples to be dealt out: their labels and, if the source knows them, their groups."""

    labels: np.ndarray  # int64 (n,)
    classes: tuple[str, ...]
    groups: np.ndarray | None = None  # int64 (n,)
    group_names: tuple[str, ...] = ()


class PartitionSettings(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")

    needs_classes: ClassVar[bool] = True
    pools_test: ClassVar[bool] = False  # deals the official test samples too, whatever the split

    def deal(self, pool: Pool, clients: int, stream: Stream) -> Shares:
        raise NotImplementedError


class Iid(PartitionSettings):
    """Every client gets a random, equally large share."""

    kind: Literal["iid"] = "iid"
    needs_classes: ClassVar[bool] = False

    def deal(self, pool: Pool, clients: int, stream: Stream) -> Shares:
        return iid(pool.labels, clients, stream)


class Pathological(PartitionSettings):
    """Every client has samples of exactly so many classes."""

    kind: Literal["pathological"] = "pathological"
    classes: int = Field(2, ge=1, description="Number of distinct classes every client has.")

    def deal(self, pool: Pool, clients: int, stream: Stream) -> Shares:
        return pathological(pool.labels, clients, stream, self.classes)


class Dirichlet(PartitionSettings):
    """Each class is spread over the clients in proportions drawn from a Dirichlet distribution."""

    kind: Literal["dirichlet"] = "dirichlet"
    alpha: float = Field(
        0.3, gt=0, le=1e6, description="Concentration: small is very uneven, 100 and more is close to iid."
    )
    min_size: int | None = Field(
        None,
        ge=1,
        description="Samples every client has at least; default 10, or half the mean share if that is less.",
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
        200, ge=10, description="Mean samples of a client; a tenth of the clients has a fifth of it, a tenth twice it."
    )

    def deal(self, pool: Pool, clients: int, stream: Stream) -> Shares:
        return dirichlet_clients(pool.labels, clients, stream, self.alpha, self.size, pool.classes)


class Groups(PartitionSettings):
    """Clients in groups of about equal size, one after the other, each with classes of its own; others are not used."""

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


class ByWriter(PartitionSettings):
    """Every client is one writer; with fewer clients than writers, a random choice of them."""

    kind: Literal["by-writer"] = "by-writer"
    needs_classes: ClassVar[bool] = False

    def deal(self, pool: Pool, clients: int, stream: Stream) -> Shares:
        return by_writer(_groups(pool, self.kind), clients, stream)


class ByDomain(PartitionSettings):
    """Every client has samples of one domain only.

    The three shares are those of source "mnist-star"; in other sources with groups, every domain
    has equally many clients.
    """

    kind: Literal["by-domain"] = "by-domain"
    mnist: float = Field(0.4, ge=0, le=1, description="Share of clients with MNIST digits.")
    usps: float = Field(0.4, ge=0, le=1, description="Share of clients with USPS digits.")
    mnist_m: float = Field(0.2, ge=0, le=1, description="Share of clients with MNIST-M digits.")
    needs_classes: ClassVar[bool] = False

    @model_validator(mode="after")
    def _shares_sum_to_one(self) -> "ByDomain":
        if abs(self.mnist + self.usps + self.mnist_m - 1) > 1e-6:
            raise ValueError("the shares mnist, usps and mnist_m must sum to 1")
        return self

    def deal(self, pool: Pool, clients: int, stream: Stream) -> Shares:
        groups = _groups(pool, self.kind)
        named = {"mnist": self.mnist, "usps": self.usps, "mnist_m": self.mnist_m}
        if set(pool.group_names) == set(named):
            shares = np.array([named[name] for name in pool.group_names])
        else:
            domains = max(len(pool.group_names), int(groups.max(initial=0)) + 1)
            shares = np.full(domains, 1 / domains)
        return by_domain(groups, clients, stream, shares)


class Given(PartitionSettings):
    """The source says who owns what: every group is a client, and ``data.clients`` is not used."""

    kind: Literal["given"] = "given"
    needs_classes: ClassVar[bool] = False

    def deal(self, pool: Pool, clients: int, stream: Stream) -> Shares:
        return given(_groups(pool, self.kind), len(pool.group_names))


def _from_name(value: Any) -> Any:
    return {"kind": value} if isinstance(value, str) else value


Partition = Annotated[
    Annotated[
        Iid | Pathological | Dirichlet | DirichletClients | Groups | OneLabel | Mixed | ByWriter | ByDomain | Given,
        Field(discriminator="kind"),
    ],
    BeforeValidator(_from_name),
]


def iid(labels: np.ndarray, clients: int, stream: Stream) -> Shares:
    """Equally large random shares."""
    _enough(len(labels), clients)
    return Shares.from_owners(stream.permutation(np.arange(len(labels)) % clients), clients)


def pathological(labels: np.ndarray, clients: int, stream: Stream, classes: int = 2) -> Shares:
    """Exactly ``classes`` distinct labels per client, from ``classes * clients`` shards without overlap."""
    _enough(len(labels), clients)
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
    hands = _deal_hands(_shards_per_class(sizes, clients, classes), clients, stream)
    owners = np.empty(len(labels), np.int64)
    for each, rows in enumerate(_rows_by_class(label, len(present), stream)):
        holders = stream.permutation(np.flatnonzero((hands == each).any(1)))
        owners[rows] = holders[np.arange(len(rows)) * len(holders) // len(rows)]
    return Shares.from_owners(owners, clients)


def dirichlet(
    labels: np.ndarray, clients: int, stream: Stream, alpha: float = 0.3, min_size: int | None = None
) -> Shares:
    """Each class spread over the clients by Dir(alpha), and at least ``min_size`` samples for everyone.

    Takes the first of a few draws that satisfies the minimum; if none does (many clients, small
    alpha), the best of them is repaired with samples of the richest clients.
    """
    _enough(len(labels), clients)
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
    for each, rows in enumerate(_rows_by_class(label, len(present), stream)):
        owners[rows] = np.repeat(np.arange(clients), best[each])
    return Shares.from_owners(_lift(owners, clients, min_size, stream), clients)


def dirichlet_clients(
    labels: np.ndarray,
    clients: int,
    stream: Stream,
    alpha: float = 0.3,
    size: int = 200,
    classes: tuple[str, ...] = (),
) -> Shares:
    """Class proportions of every client by Dir(alpha); client sizes as in Fraboni et al. (2021), scaled to ``size``."""
    _enough(len(labels), clients)
    present, label = np.unique(labels, return_inverse=True)
    place = (stream.permutation(clients) + 0.5) / clients  # of a client among all, by size
    relative = FRABONI_SIZES[np.searchsorted(FRABONI_SHARES, place)]
    counts = _dirichlet_counts(_apportion(relative, size * clients), len(present), alpha, stream)  # (clients, classes)
    owners = np.full(len(labels), -1, np.int64)
    for each, rows in enumerate(_rows_by_class(label, len(present), stream)):
        wanted = int(counts[:, each].sum())
        if wanted > len(rows):
            name = classes[present[each]] if classes else str(present[each])
            raise UserError(
                f"partition dirichlet-clients drew {wanted} samples of class {name!r} but there are {len(rows)}: "
                f"lower data.clients or data.partition.size, or raise data.partition.alpha"
            )
        owners[rows[:wanted]] = np.repeat(np.arange(clients), counts[:, each])
    return Shares.from_owners(owners, clients)


def groups(labels: np.ndarray, clients: int, stream: Stream, classes: Sequence[Sequence[int]]) -> Shares:
    """A class is shared evenly among all clients whose group has it."""
    _enough(len(labels), clients)
    if clients < len(classes):
        raise UserError(
            f"partition groups has {len(classes)} groups for {clients} clients: raise data.clients or name fewer groups"
        )
    group = np.arange(clients) * len(classes) // clients
    rows = _rows_by_class(labels, int(labels.max()) + 1, stream)
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
    _enough(len(labels), clients)
    present, label = np.unique(labels, return_inverse=True)
    class_of = stream.permutation(len(present))[np.arange(clients) % len(present)]  # (clients,)
    owners = np.full(len(labels), -1, np.int64)
    for each, rows in enumerate(_rows_by_class(label, len(present), stream)):
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
    _enough(len(labels), clients)
    narrow = int(np.floor(sigma * clients + 0.5))
    if narrow == clients:
        return pathological(labels, clients, stream, 2)
    wide = clients - narrow
    present, label, sizes = np.unique(labels, return_inverse=True, return_counts=True)
    if narrow and len(present) < 2:
        raise UserError("partition mixed needs data with at least 2 classes: choose another data.source")
    who = stream.permutation(clients)  # the first `narrow` of these have two classes
    shards = np.zeros(len(present), np.int64)
    if narrow:
        chosen = stream.permutation(len(present))[: 2 * narrow]
        shards[chosen] = _shards_per_class(sizes[chosen], narrow, 2)
    hands = _deal_hands(shards, narrow, stream) if narrow else np.zeros((0, 2), np.int64)
    half = len(labels) // (2 * clients)
    owners = np.empty(len(labels), np.int64)
    turn = 0  # goes round the wide clients, so that left-over samples are spread evenly
    for each, rows in enumerate(_rows_by_class(label, len(present), stream)):
        holders = who[np.flatnonzero((hands == each).any(1))]
        size = min(half, (len(rows) - wide) // max(1, len(holders)))
        if len(rows) < wide or (len(holders) and size < 1):
            raise UserError(
                f"partition mixed cannot give {wide} of {clients} clients a sample of every class because "
                f"one class has only {len(rows)} samples: lower data.clients or raise data.partition.sigma"
            )
        taken = size * len(holders)
        owners[rows[:taken]] = np.repeat(holders, size)
        owners[rows[taken:]] = who[narrow + (turn + np.arange(len(rows) - taken)) % wide]
        turn += len(rows) - taken
    return Shares.from_owners(owners, clients)


def by_writer(groups: np.ndarray, clients: int, stream: Stream) -> Shares:
    """One group per client, chosen at random if there are more groups than clients."""
    writers = np.unique(groups)
    if clients > len(writers):
        raise UserError(
            f"partition by-writer has {len(writers)} writers for {clients} clients: "
            f"set data.clients to at most {len(writers)}"
        )
    client_of = np.full(int(writers.max()) + 1, -1, np.int64)
    client_of[np.sort(stream.permutation(writers)[:clients])] = np.arange(clients)
    return Shares.from_owners(client_of[groups], clients)


def by_domain(groups: np.ndarray, clients: int, stream: Stream, shares: np.ndarray) -> Shares:
    """``shares[g]`` of the clients share the samples of group g equally and at random."""
    _enough(len(groups), clients)
    holders_of = _apportion(shares, clients)
    owners = np.full(len(groups), -1, np.int64)
    first = 0
    for domain, holders in enumerate(holders_of.tolist()):
        rows = stream.permutation(np.flatnonzero(groups == domain))
        if holders:
            if len(rows) < holders:
                raise UserError(
                    f"partition by-domain has {len(rows)} samples of domain {domain} for {holders} clients: "
                    f"lower data.clients or the domain's share"
                )
            owners[rows] = first + np.arange(len(rows)) % holders
        first += holders
    return Shares.from_owners(owners, clients)


def given(groups: np.ndarray, clients: int) -> Shares:
    """Group g is client g."""
    shares = Shares.from_owners(groups, clients)
    if shares.sizes.min(initial=1) < 1:
        raise UserError(
            f"partition given finds client {int(shares.sizes.argmin())} without a sample to train on: "
            f"add samples or remove that client from the data"
        )
    return shares


def _groups(pool: Pool, kind: str) -> np.ndarray:
    if pool.groups is None:
        raise UserError(
            f"partition {kind} needs a source that says which group a sample belongs to "
            f"(omniglot, mnist-star, folder): choose another data.partition or data.source"
        )
    return pool.groups


def _enough(samples: int, clients: int) -> None:
    if clients > samples:
        raise UserError(f"{clients} clients cannot share {samples} samples: lower data.clients")


def _rows_by_class(label: np.ndarray, classes: int, stream: Stream) -> list[np.ndarray]:
    """The rows of each class, in random order."""
    shuffled = stream.permutation(len(label))
    by_class = shuffled[np.argsort(label[shuffled], kind="stable")]
    return np.split(by_class, np.cumsum(np.bincount(label, minlength=classes))[:-1])


def _shards_per_class(sizes: np.ndarray, clients: int, each: int) -> np.ndarray:
    """How many of the ``clients * each`` shards are cut from each class, so that shards are alike in size.

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


def _deal_hands(shards: np.ndarray, clients: int, stream: Stream) -> np.ndarray:
    """Which classes each client holds, (clients, shards per client), no class twice in a row.

    Laying the shards class by class round the table cannot give a client one class twice, because
    no class has more shards than there are clients. Random exchanges between random pairs of
    clients, made only where they keep the hands distinct, then mix the classes.
    """
    order = stream.permutation(len(shards))
    laid = np.repeat(order, shards[order])
    hands = laid.reshape(-1, clients).T[stream.permutation(clients)].copy()
    each = hands.shape[1]
    for _ in range(10 * (each + 1)):
        pairs = stream.permutation(clients)[: clients // 2 * 2].reshape(2, -1)
        slots = stream.randint(each, size=pairs.shape)
        mine, yours = hands[pairs[0], slots[0]], hands[pairs[1], slots[1]]
        fits = ~(hands[pairs[0]] == yours[:, None]).any(1) & ~(hands[pairs[1]] == mine[:, None]).any(1)
        hands[pairs[0][fits], slots[0][fits]] = yours[fits]
        hands[pairs[1][fits], slots[1][fits]] = mine[fits]
    return hands


def _dirichlet_counts(sizes: np.ndarray, clients: int, alpha: float, stream: Stream) -> np.ndarray:
    """How many samples of each class each client gets in one draw, (classes, clients)."""
    shape = (len(sizes), clients)
    # A Gamma(alpha) variable is Gamma(alpha + 1) times U^(1/alpha); its logarithm does not underflow
    # to 0 for small alpha, where the usual way ends in 0/0.
    log_gamma = np.log(stream.standard_gamma(alpha + 1, shape)) + np.log1p(-stream.random_sample(shape)) / alpha
    weights = np.exp(log_gamma - log_gamma.max(1, keepdims=True))
    cuts = np.cumsum(weights, 1) / weights.sum(1, keepdims=True)
    # Rounded, because the last bits of exp and log differ between processors.
    # To the nearest whole number: cutting off would leave the last client a sample of nearly every class.
    edges = np.floor(np.round(cuts, 9) * sizes[:, None] + 0.5).astype(np.int64)
    edges[:, -1] = sizes
    return np.diff(edges, axis=1, prepend=0)


def _lift(owners: np.ndarray, clients: int, min_size: int, stream: Stream) -> np.ndarray:
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


def _apportion(shares: np.ndarray, total: int) -> np.ndarray:
    """Whole numbers that sum to ``total`` and follow the shares (largest remainders)."""
    exact = np.round(shares / shares.sum() * total, 9)
    whole: np.ndarray = np.floor(exact).astype(np.int64)
    largest = np.argsort(whole - exact, kind="stable")[: total - int(whole.sum())]
    whole[largest] += 1
    return whole
