"""Partitions along the groups of a source: by-writer, by-domain, given."""

from itertools import count
from typing import ClassVar, Literal

import numpy as np
from pydantic import Field, model_validator

from fedtailor.data.shares import Shares
from fedtailor.errors import UserError

from .base import PartitionSettings, Pool, Stream, apportion, check_enough


class ByWriter(PartitionSettings):
    """Every client is one writer; with fewer clients than writers, a random choice of them."""

    kind: Literal["by-writer"] = "by-writer"
    needs_classes: ClassVar[bool] = False

    def deal(self, pool: Pool, clients: int, stream: Stream) -> Shares:
        return by_writer(groups_of(pool, self.kind), clients, stream)

    def names(self, groups: np.ndarray | None, names: tuple[str, ...], shares: Shares) -> tuple[str, ...]:
        return _names_of_groups(groups, names, shares)


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
        groups = groups_of(pool, self.kind)
        named = {"mnist": self.mnist, "usps": self.usps, "mnist_m": self.mnist_m}
        if set(pool.group_names) == set(named):
            shares = np.array([named[name] for name in pool.group_names])
        else:
            domains = max(len(pool.group_names), int(groups.max(initial=0)) + 1)
            shares = np.full(domains, 1 / domains)
        return by_domain(groups, clients, stream, shares)

    def names(self, groups: np.ndarray | None, names: tuple[str, ...], shares: Shares) -> tuple[str, ...]:
        numbers = {name: count(1) for name in names}
        return tuple(f"{domain}-{next(numbers[domain])}" for domain in _names_of_groups(groups, names, shares))


class Given(PartitionSettings):
    """The source defines the clients: every group is a client, and ``data.clients`` is not used."""

    kind: Literal["given"] = "given"
    needs_classes: ClassVar[bool] = False

    def deal(self, pool: Pool, clients: int, stream: Stream) -> Shares:
        return given(groups_of(pool, self.kind), len(pool.group_names))

    def names(self, groups: np.ndarray | None, names: tuple[str, ...], shares: Shares) -> tuple[str, ...]:
        return names


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
    check_enough(len(groups), clients)
    holders_of = apportion(shares, clients)
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


def _names_of_groups(groups: np.ndarray | None, names: tuple[str, ...], shares: Shares) -> tuple[str, ...]:
    """The name of the group that each client's samples belong to."""
    if groups is None or not names:
        return ()
    return tuple(names[int(groups[shares[client][0]])] for client in range(len(shares)))


def groups_of(pool: Pool, kind: str) -> np.ndarray:
    if pool.groups is None:
        raise UserError(
            f"partition {kind} needs a source with groups "
            f"(omniglot, mnist-star, folder): choose another data.partition or data.source"
        )
    return pool.groups
