"""What every reader returns, and how the tables of all clients become one set of samples."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Literal

import numpy as np

from fedtailor.data.samples import Column, Samples
from fedtailor.errors import UserError

PARTS = ("train", "val", "test")
HINT = "see 'Bring your own data' in docs/data.md"
Target = Literal["class", "number"] | None


@dataclass(frozen=True)
class Roles:
    """What the columns of a table are for, by name; all others are inputs."""

    label: str | None = None  # the last column by default
    client: str | None = None  # the client of each row
    group: str | None = None  # a patient, say, whose rows stay on one side of a split
    time: str | None = None  # the moment of a row, for a split by time
    categorical: tuple[str, ...] = ()  # columns of numbers that are codes of categories
    ignore: tuple[str, ...] = ()  # columns to leave out
    target: Target = None  # whether whole numbers in the label are classes or numbers to predict

    @property
    def named(self) -> str:
        """The first setting that has a value; empty if none has."""
        return next((name for name, value in vars(self).items() if value), "")


@dataclass(frozen=True, eq=False)
class Table:
    """The content of one file, or of one object in Python."""

    where: str  # names the file or object in errors
    x: np.ndarray
    y: np.ndarray  # int64 or text: classes; float32: targets
    part: np.ndarray  # int8 (N,): the place in PARTS
    clients: np.ndarray | None = None  # text (N,)
    units: np.ndarray | None = None  # text (N,)
    times: np.ndarray | None = None  # float64 (N,)
    classes: tuple[str, ...] = ()
    vocabulary: int = 0
    mean: tuple[float, ...] = ()
    std: tuple[float, ...] = ()
    columns: tuple[Column, ...] = ()

    def rows(self, part: str) -> np.ndarray:
        """The rows of a part."""
        return np.flatnonzero(self.part == PARTS.index(part))


def joined(tables: Sequence[Table], clients: np.ndarray | None = None, order: Sequence[str] | None = None) -> Samples:
    """The samples of tables that are alike; ``clients`` names the client of each row, ``order`` is theirs."""
    _check_alike(tables)
    first = tables[0]
    x, part = np.concatenate([table.x for table in tables]), np.concatenate([table.part for table in tables])
    y, classes = _targets(tables)
    groups: np.ndarray | None = None
    names: tuple[str, ...] = ()
    if clients is not None:
        names = tuple(in_order(set(clients.tolist())) if order is None else order)
        place = {name: index for index, name in enumerate(names)}
        groups = np.array([place[name] for name in clients.tolist()], np.int64)
    samples = Samples(
        x=x,
        y=y,
        classes=classes,
        official_test=part == PARTS.index("test"),
        official_val=(part == PARTS.index("val")) if (part == PARTS.index("val")).any() else None,
        groups=groups,
        group_names=names,
        vocabulary=first.vocabulary,
        columns=first.columns,
        units=_units(tables),
        times=_times(tables),
    )
    if x.dtype != np.uint8:
        return samples
    # Constants: image statistics would leak information between clients and from test images.
    channels = x.shape[-1]
    return replace(samples, mean=first.mean or (0.5,) * channels, std=first.std or (0.25,) * channels)


def in_order(names: "set[str] | Sequence[str]") -> list[str]:
    """Sorted; names that are all whole numbers by value."""
    if all(name.lstrip("-").isdecimal() for name in names):
        return sorted(names, key=lambda name: (int(name), name))
    return sorted(names)


def checked(table: Table) -> Table:
    """The table, if a network can learn from it."""
    if not len(table.y):
        raise UserError(f"{table.where} holds no samples: add some or remove it")
    if len(table.x) != len(table.y):
        raise UserError(f"{table.where} has {len(table.x)} samples and {len(table.y)} labels: make both alike")
    if table.x.dtype.kind == "f":
        wrong = ~np.isfinite(table.x) if table.x.ndim != 2 else np.isinf(table.x)  # NaN is a missing value of a table
        if wrong.any():
            row = int(np.argwhere(wrong)[0][0])
            raise UserError(f"{table.where} has a value in sample {row} of x that is not finite: correct or remove it")
    if table.y.dtype.kind == "f" and not np.isfinite(table.y).all():
        raise UserError(f"{table.where} has a value in y that is not finite: correct or remove it")
    return table


def _check_alike(tables: Sequence[Table]) -> None:
    first = tables[0]
    for table in tables[1:]:
        both = f"{table.where} and {first.where}"
        if (table.x.shape[1:], table.x.dtype) != (first.x.shape[1:], first.x.dtype):
            raise UserError(
                f"{table.where} has samples of shape {table.x.shape[1:]} and type {table.x.dtype} but "
                f"{first.where} of shape {first.x.shape[1:]} and type {first.x.dtype}: make them alike"
            )
        if (table.y.dtype.kind == "f") != (first.y.dtype.kind == "f") or table.y.shape[1:] != first.y.shape[1:]:
            raise UserError(f"{both} have different kinds of y: make them alike")
        if (table.classes, table.vocabulary, table.columns) != (first.classes, first.vocabulary, first.columns):
            raise UserError(f"{both} have different classes, columns or vocabulary: make them the same")
        if (table.mean, table.std) != (first.mean, first.std):
            raise UserError(f"{both} have different mean or std: make them the same")
        if (table.units is None, table.times is None) != (first.units is None, first.times is None):
            raise UserError(f"{both} do not both have groups or times: add them to both or to none")


def _targets(tables: Sequence[Table]) -> tuple[np.ndarray, tuple[str, ...]]:
    y = np.concatenate([table.y for table in tables])
    if y.dtype.kind == "f":
        return y.astype(np.float32), ()
    named = tables[0].classes
    if named and y.dtype.kind != "U":
        if y.min() < 0 or y.max() >= len(named):
            raise UserError(
                f"{tables[0].where} names {len(named)} classes but has labels {y.min()}..{y.max()}: name all classes"
            )
        return y.astype(np.int64), named
    unique, numbers = np.unique(y, return_inverse=True)
    return numbers.astype(np.int64), tuple(str(name) for name in unique)


def _units(tables: Sequence[Table]) -> np.ndarray | None:
    given = [table.units for table in tables if table.units is not None]
    return np.unique(np.concatenate(given), return_inverse=True)[1].astype(np.int64) if given else None


def _times(tables: Sequence[Table]) -> np.ndarray | None:
    given = [table.times for table in tables if table.times is not None]
    return np.repeat(np.concatenate(given)[:, None], 2, axis=1) if given else None
