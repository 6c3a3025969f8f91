"""The nodes of a real federation: each describes its data, and the coordinator builds a federation from it.

Nodes send numbers of samples, class names, shapes and a digest; their data stay with them.
"""

import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields, replace
from typing import Any

import numpy as np

from fedtailor.errors import UserError, one_line

from .columns import Column
from .federation import Federation
from .preprocessing import Kind, Preprocess, Preprocessing, Summary, agree, check_missing, needed
from .samples import Samples
from .shares import Shares

COUNTS = ("train", "val", "test")
# Bounds of what one node can claim. The network is built for the shape, the vocabulary and the classes.
MAX_SAMPLES = 2**31
MAX_VALUES = 2**24  # of one input, or of one target
MAX_CLASSES = 10_000
MAX_COLUMNS = 100_000
MAX_VOCABULARY = 2**20
MAX_FACTS = 40  # of its environment
DTYPES = ("|u1", "<f4", "<i4", "<f8", "<i8")
NUMBER = re.compile(r"-?[0-9]{1,18}")


@dataclass(frozen=True)
class Entry:
    """A node's description of its data."""

    name: str
    train: int
    val: int
    test: int
    shape: tuple[int, ...]  # of an input
    dtype: str
    targets: tuple[int, ...]  # the shape of a target
    classes: tuple[str, ...]
    mean: tuple[float, ...]
    std: tuple[float, ...]
    vocabulary: int
    digest: str  # of its data, which must not change in a run
    environment: dict[str, Any]
    columns: tuple[tuple[str, tuple[str, ...]], ...] = ()  # the columns of a table: name and own categories
    summary: Summary | None = None  # of its training samples, if pre-processing needs it

    @classmethod
    def of(
        cls,
        name: str,
        federation: Federation,
        environment: Mapping[str, Any],
        preprocess: Preprocess | None = None,
    ) -> "Entry":
        """Describe a node: its name, its data (a federation of one client), its versions, and sums if needed."""
        samples, preprocess = federation.samples, preprocess or Preprocess()
        check_missing(samples, preprocess)
        counts = {part: len(getattr(federation, part).indices) for part in COUNTS}
        return cls(
            name=name,
            **counts,
            shape=tuple(samples.x.shape[1:]),
            dtype=samples.x.dtype.str,
            targets=tuple(samples.y.shape[1:]),
            classes=samples.classes,
            mean=samples.mean,
            std=samples.std,
            vocabulary=samples.vocabulary,
            digest=federation.digest(),
            environment=dict(environment),
            columns=tuple((column.name, column.categories) for column in samples.columns),
            summary=Summary.of(samples, federation.train[0], preprocess) if needed(samples, preprocess) else None,
        )

    def lacks(self, column: int) -> bool:
        """Whether all values of a column are missing in the training samples, so that its kind is unknown."""
        return self.summary is not None and self.summary.missing[column : column + 1] == (self.train,)

    @classmethod
    def read(cls, facts: Any) -> "Entry":
        """Read the description that a node sent; raise a ValueError, and nothing else, if it is none.

        Nothing is allocated by what it says before `federation_of`: all numbers have bounds here.
        """
        facts = {"columns": [], "summary": None, **(facts if isinstance(facts, dict) else {})}
        missing = sorted(field.name for field in fields(cls) if field.name not in facts)
        if missing:
            raise ValueError(f"its description lacks {missing[0]}")
        entry = cls(
            name=_text(facts, "name", 64),
            **{part: _count(facts, part, MAX_SAMPLES) for part in COUNTS},
            shape=_shape(facts, "shape"),
            dtype=_text(facts, "dtype", 8),
            targets=_shape(facts, "targets"),
            classes=_classes(facts),
            mean=_numbers(facts, "mean"),
            std=_numbers(facts, "std"),
            vocabulary=_count(facts, "vocabulary", MAX_VOCABULARY),
            digest=_text(facts, "digest", 64),
            environment=_environment(facts),
            columns=_columns(facts),
            summary=None if facts["summary"] is None else Summary.read(facts["summary"]),
        )
        entry._check()
        return entry

    @property
    def form(self) -> dict[str, Any]:
        """What all nodes of a federation must have in common, by name."""
        kind = {"targets": self.targets, "kind of y": "classes" if self.classes else "numbers"}
        statistics = {"mean": self.mean, "std": self.std}
        columns = {"columns": [name for name, _ in self.columns], "sums": bool(self.summary and self.summary.counts)}
        return {
            "shape": self.shape,
            "dtype": self.dtype,
            **kind,
            "vocabulary": self.vocabulary,
            **statistics,
            **columns,
            **{f"kind of column {name!r}": self._kind(j) for j, (name, _) in enumerate(self.columns)},
        }

    def _kind(self, column: int) -> str | None:
        """What a column holds; None if that is unknown, which fits everything."""
        return "words" if self.columns[column][1] else None if self.lacks(column) else "numbers"

    @property
    def undecided(self) -> bool:
        """Whether this node may fit two others that do not fit each other."""
        return any(self._kind(column) is None for column in range(len(self.columns)))

    def _check(self) -> None:
        """Raise a ValueError if the parts of the description do not fit together."""
        if self.train < 1:
            raise ValueError("it has no training samples")
        if len(self.classes) > self.train + self.val + self.test:
            raise ValueError(f"it has {len(self.classes)} classes, which are more than its samples")
        if self.dtype not in DTYPES:
            raise ValueError(f"its data have the unknown type {self.dtype}")
        if not self.name:
            raise ValueError("it has no name")
        if self.columns and self.shape != (len(self.columns),):
            raise ValueError("its columns do not fit its shape")
        if self.summary is not None:
            channels = self.dtype == "|u1" and len(self.shape) == 3
            features = self.shape[-1] if channels else math.prod(self.shape)
            values = self.train * (math.prod(self.shape[:-1]) if channels else 1)
            self.summary.check(features, [Column(*column) for column in self.columns], values)


def federation_of(entries: Sequence[Entry], preprocess: Preprocess | None = None) -> Federation:
    """Build the coordinator's view of the data: the number of samples of each client and their shape, but no samples.

    Parameters
    ----------
    entries : sequence of Entry
        The nodes in the order of client ids.
    preprocess : Preprocess, optional
        The settings of pre-processing; what the nodes agree on comes from their sums.

    Returns
    -------
    Federation
        A federation with empty arrays; the shares know the sizes, and list no sample.

    Raises
    ------
    UserError
        If the nodes' data do not fit together.
    """
    first = entries[0]
    for entry in entries[1:]:
        if part := misfit(entry, first):
            raise UserError(
                f"the nodes {first.name!r} and {entry.name!r} have data of different {part} "
                f"({first.form[part]} and {entry.form[part]}): make them alike"
            )
    samples = Samples(
        x=np.zeros((0, *first.shape), np.dtype(first.dtype)),
        y=np.zeros((0, *first.targets), np.int64 if first.classes else np.float32),
        classes=union([entry.classes for entry in entries]),
        official_test=np.zeros(0, bool),
        mean=first.mean,
        std=first.std,
        vocabulary=first.vocabulary,
        columns=agreed_columns(entries),
    )
    samples = replace(samples, preprocessing=_agreed(samples, entries, preprocess or Preprocess()))
    shares = []
    for part in COUNTS:
        offsets = np.concatenate([[0], np.cumsum([getattr(entry, part) for entry in entries])]).astype(np.int64)
        shares.append(Shares(np.zeros(0, np.int64), offsets))
    train, val, test = shares
    return Federation(samples, train, val, test, labels=tuple(entry.name for entry in entries))


def agreed_columns(entries: Sequence[Entry]) -> tuple[Column, ...]:
    """The columns of the nodes' tables with the categories of all of them."""
    made = []
    for j, (name, _) in enumerate(entries[0].columns):
        words = {entry.name: entry.columns[j][1] for entry in entries if entry.columns[j][1]}
        numbers = [entry.name for entry in entries if not entry.columns[j][1] and not entry.lacks(j)]
        if words and numbers:
            raise UserError(
                f"the nodes {numbers[0]!r} and {next(iter(words))!r} have numbers and words in column {name!r}: make "
                f"them alike"
            )
        made.append(Column(name, union(list(words.values())) if words else ()))
    return tuple(made)


def _agreed(samples: Samples, entries: Sequence[Entry], settings: Preprocess) -> Preprocessing | None:
    """The pre-processing that the nodes' sums give."""
    if not needed(samples, settings):
        return None
    kind, summaries = Kind.of(samples), []
    for entry in entries:
        own = tuple(Column(*column) for column in entry.columns)
        told = entry.summary is not None and len(entry.summary.counts) > 0
        if entry.summary is None or told != (settings.statistics == "federation"):
            raise UserError(f"the node {entry.name!r} sent other sums than pre-processing needs: update its fedtailor")
        summaries.append(entry.summary.recoded(own, samples.columns))
    return agree(kind, summaries, settings)


def misfit(entry: Entry, other: Entry) -> str | None:
    """The name of a property that two nodes should share and do not; None if they fit."""
    theirs = other.form
    return next((part for part, value in entry.form.items() if _differ(value, theirs[part])), None)


def _differ(value: Any, other: Any) -> bool:
    return value is not None and other is not None and bool(value != other)


def union(classes: Sequence[tuple[str, ...]]) -> tuple[str, ...]:
    """Return the classes of all nodes: in their own order if all have the same, otherwise sorted, numbers by value."""
    if all(names == classes[0] for names in classes):
        return classes[0]
    every = {name for names in classes for name in names}
    if all(NUMBER.fullmatch(name) for name in every):
        return tuple(sorted(every, key=lambda name: (int(name), name)))
    return tuple(sorted(every))


def _value(facts: Mapping[str, Any], key: str, fits: bool) -> Any:
    if not fits:
        raise ValueError(f"its description cannot be read: {key} is not what it must be, or too large")
    return facts[key]


def _count(facts: Mapping[str, Any], key: str, most: int) -> int:
    value = facts[key]
    return int(_value(facts, key, type(value) is int and 0 <= value <= most))


def _text(facts: Mapping[str, Any], key: str, most: int) -> str:
    value = facts[key]
    return str(_value(facts, key, isinstance(value, str) and len(value) <= most and value.isprintable()))


def _shape(facts: Mapping[str, Any], key: str) -> tuple[int, ...]:
    value = facts[key]
    fits = isinstance(value, list) and len(value) <= 8 and all(type(n) is int and 1 <= n <= MAX_VALUES for n in value)
    return tuple(_value(facts, key, fits and math.prod(value) <= MAX_VALUES))


def _numbers(facts: Mapping[str, Any], key: str) -> tuple[float, ...]:
    value = facts[key]
    fits = isinstance(value, list) and len(value) <= 4096
    fits = fits and all(type(n) in (int, float) and abs(n) <= 1e18 for n in value)
    return tuple(float(number) for number in _value(facts, key, fits))


def _classes(facts: Mapping[str, Any]) -> tuple[str, ...]:
    value = facts["classes"]
    fits = isinstance(value, list) and len(value) <= MAX_CLASSES
    fits = fits and all(isinstance(name, str) and len(name) <= 200 and name.isprintable() for name in value)
    return tuple(_value(facts, "classes", fits and len({*value}) == len(value)))


def _columns(facts: Mapping[str, Any]) -> tuple[tuple[str, tuple[str, ...]], ...]:
    value = facts["columns"]
    fits = isinstance(value, list) and len(value) <= MAX_COLUMNS
    fits = fits and all(isinstance(one, list) and len(one) == 2 and isinstance(one[0], str) for one in value)
    fits = fits and all(len(name) <= 200 and name.isprintable() for name, _ in value)
    return tuple((name, _classes({"classes": names})) for name, names in _value(facts, "columns", fits))


def _environment(facts: Mapping[str, Any]) -> dict[str, str]:
    value = facts["environment"]
    fits = isinstance(value, dict) and len(value) <= MAX_FACTS
    fits = fits and all(isinstance(fact, str | int | float | None) for fact in value.values())
    return {key[:40]: one_line(str(fact), 100) for key, fact in sorted(_value(facts, "environment", fits).items())}
