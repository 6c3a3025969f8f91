"""Named arrays, in memory or in an ``.npz`` file; nothing is ever unpickled."""

import json
from collections.abc import Mapping
from pathlib import Path

import numpy as np

from fedtailor.data.samples import Column
from fedtailor.errors import UserError

from .table import HINT, PARTS, Table, checked

PER_SAMPLE = ("y", "client", "group", "time")


def read_npz(path: Path) -> Table:
    """Read the samples of an ``.npz`` file; anything that is wrong with it is one sentence."""
    return table_of_arrays(str(path), read_arrays(path))


def read_arrays(path: Path) -> dict[str, np.ndarray]:
    """Read the arrays of an ``.npz`` file."""
    try:
        with path.open("rb") as file, np.load(file, allow_pickle=False) as archive:
            return {name: archive[name] for name in archive.files}
    except Exception as problem:  # a file of unknown origin may raise anything
        detail = " ".join(str(problem).split()) or type(problem).__name__
        raise UserError(f"{path} cannot be read ({detail}): {HINT}") from problem


def table_of_arrays(where: str, arrays: Mapping[str, np.ndarray]) -> Table:
    """The table of arrays that are named as in a file: x, y, x_test, y_test, classes and so on."""
    for name in ("x", "y"):
        if name not in arrays:
            raise UserError(f"{where} has no array {name!r}: {HINT}")
    parts = [part for part in PARTS if part == "train" or {f"x_{part}", f"y_{part}"} & set(arrays)]
    given = [name for name in PER_SAMPLE if name in arrays]
    for part in parts:
        inputs = _named("x", part)
        for other in (_named(name, part) for name in given):
            if inputs not in arrays or other not in arrays or arrays[inputs].shape[:1] != arrays[other].shape[:1]:
                raise UserError(f"{where} needs arrays {inputs!r} and {other!r} of the same length: {HINT}")
    vocabulary = int(arrays["vocabulary"]) if "vocabulary" in arrays else 0
    try:
        together = {name: np.concatenate([arrays[_named(name, part)] for part in parts]) for name in ("x", *given)}
    except ValueError:
        raise UserError(f"{where} has train, val and test samples of different shapes: make them alike") from None
    sizes = [len(arrays[_named("x", part)]) for part in parts]
    x = inputs_of(where, together["x"], vocabulary)
    return checked(
        Table(
            where,
            x=x,
            y=_labels(where, together["y"]),
            part=np.repeat([PARTS.index(part) for part in parts], sizes).astype(np.int8),
            clients=together["client"].astype(str) if "client" in together else None,
            units=together["group"].astype(str) if "group" in together else None,
            times=_times(where, together["time"]) if "time" in together else None,
            classes=tuple(str(name) for name in arrays.get("classes", ())),
            vocabulary=vocabulary,
            mean=_channels(where, "mean", arrays, x),
            std=_channels(where, "std", arrays, x),
            columns=columns_of(where, arrays, x),
        )
    )


def arrays_of(columns: tuple[Column, ...]) -> dict[str, np.ndarray]:
    """Columns as arrays of a file."""
    if not columns:
        return {}
    return {
        "columns": np.array([column.name for column in columns]),
        "categories": np.array([json.dumps(column.categories) for column in columns]),
    }


def _named(name: str, part: str) -> str:
    return name if part == "train" else f"{name}_{part}"


def columns_of(where: str, arrays: Mapping[str, np.ndarray], x: np.ndarray) -> tuple[Column, ...]:
    """The columns that the arrays name; none if they do not."""
    if "columns" not in arrays:
        return ()
    try:
        names = [str(name) for name in arrays["columns"]]
        texts = [str(text) for text in arrays.get("categories", ["[]"] * len(names))]
        columns = tuple(Column(n, tuple(map(str, json.loads(text)))) for n, text in zip(names, texts, strict=True))
    except (ValueError, TypeError):
        raise UserError(f"{where} has 'columns' and 'categories' that do not fit together: {HINT}") from None
    if x.dtype != np.float32 or x.shape[1:] != (len(columns),):
        raise UserError(f"{where} names {len(columns)} columns for an x of shape {x.shape}: name each column once")
    for place, column in enumerate(columns):
        codes = x[:, place][~np.isnan(x[:, place])]
        if column.categories and not np.isin(codes, np.arange(len(column.categories))).all():
            raise UserError(f"{where} has a code in column {column.name!r} that none of its categories has: name all")
    return columns


def _channels(where: str, name: str, arrays: Mapping[str, np.ndarray], x: np.ndarray) -> tuple[float, ...]:
    values = tuple(float(value) for value in np.atleast_1d(arrays.get(name, ())))
    if values and (len(values) != x.shape[-1] or not np.isfinite(values).all() or (name == "std" and min(values) <= 0)):
        raise UserError(f"{where} needs one finite number for each channel in {name!r}, std above 0: {HINT}")
    return values


def inputs_of(where: str, x: np.ndarray, vocabulary: int) -> np.ndarray:
    """The array ``x`` as samples: images as they are, token ids as int32, other numbers as float32."""
    if x.dtype.kind not in "buif" or x.ndim < 2:
        raise UserError(
            f"{where} has an x of type {x.dtype} and shape {x.shape}: it must hold numbers, with a row per sample"
        )
    if vocabulary:
        if x.dtype.kind not in "ui" or x.ndim != 2 or x.min(initial=0) < 0 or x.max(initial=0) >= vocabulary:
            raise UserError(f"{where} must have token ids 0..{vocabulary - 1} in a two-dimensional x: {HINT}")
        return x.astype(np.int32)
    if x.dtype == np.uint8 and x.ndim in (3, 4):
        return x[..., None] if x.ndim == 3 else x
    with np.errstate(over="ignore"):  # what becomes infinite is refused
        return x.astype(np.float32)


def _labels(where: str, y: np.ndarray) -> np.ndarray:
    several = y.ndim == 2 and y.shape[1] > 1
    if several and (y.dtype.kind in "bui" or (y.dtype.kind == "f" and len(y) and np.isin(y, [0, 1]).all())):
        raise UserError(
            f"{where} has {y.shape[1]} labels per sample: multi-label data are not supported, y holds one class per "
            f"sample (for one-hot labels, take y.argmax(1))"
        )
    if y.dtype.kind == "f":
        with np.errstate(over="ignore"):
            return y.astype(np.float32)
    if y.dtype.kind not in "buiU" or y.ndim != 1:
        raise UserError(f"{where} has a y of type {y.dtype} and shape {y.shape}: it holds a class or number per sample")
    return y if y.dtype.kind == "U" else y.astype(np.int64)


def _times(where: str, times: np.ndarray) -> np.ndarray:
    if times.dtype.kind == "M":
        times = times.astype("datetime64[s]").astype(np.int64)
    if times.dtype.kind not in "buif" or times.ndim != 1 or not np.isfinite(times).all():
        raise UserError(f"{where} needs one finite number or date per sample in 'time': {HINT}")
    return times.astype(np.float64)
