"""A federation's data: all samples once, and each client's train, validation and test share of them."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from decimal import Decimal
from hashlib import blake2b
from typing import Any, Literal

import numpy as np
from pydantic import ValidationError

from fedtailor.errors import UserError
from fedtailor.seeding import numpy_stream

from . import splits
from .partitions import Given, OneLabel, Pool, Resampled
from .preprocessing import Preprocess, Preprocessing, fit
from .readers import Roles, joined
from .samples import Column, Samples
from .settings import DataSettings, Fractions
from .shares import Shares
from .sources import load

WITHOUT_VALIDATION = (
    "partition resampled gives a sample to several clients, so that a client's validation sample would be another's "
    "training sample: choose another data.partition, or a method and settings without validation"
)
VALIDATION = 0.15  # held out from train when a method needs validation data and the settings have none

__all__ = ["Federation", "Shares", "build", "one_client"]


@dataclass(frozen=True, eq=False)
class Federation:
    """The clients' data: all samples once, and the rows of each client.

    `build` makes one from settings, `Federation.from_clients` from Python objects.

    Attributes
    ----------
    samples, train, val, test : Samples, Shares
        All samples, and the samples of each client by part.
    labels, new : tuple of str, int
        The clients' own names, and how many of the last clients are new ones, which never take part.

    Examples
    --------
    >>> federation = fedtailor.Federation.from_clients({"anna": ([[0.5], [1.5]] * 4, [0, 1] * 4)})
    >>> federation.names, len(federation.samples.y)
    (('anna',), 8)
    """

    samples: Samples
    train: Shares
    val: Shares
    test: Shares
    labels: tuple[str, ...] = ()
    new: int = 0

    @classmethod
    def from_clients(
        cls,
        clients: Mapping[str, Any],
        *,
        split: Mapping[str, Any] | None = None,
        validation: bool = False,
        seed: int = 0,
        label: str | None = None,
        group: str | None = None,
        time: str | None = None,
        categorical: Sequence[str] = (),
        ignore: Sequence[str] = (),
        target: Literal["class", "number"] | None = None,
        classes: Sequence[str] = (),
    ) -> "Federation":
        """The federation of these clients.

        Parameters
        ----------
        clients : mapping of str to object
            By the client's name: a pair ``(x, y)`` of arrays, tensors or lists; a data set with a length whose items
            are such pairs (``torch.utils.data.Dataset``); a pandas frame; a Hugging Face data set; or a mapping of
            arrays named as in an ``.npz`` file. A mapping with ``train`` and, if the client brings them, ``val`` and
            ``test`` holds one of these for each part.
        split : mapping, optional
            Shares of each client's samples if the clients bring no test samples, as in ``data.split``; by default
            ``{"train": 0.75, "test": 0.25}``.
        validation : bool
            Hold out 15 % of every client's training samples for validation, if there are no validation samples.
        seed : int
            The seed of the split.
        label, group, time, categorical, ignore
            Columns of frames, as in the settings of the same names in ``[data]``. The label is the last by default.
        target : {"class", "number"}, optional
            What whole numbers in the labels are; by default integers are classes.
        classes : sequence of str
            The names of the classes 0, 1, ... of labels that are whole numbers.

        Returns
        -------
        Federation
            For ``fedtailor.run(..., federation=...)``, which pre-processes it as ``[data.preprocess]`` says.

        Raises
        ------
        UserError
            If the data cannot be read, or if the clients' data do not fit together.

        Examples
        --------
        >>> import numpy as np
        >>> x, y = np.random.RandomState(0).random_sample((40, 3)), np.arange(40) % 2
        >>> federation = Federation.from_clients({"anna": (x, y), "bert": (x[:20], y[:20])})
        >>> federation.names, federation.train.sizes.tolist(), federation.test.sizes.tolist()
        (('anna', 'bert'), [30, 15], [10, 5])
        """
        from .objects import tables_of

        roles = Roles(label, None, group, time, _texts(categorical), _texts(ignore), target)
        names, tables = tables_of(clients, roles, _texts(classes))
        owners = np.repeat(names, [len(table.y) for table in tables])
        samples = joined(tables, owners, list(dict.fromkeys(names)))
        try:
            settings = DataSettings.model_validate({"source": "python", "split": split})
        except ValidationError:
            raise UserError(f"split = {split!r}: give shares such as {{'train': 0.75, 'test': 0.25}}") from None
        return _divided(samples, resolve(settings, samples), seed, validation)

    @property
    def clients(self) -> int:
        """The number of clients that take part; new clients have the ids above."""
        return len(self.train) - self.new

    @property
    def everyone(self) -> int:
        """The number of all clients, new ones included."""
        return len(self.train)

    @property
    def newcomers(self) -> range:
        """The ids of the new clients."""
        return range(self.clients, len(self.train))

    @property
    def names(self) -> tuple[str, ...]:
        """The names of the clients that take part, by id."""
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
        outline = {key: value for key, value in self.outline().items() if key != "names"}
        hashed.update(repr(sorted(outline.items())).encode())
        return hashed.hexdigest()

    def placed(self, client: int, clients: int) -> "Federation":
        """This client's data, placed at index ``client`` of ``clients``; all others are empty."""
        counts = [np.where(np.arange(clients + 1) > client, shares.offsets[-1], 0) for shares in self._shares]
        train, val, test = (Shares(s.indices, n) for s, n in zip(self._shares, counts, strict=True))
        labels = tuple(self.labels[0] if k == client else f"client-{k}" for k in range(clients)) if self.labels else ()
        return Federation(self.samples, train, val, test, labels)

    def holding_out(self, share: float, seed: int) -> "Federation":
        """The federation in which a share of the clients, rounded up, is new; the seed draws them.

        Clients that take part keep their order, and so do the new ones, which come last.
        """
        count = math.ceil(Decimal(repr(float(share))) * self.everyone)
        if not count:
            return self
        if count >= self.everyone:
            raise UserError(f"evaluation.new_clients = {share:g} leaves none of {self.everyone} clients to take part")
        drawn = set(numpy_stream(seed, "new clients").permutation(self.everyone)[:count].tolist())
        order = [k for k in range(self.everyone) if k not in drawn] + sorted(drawn)
        train, val, test = (shares.reordered(order) for shares in self._shares)
        labels = tuple(self.labels[k] for k in order) if self.labels else ()
        return Federation(self.samples, train, val, test, labels, count)

    @property
    def _shares(self) -> tuple[Shares, Shares, Shares]:
        return self.train, self.val, self.test

    def arrays(self) -> dict[str, np.ndarray]:
        """The arrays by name; together with ``outline`` they rebuild the federation."""
        arrays = {"x": self.samples.x, "y": self.samples.y, "official_test": self.samples.official_test}
        optional = {"groups": self.samples.groups, "official_val": self.samples.official_val}
        arrays |= {name: array for name, array in optional.items() if array is not None}
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
        if self.new:
            outline["new"] = self.new
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
            official_val=arrays.get("official_val"),
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
        return cls(samples, train, val, test, tuple(outline.get("names", ())), outline.get("new", 0))


def build(settings: DataSettings, seed: int, *, needs_validation: bool = False, new_clients: float = 0.0) -> Federation:
    """Load the samples, deal them to the clients, split every client's share, and fit the pre-processing.

    With ``needs_validation`` and no validation share in the settings, 15 % of every client's
    training samples (at least 1) become its validation set. The share ``new_clients`` of the clients takes no part:
    the pre-processing is fitted to the others.
    """
    seed = seed if settings.seed is None else settings.seed
    samples = load(settings, seed)
    settings = resolve(settings, samples)
    divided = _divided(_limited(samples, settings, seed), settings, seed, needs_validation)
    return prepared(divided.holding_out(new_clients, seed), settings.preprocess)


def _divided(samples: Samples, settings: DataSettings, seed: int, needs_validation: bool) -> Federation:
    """Deal samples to the clients and split every client's share, with resolved settings."""
    assert settings.partition is not None
    pooled = (settings.split != "official" or settings.partition.pools_test) and not settings.partition.leaves_test
    if not pooled and not samples.official_test.any():
        raise UserError(
            f"source {settings.source!r} has no test split of its own: set data.split to fractions such as "
            f"{{train = 0.75, test = 0.25}}"
            if not settings.partition.leaves_test
            else f"partition {settings.partition.kind} needs a source with a test split of its own, which "
            f"{settings.source!r} does not have: choose another data.partition"
        )
    rows = np.arange(len(samples)) if pooled else np.flatnonzero(~samples.official_test)
    shares = _partition(samples, rows, settings, seed)
    train, val, test = _split(samples, shares, settings, seed)
    if needs_validation and not len(val.indices):
        if isinstance(settings.partition, Resampled):
            raise UserError(WITHOUT_VALIDATION)
        train, val = _carve_validation(samples, train, VALIDATION, settings, seed)
    return Federation(samples, train, val, test, settings.partition.names(samples.groups, samples.group_names, shares))


def resolve(settings: DataSettings, samples: Samples) -> DataSettings:
    """The settings with all that these samples and the defaults decide: partition, number of clients and split.

    Samples of a folder with one file per client, of a table with a column of clients, or of a source that consists
    of clients are not dealt out anew unless the settings name a partition.

    Raises
    ------
    UserError
        If the settings contradict the data.
    """
    divided = settings.may_be_divided and samples.groups is not None
    if settings.partition is None and divided:
        settings = settings.model_copy(update={"partition": Given()})
    if not isinstance(settings.partition, Given) or samples.groups is None:
        return settings.with_defaults()
    clients = len(samples.group_names)
    if clients == 1 and settings.source == "folder":
        raise UserError(
            f"{_place(settings)} has a single client, {samples.group_names[0]!r}: add the others' files, name a column "
            f"of clients with data.client, or set data.partition to deal the samples to clients"
        )
    if settings.clients not in (None, clients):
        raise UserError(
            f"data.clients = {settings.clients}, but {_place(settings)} comes divided among {clients} clients "
            f"({listed(samples.group_names)}): leave data.clients out, or set data.partition to deal the samples anew"
        )
    split = settings.split if settings.split is not None or not divided else _own_split(samples)
    return settings.model_copy(update={"clients": clients, "split": split}).with_defaults()


def dealt_anew(settings: DataSettings, samples: Samples) -> str | None:
    """A sentence if the samples of clients are dealt to other clients, as the settings say."""
    if not settings.may_be_divided or not samples.group_names or isinstance(settings.partition, Given):
        return None
    kind = "" if settings.partition is None else f" = {settings.partition.kind!r}"
    return (
        f"{_place(settings)} comes divided among {len(samples.group_names)} clients ({listed(samples.group_names)}), "
        f"whose samples data.partition{kind} deals to {settings.clients} others: leave it out to keep the clients"
    )


def listed(names: Sequence[str], most: int = 3) -> str:
    """A few of these names, for an error."""
    return ", ".join(names[:most]) + (", ..." if len(names) > most else "")


def _own_split(samples: Samples) -> Literal["official"] | None:
    """ "official" if every client brings test samples, None if no client does."""
    assert samples.groups is not None
    tested = set(samples.groups[samples.official_test].tolist())
    if len(tested) == len(samples.group_names):
        return "official"
    lacking = next(name for client, name in enumerate(samples.group_names) if client not in tested)
    if tested:
        raise UserError(
            f"client {samples.group_names[min(tested)]!r} brings test samples and client {lacking!r} does not: add "
            f"test samples to every client, or set data.split to fractions such as {{train = 0.75, test = 0.25}}"
        )
    if samples.official_val is not None and samples.official_val.any():
        raise UserError(
            f"client {lacking!r} brings validation samples but no test samples: add test samples, or set data.split "
            f"to fractions such as {{train = 0.6, val = 0.15, test = 0.25}}"
        )
    return None


def _place(settings: DataSettings) -> str:
    return str(settings.folder) if settings.source == "folder" else f"source {settings.source!r}"


def prepared(federation: Federation, settings: Preprocess) -> Federation:
    """The federation with the pre-processing of these settings, fitted to the training samples of its clients."""
    made = fit(federation.samples, federation.train, settings, federation.clients)
    if made is None:
        return federation
    return replace(federation, samples=replace(federation.samples, preprocessing=made))


def _texts(names: Sequence[str]) -> tuple[str, ...]:
    return (names,) if isinstance(names, str) else tuple(names)


def one_client(
    samples: Samples, rows: Mapping[str, np.ndarray], settings: DataSettings, seed: int, needs_validation: bool
) -> Federation:
    """The federation of a single client, with these rows for train, val and test.

    Without test rows, the settings' fractions split the rows; validation is split off as in a simulation.
    """
    seed = seed if settings.seed is None else settings.seed
    shares = {name: Shares(part.astype(np.int64), np.array([0, len(part)])) for name, part in rows.items()}
    train, val, test = shares["train"], shares["val"], shares["test"]
    fractions = settings.split if isinstance(settings.split, Fractions) else Fractions()
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
    assert partition is not None
    assert settings.clients is not None
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
        share = settings.split.val if isinstance(settings.split, Fractions) else settings.val
        return *_carve_validation(samples, train, share, settings, seed), test
    if isinstance(settings.partition, Resampled):
        if (settings.split.val if isinstance(settings.split, Fractions) else settings.val) > 0:
            raise UserError(WITHOUT_VALIDATION)
        test = settings.partition.tests(shares, samples.labels, np.flatnonzero(samples.official_test), stream)
        return shares, Shares.empty(len(shares)), test
    if isinstance(settings.split, Fractions):
        fractions = settings.split
        return splits.by_fractions(samples, shares, fractions.val, fractions.test, fractions.by, stream)
    if isinstance(settings.partition, Given):
        return _brought(samples, shares, settings, seed)
    test = splits.official_tests(shares, np.flatnonzero(samples.official_test), strata, stream)
    return *_carve_validation(samples, shares, settings.val, settings, seed), test


def _brought(samples: Samples, shares: Shares, settings: DataSettings, seed: int) -> tuple[Shares, Shares, Shares]:
    """Every client's own test samples, and its own validation samples if there are any."""
    assert samples.groups is not None
    test = Shares.from_owners(np.where(samples.official_test, samples.groups, -1), len(shares))
    if not test.sizes.all():
        lacking = samples.group_names[int(test.sizes.argmin())]
        raise UserError(
            f"client {lacking!r} brings no test samples: add some, or set data.split to fractions such as "
            f"{{train = 0.75, test = 0.25}}"
        )
    if samples.official_val is None or not samples.official_val.any():
        return *_carve_validation(samples, shares, settings.val, settings, seed), test
    held_out = samples.official_val[shares.indices]
    return shares.keep(~held_out), shares.keep(held_out), test


def _carve_validation(
    samples: Samples, train: Shares, share: float, settings: DataSettings, seed: int
) -> tuple[Shares, Shares]:
    by = settings.split.by if isinstance(settings.split, Fractions) else None
    return splits.split_off(samples, train, share, train, by, numpy_stream(seed, "partition", "validation"))
