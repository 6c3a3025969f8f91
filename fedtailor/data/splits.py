"""Splits: which of a client's samples are for training, validation and testing."""

import numpy as np

from fedtailor.errors import UserError

from .partitions import Stream
from .shares import Shares


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
    shares: Shares, strata: np.ndarray, val: float, test: float, stream: Stream
) -> tuple[Shares, Shares, Shares]:
    """(train, val, test) of every client; a client with a single sample trains on it."""
    sizes = shares.sizes
    for_test = share_of(sizes, test, leave=1)
    rest, tested = carve(shares, strata, for_test, stream)
    # The fraction is of the whole share, which is not what is left now.
    for_val = np.minimum(share_of(sizes, val, leave=1), np.maximum(0, rest.sizes - 1))
    train, validated = carve(rest, strata, for_val, stream)
    return train, validated, tested


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
