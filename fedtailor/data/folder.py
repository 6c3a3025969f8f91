"""A user's own data.

Layout (a), already split per client; use it with ``partition = "given"``::

    my-data/anna.npz            one file per client, or
    my-data/bert/data.npz       one sub folder per client with data.npz or data.csv

Layout (b), to be split by a partition::

    my-data/data.npz            or
    my-data/data.csv

A ``.npz`` file holds ``x`` and ``y``, and may hold

* ``x_test``, ``y_test``: samples of an official test split;
* ``x_val``, ``y_val``: validation samples for a node of a federation; a simulation splits off its own and adds these
  to ``x``;
* ``mean``, ``std``: per channel of images, for values scaled to 0..1 (default 0.5 and 0.25);
* ``client`` (and ``client_test``): the name or number of each sample's client, in layout (b);
* ``classes``: names of the classes 0, 1, ... when ``y`` holds numbers;
* ``columns``: names of the columns of a table, in which NaN is a missing value; ``categories``: for each of them, its
  categories as a list in JSON, whose places the column holds, or ``[]`` for numbers;
* ``vocabulary``: the number of token ids; with it, an integer ``x`` holds token ids, 0 = padding.

``x`` is uint8 ``(N, H, W)`` or ``(N, H, W, C)`` for images; other numbers are features, used as
float32. ``y`` holds class names or whole numbers for classification, floats for regression.

A ``.csv`` file has one sample per row: the features, then the label in the last column, with or
without a header. Nothing is ever unpickled.
"""

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from fedtailor.errors import UserError

from .columns import Column
from .samples import Samples

if TYPE_CHECKING:
    from .federation import Federation

FILES = ("data.npz", "data.csv")
HINT = "see the layouts in the documentation of source 'folder'"


@dataclass(frozen=True, eq=False)
class Table:
    """The content of one file: x, y, which rows are test rows, and the client of each row."""

    path: Path
    x: np.ndarray
    y: np.ndarray
    test: np.ndarray  # bool (N,)
    clients: np.ndarray | None = None  # str (N,)
    classes: tuple[str, ...] = ()
    vocabulary: int = 0
    val: int = 0  # number of validation rows; they follow the training rows
    mean: tuple[float, ...] = ()
    std: tuple[float, ...] = ()
    columns: tuple[Column, ...] = ()

    @property
    def held_out(self) -> np.ndarray:
        """bool (N,): whether a row is for validation."""
        marks = np.zeros(len(self.y), bool)
        learned = len(self.y) - int(self.test.sum())
        marks[learned - self.val : learned] = True
        return marks


def folder(place: Path | None) -> Samples:
    """Read the samples of a user's folder in one of the layouts above."""
    if place is None:
        raise UserError("source 'folder' needs the path of your data: set data.folder")
    place = place.expanduser()
    if not place.is_dir():
        raise UserError(f"data.folder {place} is not a folder: set it to the folder with your data")
    whole = next((place / name for name in FILES if (place / name).is_file()), None)
    if whole:
        table = _read(whole)
        return _samples([table], None if table.clients is None else table.clients)
    tables = {name: _read(path) for name, path in _client_files(place)}
    if not tables:
        raise UserError(f"{place} holds neither data.npz nor data.csv nor files of clients: {HINT}")
    _alike(list(tables.values()))
    clients = np.repeat(list(tables), [len(table.y) for table in tables.values()])
    return _samples(list(tables.values()), clients)


def one_client(place: Path) -> tuple[Samples, dict[str, np.ndarray]]:
    """Read the samples of one client: a file, or a folder with data.npz or data.csv.

    Also returns the rows for train, val and test in the file; val and test are empty if the file has none.
    """
    place = place.expanduser()
    if place.is_dir():
        found = next((place / name for name in FILES if (place / name).is_file()), None)
        if found is None:
            raise UserError(f"{place} holds neither data.npz nor data.csv: {HINT}")
        place = found
    if not place.is_file() or place.suffix not in (".npz", ".csv"):
        raise UserError(f"{place} is neither a folder nor a .npz or .csv file: {HINT}")
    return _client_of(_read(place))


def client_of_arrays(arrays: Mapping[str, Any], where: str) -> tuple[Samples, dict[str, np.ndarray]]:
    """Like `one_client`, from arrays named as in a file; ``where`` names them in errors."""
    named = {name: np.asarray(array) for name, array in arrays.items()}
    return _client_of(_checked(Path(where), lambda path: _table(path, named)))


def _client_of(table: Table) -> tuple[Samples, dict[str, np.ndarray]]:
    learned = np.flatnonzero(~table.test)
    rows = {"train": learned[: len(learned) - table.val], "val": learned[len(learned) - table.val :]}
    return _samples([table], None), {**rows, "test": np.flatnonzero(table.test)}


def _client_files(place: Path) -> list[tuple[str, Path]]:
    found = []
    for entry in sorted(place.iterdir()):
        if entry.is_file() and entry.suffix == ".npz":
            found.append((entry.stem, entry))
        elif entry.is_dir():
            found += [(entry.name, entry / name) for name in FILES if (entry / name).is_file()][:1]
    names = [name for name, _ in found]
    twice = next((name for name in names if names.count(name) > 1), None)
    if twice:
        raise UserError(f"{place} has a file and a folder for client {twice!r}: keep one of them")
    return found


def _alike(tables: Sequence[Table]) -> None:
    first = tables[0]
    for table in tables[1:]:
        if (table.x.shape[1:], table.x.dtype) != (first.x.shape[1:], first.x.dtype):
            raise UserError(
                f"{table.path} has samples of shape {table.x.shape[1:]} and type {table.x.dtype} but "
                f"{first.path} of shape {first.x.shape[1:]} and type {first.x.dtype}: make them alike"
            )
        if (table.y.dtype.kind == "f") != (first.y.dtype.kind == "f") or table.y.shape[1:] != first.y.shape[1:]:
            raise UserError(f"{table.path} and {first.path} have different kinds of y: make them alike")
        if (table.classes, table.vocabulary) != (first.classes, first.vocabulary):
            raise UserError(f"{table.path} and {first.path} have different classes or vocabulary: make them the same")
        if table.columns != first.columns:
            raise UserError(f"{table.path} and {first.path} have different columns or categories: make them the same")


def _samples(tables: Sequence[Table], clients: np.ndarray | None) -> Samples:
    x = np.concatenate([table.x for table in tables])
    y, classes = _targets(tables)
    groups: np.ndarray | None = None
    names: tuple[str, ...] = ()
    if clients is not None:
        unique, groups = np.unique(clients, return_inverse=True)
        names = tuple(str(name) for name in unique)
    samples = Samples(
        x=x,
        y=y,
        classes=classes,
        official_test=np.concatenate([table.test for table in tables]),
        official_val=np.concatenate([table.held_out for table in tables]) if any(t.val for t in tables) else None,
        groups=None if groups is None else groups.astype(np.int64),
        group_names=names,
        vocabulary=tables[0].vocabulary,
        columns=tables[0].columns,
    )
    if x.dtype != np.uint8:
        return samples
    # Constants: image statistics would leak information between clients and from test images.
    channels = x.shape[-1]
    first = tables[0]
    if any((table.mean, table.std) != (first.mean, first.std) for table in tables):
        raise UserError(f"{first.path} and others have different mean or std: make them the same")
    return replace(samples, mean=first.mean or (0.5,) * channels, std=first.std or (0.25,) * channels)


def _targets(tables: Sequence[Table]) -> tuple[np.ndarray, tuple[str, ...]]:
    y = np.concatenate([table.y for table in tables])
    if y.dtype.kind == "f":
        return y.astype(np.float32), ()
    named = tables[0].classes
    if named and y.dtype.kind != "U":
        if y.min() < 0 or y.max() >= len(named):
            raise UserError(
                f"{tables[0].path} names {len(named)} classes but has labels {y.min()}..{y.max()}: name all classes"
            )
        return y.astype(np.int64), named
    unique, numbers = np.unique(y, return_inverse=True)
    return numbers.astype(np.int64), tuple(str(name) for name in unique)


def _read(path: Path) -> Table:
    return _checked(path, _read_csv if path.suffix == ".csv" else _read_npz)


def _checked(path: Path, read: Callable[[Path], Table]) -> Table:
    try:
        table = read(path)
    except UserError:
        raise
    except Exception as problem:  # a file of unknown origin may raise anything
        detail = " ".join(str(problem).split()) or type(problem).__name__
        raise UserError(f"{path} cannot be read ({detail}): {HINT}") from problem
    if not len(table.y):
        raise UserError(f"{path} holds no samples: add some or remove the file")
    if table.x.dtype.kind == "f" and np.isinf(table.x).any():
        row = int(np.argwhere(np.isinf(table.x))[0][0])
        raise UserError(f"{path} has a value in sample {row} of x that is infinite: correct or remove it")
    if table.y.dtype.kind == "f" and not np.isfinite(table.y).all():
        raise UserError(f"{path} has a value in y that is not finite: correct or remove it")
    return table


def _read_npz(path: Path) -> Table:
    with path.open("rb") as file, np.load(file, allow_pickle=False) as archive:
        return _table(path, {name: archive[name] for name in archive.files})


def _table(path: Path, arrays: Mapping[str, np.ndarray]) -> Table:
    for name in ("x", "y"):
        if name not in arrays:
            raise UserError(f"{path} has no array {name!r}: {HINT}")
    parts = [("x", "y", "client")]
    for more in ("val", "test"):
        if f"x_{more}" in arrays or f"y_{more}" in arrays:
            parts.append((f"x_{more}", f"y_{more}", f"client_{more}"))
    for x, y, client in parts:
        for other in [y] + ([client] if "client" in arrays else []):
            if x not in arrays or other not in arrays or len(arrays[x]) != len(arrays[other]):
                raise UserError(f"{path} needs arrays {x!r} and {other!r} of the same length: {HINT}")
    vocabulary = int(arrays["vocabulary"]) if "vocabulary" in arrays else 0
    clients = None
    if "client" in arrays:
        clients = np.concatenate([arrays[client].astype(str) for _, _, client in parts])
    inputs = _inputs(path, np.concatenate([arrays[x] for x, _, _ in parts]), vocabulary)
    tests = len(arrays["x_test"]) if "x_test" in arrays else 0
    return Table(
        path,
        x=inputs,
        y=_labels(path, np.concatenate([arrays[y] for _, y, _ in parts])),
        test=np.arange(len(inputs)) >= len(inputs) - tests,
        clients=clients,
        classes=tuple(str(name) for name in arrays.get("classes", ())),
        vocabulary=vocabulary,
        val=len(arrays["x_val"]) if "x_val" in arrays else 0,
        columns=_columns(path, arrays, inputs),
        mean=_channels(path, "mean", arrays, inputs),
        std=_channels(path, "std", arrays, inputs),
    )


def _columns(path: Path, arrays: Mapping[str, np.ndarray], x: np.ndarray) -> tuple[Column, ...]:
    """The columns of a table; the codes in a column must be places in its categories."""
    names = [str(name) for name in np.atleast_1d(arrays.get("columns", ()))]
    categories = [json.loads(str(one)) for one in np.atleast_1d(arrays.get("categories", ["[]"] * len(names)))]
    if len(names) != len(categories) or (names and x.shape[1:] != (len(names),)):
        raise UserError(f"{path} needs a name, and a list of categories, for each of its columns: {HINT}")
    for j, known in enumerate(categories):
        codes = x[~np.isnan(x[:, j]), j] if known else np.zeros(0)
        if not np.isin(codes, np.arange(len(known))).all():
            raise UserError(f"{path} has codes in column {names[j]!r} that are not 0..{len(known) - 1}: {HINT}")
    return tuple(Column(name, tuple(str(one) for one in known)) for name, known in zip(names, categories, strict=True))


def _channels(path: Path, name: str, arrays: Mapping[str, np.ndarray], x: np.ndarray) -> tuple[float, ...]:
    values = tuple(float(value) for value in np.atleast_1d(arrays.get(name, ())))
    if values and (len(values) != x.shape[-1] or not np.isfinite(values).all() or (name == "std" and min(values) <= 0)):
        raise UserError(f"{path} needs one finite number for each channel in {name!r}, std above 0: {HINT}")
    return values


def _inputs(path: Path, x: np.ndarray, vocabulary: int) -> np.ndarray:
    if x.dtype.kind not in "buif" or x.ndim < 2:
        raise UserError(f"{path} has an x of type {x.dtype} and shape {x.shape}: {HINT}")
    if vocabulary:
        if x.dtype.kind not in "ui" or x.ndim != 2 or x.min(initial=0) < 0 or x.max(initial=0) >= vocabulary:
            raise UserError(f"{path} must have token ids 0..{vocabulary - 1} in a two-dimensional x: {HINT}")
        return x.astype(np.int32)
    if x.dtype == np.uint8 and x.ndim in (3, 4):
        return x[..., None] if x.ndim == 3 else x
    return x.astype(np.float32)


def _labels(path: Path, y: np.ndarray) -> np.ndarray:
    if y.dtype.kind == "f":
        return y.astype(np.float32)
    if y.dtype.kind not in "buiU" or y.ndim != 1:
        raise UserError(f"{path} has a y of type {y.dtype} and shape {y.shape}: {HINT}")
    return y if y.dtype.kind == "U" else y.astype(np.int64)


def _read_csv(path: Path) -> Table:
    import csv

    with path.open(encoding="utf-8-sig", newline="") as file:
        rows = [row for row in csv.reader(file) if row]
    first = 0 if rows and _numbers(rows[0][:-1]) is not None else 1
    features = []
    for number, row in enumerate(rows[first:], start=first + 1):
        values = _numbers(row[:-1])
        if values is None or len(row) != len(rows[0]) or len(row) < 2:
            raise UserError(f"{path} row {number} must have {max(1, len(rows[0]) - 1)} numbers and a label: {HINT}")
        features.append(values)
    labels = [row[-1].strip() for row in rows[first:]]
    return Table(path, np.array(features, np.float32), _csv_labels(labels), np.zeros(len(labels), bool))


def _csv_labels(labels: list[str]) -> np.ndarray:
    """Read whole numbers as classes, other numbers as regression targets, anything else as class names."""
    try:
        return np.array([int(label) for label in labels], np.int64)
    except ValueError:
        numbers = _numbers(labels)
    return np.array(labels) if numbers is None else np.array(numbers, np.float32)


def _numbers(cells: list[str]) -> list[float] | None:
    try:
        return [float(cell) for cell in cells]
    except ValueError:
        return None


def write_clients(federation: "Federation", target: Path) -> list[Path]:
    """Write one file per client for `one_client`, with the same samples, order and split."""
    samples, written = federation.samples, []
    target.mkdir(parents=True, exist_ok=True)
    facts: dict[str, Any] = {"vocabulary": samples.vocabulary} if samples.vocabulary else {}
    facts |= {"classes": np.array(samples.classes)} if samples.classes else {}
    facts |= {"mean": samples.mean, "std": samples.std} if samples.mean else {}
    if samples.columns:
        facts["columns"] = np.array([column.name for column in samples.columns])
        facts["categories"] = np.array([json.dumps(column.categories) for column in samples.columns])
    width = len(str(federation.clients - 1))
    for client in range(federation.clients):
        arrays = dict(facts)
        for part, ending in (("train", ""), ("val", "_val"), ("test", "_test")):
            rows = getattr(federation, part)[client]
            if len(rows) or not ending:
                arrays |= {f"x{ending}": samples.x[rows], f"y{ending}": samples.y[rows]}
        written.append(target / f"client-{client:0{width}}.npz")
        np.savez_compressed(written[-1], **arrays)
    return written
