"""Splits: which of a client's samples are for training, validation and testing."""

from typing import Literal

import numpy as np

from fedtailor.errors import UserError

from .partitions import Stream
from .samples import Samples
from .shares import Shares

By = Literal["random", "group", "time"] | None


def carve(shares: Shares, strata: np.ndarray, take: np.ndarray, stream: Stream) -> tuple[Shares, Shares]:
    """Take ``take[client]`` samples out of every client's share, in proportion to its strata.

    Returns what is left and what was taken. A client's samples are laid out stratum by stratum and
    every (size / take)-th is taken, so each stratum gives its part to within one sample and the
    total is exact.
    """
    owners = shares.owners
    order = np.lexsort((stream.permutation(len(owners)), strata[shares.indices], owners))
    sizes = shares.sizes
    rank = np.arange(len(owners)) - shares.offsets[owners]
    phase = (stream.random_sample(len(shares)) * sizes).astype(np.int64)[owners]
    step, size = take[owners], sizes[owners]
    taken = np.zeros(len(owners), bool)
    taken[order] = ((rank + 1) * step + phase) // size > (rank * step + phase) // size
    return shares.keep(~taken), shares.keep(taken)


def share_of(sizes: np.ndarray, fraction: float, leave: int) -> np.ndarray:
    """``fraction`` of each size, rounded, at least 1 if ``fraction`` is not 0, leaving at least ``leave``."""
    if fraction == 0:
        return np.zeros_like(sizes)
    wanted = np.maximum(1, np.floor(sizes * fraction + 0.5).astype(np.int64))
    return np.clip(wanted, 0, np.maximum(0, sizes - leave))


def by_fractions(
    samples: Samples, shares: Shares, val: float, test: float, by: By, stream: Stream
) -> tuple[Shares, Shares, Shares]:
    """(train, val, test) of every client; a client with a single sample, or group of samples, trains on it."""
    rest, tested = split_off(samples, shares, test, shares, by, stream)
    train, validated = split_off(samples, rest, val, shares, by, stream)
    return train, validated, tested


def split_off(
    samples: Samples, shares: Shares, fraction: float, whole: Shares, by: By, stream: Stream
) -> tuple[Shares, Shares]:
    """Return what is left of every client's share, and what was taken: ``fraction`` of its ``whole`` share.

    At random, in proportion to the strata; by group, the same with whole groups, of which the fraction counts; by time,
    the last samples, and a sample that covers moments on both sides of the border is on neither.
    """
    kind = by or ("time" if samples.times is not None else "random" if samples.units is None else "group")
    if kind == "random":
        return carve(shares, samples.strata, _take(shares, fraction, whole), stream)
    if fraction == 0:
        return shares, Shares.empty(len(shares))
    if kind == "group":
        if samples.units is None:
            raise UserError("data.split.by = 'group' needs data that name each sample's group: see docs/data.md")
        first, place = _firsts(shares, samples.units)
        take = _take(first, fraction, _firsts(whole, samples.units)[0])
        chosen = np.isin(first.indices, carve(first, samples.strata, take, stream)[1].indices)[place]
        return shares.keep(~chosen), shares.keep(chosen)
    if samples.times is None:
        raise UserError("data.split.by = 'time' needs data that name each sample's time: see docs/data.md")
    return _latest(shares, samples.times, _take(shares, fraction, whole))


def _take(shares: Shares, fraction: float, whole: Shares) -> np.ndarray:
    """The number of entries to take out of every share: a fraction of the whole one, but at least one is left."""
    take: np.ndarray = np.minimum(share_of(whole.sizes, fraction, leave=1), np.maximum(0, shares.sizes - 1))
    return take


def _firsts(shares: Shares, units: np.ndarray) -> tuple[Shares, np.ndarray]:
    """The first sample of every client's every group, and the place among them of each entry of the shares."""
    pairs = np.stack([shares.owners, units[shares.indices]], 1)
    _, first, place = np.unique(pairs, axis=0, return_index=True, return_inverse=True)
    counts = np.bincount(shares.owners[first], minlength=len(shares))
    offsets = np.concatenate([[0], np.cumsum(counts)]).astype(np.int64)
    return Shares(shares.indices[first], offsets), place.reshape(-1)


def _latest(shares: Shares, times: np.ndarray, take: np.ndarray) -> tuple[Shares, Shares]:
    """Take the last samples of every client; what begins before the border and ends after it is left out."""
    before, after = np.zeros(len(shares.indices), bool), np.zeros(len(shares.indices), bool)
    for client in np.flatnonzero(shares.sizes):
        mine = slice(shares.offsets[client], shares.offsets[client + 1])
        begin, end = times[shares.indices[mine]].T
        if not take[client]:
            before[mine] = True
            continue
        border = np.sort(begin)[-take[client]]
        before[mine], after[mine] = end < border, begin >= border
        if not before[mine].any():
            raise UserError(
                f"client {client} has no sample that ends before its test samples begin: give it more samples, or "
                f"lower data.split.test"
            )
    return shares.keep(before), shares.keep(after)


def official_tests(train: Shares, test_rows: np.ndarray, strata: np.ndarray, stream: Stream) -> Shares:
    """Deal the official test samples to the clients, class by class, without overlap.

    The test samples of a class go to the clients in proportion to how many training samples of it
    they have. So a client's test set follows its label proportions, and the union of all test sets
    is the official test set (of the classes in some client's training data). When a class runs short,
    the clients with the smallest claims get none of it. A client without any test sample takes one, of
    a class it trains on, from the client with the most of them; if no client can spare one, that is a
    ``UserError``. No test sample belongs to two clients.
    """
    kinds = int(strata.max()) + 1
    clients = len(train)
    claims = np.bincount(train.owners * kinds + strata[train.indices], minlength=clients * kinds)
    claims = claims.reshape(clients, kinds)
    supply = np.bincount(strata[test_rows], minlength=kinds)
    quotas = np.stack([_deal(claims[:, k], int(supply[k]), stream) for k in range(kinds)], 1)
    _spare_one(quotas, claims)
    owners = np.full(len(strata), -1, np.int64)
    shuffled = test_rows[stream.permutation(len(test_rows))]
    for k in range(kinds):
        rows = shuffled[strata[shuffled] == k]
        dealt = np.repeat(np.arange(clients), quotas[:, k])
        owners[rows[: len(dealt)]] = dealt
    return Shares.from_owners(owners, clients)


def stratified(strata: np.ndarray, count: int, stream: Stream) -> np.ndarray:
    """``count`` rows, sorted, in proportion to the strata."""
    everything = Shares.from_owners(np.zeros(len(strata), np.int64), 1)
    _, taken = carve(everything, strata, np.array([min(count, len(strata))]), stream)
    return np.sort(taken.indices)


def _deal(claims: np.ndarray, supply: int, stream: Stream) -> np.ndarray:
    """``supply`` samples in proportion to the claims: largest remainders, ties at random."""
    total = int(claims.sum())
    if total == 0:
        return np.zeros_like(claims)
    quotas, remainders = np.divmod(claims * supply, total)
    order = stream.permutation(len(claims))
    first = order[np.argsort(-remainders[order], kind="stable")]
    quotas[first[: supply - int(quotas.sum())]] += 1
    return quotas


def _spare_one(quotas: np.ndarray, claims: np.ndarray) -> None:
    """Give every client without a test sample one of another client, changing ``quotas``."""
    totals = quotas.sum(1)
    for client in np.flatnonzero(totals == 0):
        for k in np.argsort(-claims[client], kind="stable"):
            spare = np.where(totals > 1, quotas[:, k], 0)
            donor = int(spare.argmax())
            if claims[client, k] and spare[donor]:
                quotas[donor, k] -= 1
                quotas[client, k] += 1
                totals[donor] -= 1
                totals[client] += 1
                break
        else:
            raise UserError(
                f"the official test split has no sample left of the classes client {client} trains on: "
                f"lower data.clients or set data.split to fractions such as {{train = 0.75, test = 0.25}}"
            )
