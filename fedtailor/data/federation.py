"""A federation's data: all samples once, and each client's train, validation and test share of them."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from hashlib import blake2b
from typing import Any

import numpy as np

from fedtailor.errors import UserError
from fedtailor.seeding import numpy_stream

from . import splits
from .partitions import OneLabel, Pool
from .preprocessing import Preprocess, Preprocessing, fit
from .samples import Column, Samples
from .settings import DataSettings, Fractions
from .shares import Shares
from .sources import load

VALIDATION = 0.15  # held out from train when a method needs validation data and the settings have none

__all__ = ["Federation", "Shares", "build", "one_client"]


@dataclass(frozen=True, eq=False)
class Federation:
    samples: Samples
    train: Shares
    val: Shares
    test: Shares
    labels: tuple[str, ...] = ()  # the clients' names, where they have some

    @property
    def clients(self) -> int:
        return len(self.train)

    @property
    def names(self) -> tuple[str, ...]:
        """The names of all clients, by id."""
        return tuple(self.name(client) for client in range(self.clients))

    def name(self, client: int) -> str:
        """The name of a client: "client-<id>" where none is known."""
        return self.labels[client] if self.labels else f"client-{client}"

    def digest(self) -> str:
        """A hex digest of all samples and their owners; a resumed run compares it."""
        hashed = blake2b(digest_size=16)
        for name, array in sorted(self.arrays().items()):
            hashed.update(f"{name} {array.dtype.str} {array.shape};".encode())
            hashed.update(np.ascontiguousarray(array).reshape(-1).view(np.uint8).data)
        hashed.update(repr(sorted(self.outline().items())).encode())
        return hashed.hexdigest()

    def placed(self, client: int, clients: int) -> "Federation":
        """This client's data, placed at index ``client`` of ``clients``; all others are empty."""
        counts = [np.where(np.arange(clients + 1) > client, shares.offsets[-1], 0) for shares in self._shares]
        train, val, test = (Shares(s.indices, n) for s, n in zip(self._shares, counts, strict=True))
        return Federation(self.samples, train, val, test)

    @property
    def _shares(self) -> tuple[Shares, Shares, Shares]:
        return self.train, self.val, self.test

    def arrays(self) -> dict[str, np.ndarray]:
        """The arrays by name; together with ``outline`` they rebuild the federation."""
        arrays = {"x": self.samples.x, "y": self.samples.y, "official_test": self.samples.official_test}
        if self.samples.groups is not None:
            arrays["groups"] = self.samples.groups
        for name, shares in (("train", self.train), ("val", self.val), ("test", self.test)):
            arrays[f"{name}_indices"] = shares.indices
            arrays[f"{name}_offsets"] = shares.offsets
        return arrays

    def outline(self) -> dict[str, Any]:
        """The small metadata, ready for JSON."""
        samples = self.samples
        outline: dict[str, Any] = {
            "classes": list(samples.classes),
            "group_names": list(samples.group_names),
            "mean": list(samples.mean),
            "std": list(samples.std),
            "vocabulary": samples.vocabulary,
        }
        if samples.columns:
            outline["columns"] = [[column.name, list(column.categories)] for column in samples.columns]
        if samples.preprocessing is not None:
            outline["preprocessing"] = samples.preprocessing.as_dict()
        if self.labels:
            outline["names"] = list(self.labels)
        return outline

    @classmethod
    def from_arrays(cls, arrays: Mapping[str, np.ndarray], outline: Mapping[str, Any]) -> "Federation":
        """Rebuild a federation from its ``arrays()`` and ``outline()``, without copying arrays."""
        prepared = outline.get("preprocessing")
        samples = Samples(
            x=arrays["x"],
            y=arrays["y"],
            classes=tuple(outline["classes"]),
            official_test=arrays["official_test"],
            groups=arrays.get("groups"),
            group_names=tuple(outline["group_names"]),
            mean=tuple(outline["mean"]),
            std=tuple(outline["std"]),
            vocabulary=int(outline["vocabulary"]),
            columns=tuple(Column(name, tuple(values)) for name, values in outline.get("columns", ())),
            preprocessing=None if prepared is None else Preprocessing.from_dict(prepared),
        )
        train, val, test = (
            Shares(arrays[f"{name}_indices"], arrays[f"{name}_offsets"]) for name in ("train", "val", "test")
        )
        return cls(samples, train, val, test, tuple(outline.get("names", ())))


def build(settings: DataSettings, seed: int, *, needs_validation: bool = False) -> Federation:
    """Load the samples, deal them to the clients and split every client's share.

    With ``needs_validation`` and no validation share in the settings, 15 % of every client's
    training samples (at least 1) become its validation set.
    """
    seed = seed if settings.seed is None else settings.seed
    samples = _limited(load(settings, seed), settings, seed)
    pooled = settings.split != "official" or settings.partition.pools_test
    if not pooled and not samples.official_test.any():
        raise UserError(
            f"source {settings.source!r} has no test split of its own: set data.split to fractions such as "
            f"{{train = 0.75, test = 0.25}}"
        )
    rows = np.arange(len(samples)) if pooled else np.flatnonzero(~samples.official_test)
    shares = _partition(samples, rows, settings, seed)
    train, val, test = _split(samples, shares, settings, seed)
    if needs_validation and not len(val.indices):
        train, val = _carve_validation(samples, train, VALIDATION, settings, seed)
    return prepared(Federation(samples, train, val, test), settings.preprocess)


def prepared(federation: Federation, settings: Preprocess) -> Federation:
    """The federation with the pre-processing of these settings, fitted to its training samples."""
    made = fit(federation.samples, federation.train, settings)
    if made is None:
        return federation
    return replace(federation, samples=replace(federation.samples, preprocessing=made))


def one_client(
    samples: Samples, rows: Mapping[str, np.ndarray], settings: DataSettings, seed: int, needs_validation: bool
) -> Federation:
    """The federation of a single client, with these rows for train, val and test.

    Without test rows, the settings' fractions split the rows; validation is split off as in a simulation.
    """
    seed = seed if settings.seed is None else settings.seed
    shares = {name: Shares(part.astype(np.int64), np.array([0, len(part)])) for name, part in rows.items()}
    train, val, test = shares["train"], shares["val"], shares["test"]
    fractions = Fractions() if settings.split == "official" else settings.split
    if not len(test.indices):
        stream = numpy_stream(seed, "partition", "split")
        share = 0.0 if len(val.indices) else fractions.val
        train, split_off, test = splits.by_fractions(samples, train, share, fractions.test, fractions.by, stream)
        val = val if len(val.indices) else split_off
    if needs_validation and not len(val.indices):
        train, val = _carve_validation(samples, train, settings.val or VALIDATION, settings, seed)
    return Federation(samples, train, val, test)


def _limited(samples: Samples, settings: DataSettings, seed: int) -> Samples:
    if settings.samples is None or settings.samples >= len(samples):
        return samples
    strata = samples.strata * 2 + samples.official_test
    return samples.take(splits.stratified(strata, settings.samples, numpy_stream(seed, "partition", "samples")))


def _partition(samples: Samples, rows: np.ndarray, settings: DataSettings, seed: int) -> Shares:
    partition = settings.partition
    if partition.needs_classes and not samples.classes:
        raise UserError(
            f"partition {partition.kind} needs class labels, which source {settings.source!r} does not have: "
            f"set data.partition to 'iid'"
        )
    groups = None if samples.groups is None else samples.groups[rows]
    pool = Pool(samples.labels[rows], samples.classes, groups, samples.group_names)
    stream = numpy_stream(seed, "partition", partition.kind)
    return partition.deal(pool, settings.clients, stream).within(rows)


def _split(samples: Samples, shares: Shares, settings: DataSettings, seed: int) -> tuple[Shares, Shares, Shares]:
    stream = numpy_stream(seed, "partition", "split")
    strata = samples.strata
    if isinstance(settings.partition, OneLabel):
        # This partition sets the numbers of training and test samples itself.
        take = np.full(len(shares), settings.partition.test)
        train, test = splits.carve(shares, strata, take, stream)
        share = settings.val if settings.split == "official" else settings.split.val
        return *_carve_validation(samples, train, share, settings, seed), test
    if settings.split == "official":
        test_rows = np.flatnonzero(samples.official_test)
        test = splits.official_tests(shares, test_rows, strata, stream)
        return *_carve_validation(samples, shares, settings.val, settings, seed), test
    fractions = settings.split
    return splits.by_fractions(samples, shares, fractions.val, fractions.test, fractions.by, stream)


def _carve_validation(
    samples: Samples, train: Shares, share: float, settings: DataSettings, seed: int
) -> tuple[Shares, Shares]:
    by = None if settings.split == "official" else settings.split.by
    return splits.split_off(samples, train, share, train, by, numpy_stream(seed, "partition", "validation"))
