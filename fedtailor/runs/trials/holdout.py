"""The data of trials: a federation without its test samples, in which validation samples take their place."""

from dataclasses import replace

import numpy as np

from fedtailor.data import Federation
from fedtailor.data.federation import VALIDATION, prepared
from fedtailor.data.preprocessing import Preprocess
from fedtailor.data.shares import Shares
from fedtailor.data.splits import By, split_off
from fedtailor.errors import UserError
from fedtailor.seeding import numpy_stream


def held_out(
    federation: Federation, seed: int, preprocess: Preprocess, by: By = None, needs_validation: bool = False
) -> Federation:
    """The federation on which trials run: test samples are removed, and validation samples are tested on instead.

    Samples for training and validation are pooled and divided anew with the seed, so that several seeds average over
    several divisions; samples that are divided by time, and validation samples that clients bring, stay as they are.
    The pre-processing is fitted again, to the samples that are left for training.

    Parameters
    ----------
    federation
        The experiment's federation. Nothing of its test samples is looked at; new clients, which take no part, are
        removed.
    seed
        The seed of the division.
    preprocess
        The pre-processing of the experiment.
    by
        How samples are divided: ``data.split.by``.
    needs_validation
        Whether a method of the search needs validation data of its own: they are taken from what is left for training,
        because a reward and a choice must not use the same samples.
    """
    samples, federation = federation.samples, _of_participants(federation)
    fixed = by == "time" or samples.times is not None or samples.official_val is not None
    if fixed and len(federation.val.indices):
        train, tested = federation.train, federation.val
    else:
        pool = _together(federation)
        share = len(federation.val.indices) / max(1, len(pool.indices)) or VALIDATION
        train, tested = split_off(samples, pool, share, pool, by, numpy_stream(seed, "trials", "validation"))
    val = Shares.empty(len(train))
    if needs_validation:
        train, val = split_off(samples, train, VALIDATION, train, by, numpy_stream(seed, "trials", "rewards"))
    if not len(tested.indices):
        raise UserError(
            "there are no validation samples, and no client has two training samples to spare one: give clients more "
            "samples, or a share for validation with data.split, as in {train = 0.6, val = 0.15, test = 0.25}"
        )
    rows = np.sort(np.concatenate([part.indices for part in (train, val, tested)]))
    left, right, other = (_renumbered(part, rows) for part in (train, val, tested))
    kept = replace(samples.take(rows), preprocessing=None)
    return prepared(Federation(kept, left, right, other, federation.labels), preprocess)


def _of_participants(federation: Federation) -> Federation:
    """The federation without its new clients."""
    clients = range(federation.clients)
    train, val, test = (part.reordered(clients) for part in (federation.train, federation.val, federation.test))
    return Federation(federation.samples, train, val, test, federation.labels[: federation.clients])


def _together(federation: Federation) -> Shares:
    """Every client's samples for training and validation, in the order of the samples."""
    owners = np.full(len(federation.samples), -1, np.int64)
    for part in (federation.train, federation.val):
        owners[part.indices] = part.owners
    return Shares.from_owners(owners, federation.clients)


def _renumbered(shares: Shares, rows: np.ndarray) -> Shares:
    return Shares(np.searchsorted(rows, shares.indices), shares.offsets)
