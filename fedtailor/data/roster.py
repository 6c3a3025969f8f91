"""The nodes of a real federation: each describes its data, and the coordinator builds a federation from it.

Nodes send numbers of samples, class names, shapes and a digest; their data stay with them.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from fedtailor.errors import UserError

from .columns import Column
from .federation import Federation
from .preprocessing import Kind, Preprocess, Preprocessing, Summary, agree, check_missing, needed
from .samples import Samples
from .shares import Shares

COUNTS = ("train", "val", "test")


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
        """Whether all values of a column are missing in the training samples, so that nobody knows what it holds."""
        return self.summary is not None and self.summary.missing[column : column + 1] == (self.train,)

    @classmethod
    def read(cls, facts: Any) -> "Entry":
        """Validate the description that a node sent."""
        try:
            entry = cls(
                name=_text(facts["name"], 64),
                **{part: _count(facts[part]) for part in COUNTS},
                shape=tuple(_count(n, 1 << 24) for n in _list(facts["shape"], 8)),
                dtype=_text(facts["dtype"], 8),
                targets=tuple(_count(n, 1 << 24) for n in _list(facts["targets"], 8)),
                classes=tuple(_text(name, 200) for name in _list(facts["classes"], 100_000)),
                mean=tuple(_number(n) for n in _list(facts["mean"], 4096)),
                std=tuple(_number(n) for n in _list(facts["std"], 4096)),
                vocabulary=_count(facts["vocabulary"]),
                digest=_text(facts["digest"], 64),
                environment={_text(k, 40): _text(str(v), 100) for k, v in dict(facts["environment"]).items()},
                columns=tuple(
                    (_text(column, 200), tuple(_text(one, 200) for one in _list(categories, 100_000)))
                    for column, categories in _list(facts.get("columns", []), 1 << 20)
                ),
                summary=None if facts.get("summary") is None else Summary.read(facts["summary"]),
            )
        except (KeyError, TypeError, ValueError, AttributeError) as error:
            raise ValueError(f"its description cannot be read ({error})") from None
        if entry.train < 1:
            raise ValueError("it has no training samples")
        return entry


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
        A federation with empty arrays.

    Raises
    ------
    UserError
        If the nodes' data do not fit together.
    """
    first = entries[0]
    for entry in entries[1:]:
        for part in ("shape", "dtype", "targets", "vocabulary", "mean", "std"):
            ours, theirs = getattr(first, part), getattr(entry, part)
            if ours != theirs:
                raise UserError(
                    f"the nodes {first.name!r} and {entry.name!r} have data of different {part} "
                    f"({ours} and {theirs}): make them alike"
                )
        if [name for name, _ in first.columns] != [name for name, _ in entry.columns]:
            raise UserError(
                f"the nodes {first.name!r} and {entry.name!r} have tables of different columns: make them alike"
            )
        if bool(first.classes) != bool(entry.classes):
            raise UserError(f"the nodes {first.name!r} and {entry.name!r} have different kinds of y: make them alike")
    try:
        x = np.zeros((0, *first.shape), np.dtype(first.dtype))
        y = np.zeros((0, *first.targets), np.int64 if first.classes else np.float32)
    except (TypeError, ValueError) as error:
        raise UserError(f"the node {first.name!r} has data of an unknown type: {error}") from None
    samples = Samples(
        x=x,
        y=y,
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
        shares.append(Shares(np.arange(offsets[-1]), offsets))
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
        try:
            if entry.summary is None:
                raise ValueError("it sent no sums")
            entry.summary.check(kind.features, own, settings)
        except ValueError as error:
            raise UserError(f"the data of node {entry.name!r} cannot be pre-processed: {error}") from None
        summaries.append(entry.summary.recoded(own, samples.columns))
    return agree(kind, summaries, settings)


def union(classes: Sequence[tuple[str, ...]]) -> tuple[str, ...]:
    """Return the classes of all nodes: in their own order if all have the same, otherwise sorted, numbers by value."""
    if all(names == classes[0] for names in classes):
        return classes[0]
    every = {name for names in classes for name in names}
    if all(name.lstrip("-").isdigit() for name in every):
        return tuple(sorted(every, key=int))
    return tuple(sorted(every))


def _count(value: Any, most: int = 1 << 40) -> int:
    if type(value) is not int or not 0 <= value <= most:
        raise ValueError(f"{value!r} is not a valid count")
    return value


def _number(value: Any) -> float:
    if not isinstance(value, int | float) or not abs(value) < float("inf"):
        raise ValueError(f"{value!r} is not a finite number")
    return float(value)


def _text(value: Any, most: int) -> str:
    if not isinstance(value, str) or len(value) > most or not value.isprintable():
        raise ValueError("a text is too long, not printable or not a text")
    return value


def _list(value: Any, most: int) -> list[Any]:
    if not isinstance(value, list) or len(value) > most:
        raise ValueError("a list is too long or not a list")
    return value
