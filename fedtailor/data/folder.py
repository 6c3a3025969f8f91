"""A user's own data in a folder.

A file or sub folder for each client is the federation::

    my-data/anna.npz, my-data/bert.npz             arrays
    my-data/anna.csv, my-data/bert.csv             tables with a header
    my-data/anna/data.npz                          or data.csv
    my-data/anna/train.csv, val.csv, test.csv      the client's own split
    my-data/anna/cat/1.png                         images in folders of classes, or
    my-data/anna/train/cat/1.png                   the same with the client's own split

All samples together are divided by a column of clients (``data.client``, or ``client`` in an ``.npz`` file) or, without
one, dealt to clients by a partition::

    my-data/data.npz, my-data/data.csv             or another .csv or .npz file, alone
    my-data/cat/1.png, my-data/dog/1.png           images in folders of classes

An ``.npz`` file holds ``x`` and ``y``, and may hold

* ``x_test``, ``y_test`` and ``x_val``, ``y_val``: the client's own split;
* ``mean``, ``std``: per channel of images, for values scaled to 0..1 (default 0.5 and 0.25);
* ``client``, ``group``, ``time`` (and ``client_test``, ...): of each sample; see `Roles`;
* ``classes``: names of the classes 0, 1, ... when ``y`` holds numbers;
* ``columns``, ``categories``: names of a table's columns, and of each column's categories as a JSON list;
* ``vocabulary``: the number of token ids; with it, an integer ``x`` holds token ids, 0 = padding.

``x`` is uint8 ``(N, H, W)`` or ``(N, H, W, C)`` for images; other numbers are features, used as float32, and NaN in a
table is a missing value. ``y`` holds class names or whole numbers for classification, floats for regression.

A ``.csv`` file has one sample per row, separated by commas, semicolons or tabs. The label is the last column unless
``data.label`` names it. A column with texts holds categories, an empty cell, ``NA`` or ``?`` a missing value.
"""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from fedtailor.errors import UserError

from .readers import PARTS, Cells, Roles, Table, joined, read_csv, read_images, read_npz, table_of_arrays, typed
from .readers.arrays import arrays_of
from .readers.images import has_images
from .readers.table import HINT
from .samples import Samples

if TYPE_CHECKING:
    from .federation import Federation

FILES = (".npz", ".csv")
OTHER = (  # files that hold data that FedTailor does not read
    *(
        ".xls",
        ".xlsx",
        ".ods",
        ".tsv",
        ".parquet",
        ".feather",
        ".json",
        ".jsonl",
        ".npy",
        ".pt",
        ".pth",
        ".pkl",
        ".mat",
    ),
    *(".h5", ".hdf5", ".sav", ".dta", ".arff", ".dcm", ".nii", ".tif", ".tiff", ".bmp", ".gif", ".zip", ".gz", ".tar"),
)
Place = tuple[Path, str]  # a file or a folder of images, and the part that its samples belong to


def folder(place: Path | None, roles: Roles = Roles()) -> Samples:
    """Read the samples of a user's folder in one of the layouts above."""
    if place is None:
        raise UserError("source 'folder' needs the path of your data: set data.folder")
    place = place.expanduser()
    whole = place if place.is_file() and place.suffix.lower() in FILES else None
    if whole is None and not place.is_dir():
        raise UserError(f"data.folder {place} is not a folder: set it to the folder with your data")
    try:
        clients = {} if whole else _clients(place)
        if whole is None and set(clients) == {"data"}:
            ((whole, _),) = clients["data"]
        if whole is None and len(clients) == 1 and roles.client:
            ((whole, _), *_) = next(iter(clients.values()))
        if whole is None and not clients and any(entry.is_dir() for entry in place.iterdir()):
            whole = place
    except OSError as error:
        raise UserError(f"{error.filename} cannot be read: {error.strerror}") from None
    if whole is not None:
        (table,) = _read([(whole, "train")], roles)
        return joined([table], table.clients)
    if not clients:
        raise UserError(f"{place} holds neither .npz nor .csv files nor images in folders: {HINT}")
    _check_clients(place, clients, roles)
    tables = _read([part for parts in clients.values() for part in parts], roles)
    names = [name for name, parts in clients.items() for _ in parts]
    return joined(tables, np.repeat(names, [len(table.y) for table in tables]))


def one_client(place: Path, roles: Roles = Roles()) -> tuple[Samples, dict[str, np.ndarray]]:
    """Read the samples of one client: a file, or the sub folder of a client in the layouts above.

    Also returns the rows for train, val and test; val and test are empty if the client brings none.
    """
    place = place.expanduser()
    if place.is_dir():
        parts = _parts(place)
        if not parts:
            raise UserError(f"{place} holds neither data.npz nor data.csv nor images in folders: {HINT}")
    elif place.is_file() and place.suffix.lower() in FILES:
        parts = [(place, "train")]
    else:
        raise UserError(f"{place} is neither a folder nor a .npz or .csv file: {HINT}")
    return _client_of(_read(parts, roles))


def client_of_arrays(arrays: Mapping[str, Any], where: str) -> tuple[Samples, dict[str, np.ndarray]]:
    """Like `one_client`, from arrays named as in a file; ``where`` names them in errors."""
    try:
        named = {name: np.asarray(array) for name, array in arrays.items()}
    except Exception as problem:  # an object of unknown origin may raise anything
        raise UserError(f"{where} gives no arrays ({' '.join(str(problem).split())}): {HINT}") from None
    return _client_of([table_of_arrays(where, named)])


def write_clients(federation: "Federation", target: Path) -> list[Path]:
    """Write one file per client for `one_client`, with the same samples, order and split."""
    samples, written = federation.samples, []
    target.mkdir(parents=True, exist_ok=True)
    facts: dict[str, Any] = {"vocabulary": samples.vocabulary} if samples.vocabulary else {}
    facts |= {"classes": np.array(samples.classes)} if samples.classes else {}
    facts |= {"mean": samples.mean, "std": samples.std} if samples.mean else {}
    facts |= arrays_of(samples.columns)
    for client, name in enumerate(_file_names(federation)):
        arrays = dict(facts)
        for part, ending in zip(PARTS, ("", "_val", "_test"), strict=True):
            rows = getattr(federation, part)[client]
            if len(rows) or not ending:
                arrays |= {f"x{ending}": samples.x[rows], f"y{ending}": samples.y[rows]}
        written.append(target / f"{name}.npz")
        np.savez_compressed(written[-1], **arrays)
    return written


def _file_names(federation: "Federation") -> list[str]:
    if not federation.labels:
        width = len(str(federation.everyone - 1))
        return [f"client-{client:0{width}}" for client in range(federation.everyone)]
    unfit = next((name for name in federation.labels if name[:1] in ("", ".") or set(name) & set('/\\:*?"<>|')), None)
    if unfit is not None:
        raise UserError(f"the client {unfit!r} cannot be the name of a file: give it another name")
    return list(federation.labels)


def _client_of(tables: Sequence[Table]) -> tuple[Samples, dict[str, np.ndarray]]:
    samples, part = joined(tables), np.concatenate([table.part for table in tables])
    return samples, {name: np.flatnonzero(part == place) for place, name in enumerate(PARTS)}


def _clients(place: Path) -> dict[str, list[Place]]:
    """The places of each client's samples, by its name; none if the folders are classes of images."""
    found: dict[str, list[Place]] = {}
    classes: list[Path] = []
    for entry in sorted(place.iterdir()):
        if entry.name[0] in "._":
            continue
        if entry.is_dir() and has_images(entry):
            classes.append(entry)
            continue
        parts = _parts(entry) if entry.is_dir() else [(entry, "train")] if entry.suffix.lower() in FILES else []
        name = entry.name if entry.is_dir() else entry.stem
        if entry.is_file() and entry.suffix.lower() in OTHER:
            raise UserError(f"{entry} is not read here: save it as .csv or .npz, or move it out of {place}")
        if entry.is_dir() and not parts:
            raise UserError(f"{entry} holds neither data.npz nor data.csv nor images in folders: add them or remove it")
        if parts and name in found:
            raise UserError(f"{place} has two files or folders for client {name!r}: keep one of them")
        if parts:
            found[name] = parts
    if classes and found:
        raise UserError(f"{place} holds images in {classes[0].name} and data in {next(iter(found))}: keep one of them")
    return found


def _parts(place: Path) -> list[Place]:
    """The places of a client's samples in its own folder."""
    files = {entry.name.lower(): entry for entry in place.iterdir() if entry.is_file()}
    for name in ("data.npz", "data.csv"):
        if name in files:
            return [(files[name], "train")]
    parts = [(files[f"{part}.csv"], part) for part in PARTS if f"{part}.csv" in files]
    if parts:
        if parts[0][1] != "train":
            raise UserError(f"{place} has {parts[0][0].name} but no train.csv: add it")
        return parts
    inner = {entry.name: entry for entry in place.iterdir() if entry.is_dir() and entry.name[0] not in "._"}
    if "train" in inner and not has_images(inner["train"]):
        return [(inner[part], part) for part in PARTS if part in inner]
    return [(place, "train")] if any(has_images(entry) for entry in inner.values()) else []


def _check_clients(place: Path, clients: Mapping[str, Sequence[Place]], roles: Roles) -> None:
    if "data" in clients:
        raise UserError(f"{place} holds {clients['data'][0][0].name} and files of clients: keep one of them")
    if roles.client:
        raise UserError(
            f"data.client = {roles.client!r}, but {place} has {len(clients)} files or folders, one for each client: "
            f"leave data.client out, or keep one table"
        )
    odd = next((name for name in clients if not name.isprintable() or len(name) > 64), None)
    if odd is not None:
        raise UserError(f"{place}: {odd!r} is no name of a client: use at most 64 printable letters")


def _read(places: Sequence[Place], roles: Roles) -> list[Table]:
    """Read all tables in the same way."""
    kinds = {path.suffix.lower() if path.is_file() else "" for path, _ in places}
    if len(kinds) > 1:
        first = places[0][0]
        other = next(path for path, _ in places if path.suffix.lower() != first.suffix.lower())
        raise UserError(f"{first} and {other} are files of different kinds: make them alike")
    if kinds == {".csv"}:
        cells: list[Cells] = [read_csv(path, part) for path, part in places]
        return typed(cells, roles)
    if roles.named:
        raise UserError(
            f"data.{roles.named} is about the columns of CSV files, and {places[0][0]} is none: leave it out"
        )
    return [read_npz(path) for path, _ in places] if kinds == {".npz"} else read_images(places)
