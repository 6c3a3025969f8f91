"""Samples without labels, to predict from: read in the form of the samples that a model was trained on."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from fedtailor.data.columns import Column
from fedtailor.errors import UserError

from .arrays import columns_of, inputs_of, read_arrays
from .cells import Cells, missing, read_csv, value, word
from .images import IMAGES, open_image, pixels

KINDS = "a .csv or .npz file, an image, or a folder of images"
UNKNOWN = -1.0  # the code of a category that the model does not know


@dataclass(frozen=True)
class Form:
    """The form of raw samples.

    Attributes
    ----------
    kind : dtype
        ``uint8`` for images, ``float32`` for numbers, ``int32`` for token ids.
    shape : tuple of int
        The shape of one sample.
    columns : tuple of Column
        The columns of a table whose columns have names.
    vocabulary : int
        The number of token ids; 0 if samples are no text.
    gaps : bool
        Whether values may be missing.
    """

    kind: np.dtype[np.generic]
    shape: tuple[int, ...]
    columns: tuple[Column, ...] = ()
    vocabulary: int = 0
    gaps: bool = False

    def __str__(self) -> str:
        if self.columns:
            return f"rows with the columns {', '.join(column.name for column in self.columns[:5])}" + (
                ", ..." if len(self.columns) > 5 else ""
            )
        if self.kind == np.uint8:
            height, width, channels = self.shape
            shape = f"(n, {height}, {width}, {channels})"
            return f"{height} x {width} pixels with {channels} channels (uint8 of shape {shape})"
        if self.vocabulary:
            return f"{self.shape[0]} token ids below {self.vocabulary}"
        return f"{self.shape[0]} numbers" if len(self.shape) == 1 else f"shape {self.shape}"


@dataclass(frozen=True, eq=False)
class Unlabelled:
    """Raw samples, what each is called, and what a user should know about how they were read."""

    x: np.ndarray
    names: tuple[str, ...]  # the number of a row, from 1, or the name of a file
    notes: tuple[str, ...] = ()


def read_inputs(place: Path, form: Form) -> Unlabelled:
    """Read samples of this form; anything that is wrong with them is one sentence.

    Columns are found by their names, and others are left out. A ``.npz`` file holds ``x``. Labels are not read.
    """
    place = place.expanduser()
    if not place.exists():
        raise UserError(f"{place} does not exist: name {KINDS}")
    suffix = place.suffix.lower()
    if place.is_dir() or suffix in IMAGES:
        found = _images(place, form)
    elif suffix == ".csv":
        found = _cells(read_csv(place), form)
    elif suffix == ".npz":
        found = _arrays(place, form)
    else:
        raise UserError(f"{place} is not read here: name {KINDS}")
    return _checked(str(place), found, form)


def _checked(where: str, found: Unlabelled, form: Form) -> Unlabelled:
    x = found.x
    if not len(x):
        raise UserError(f"{where} holds no samples: add some")
    if x.shape[1:] != form.shape or (x.dtype == np.uint8) != (form.kind == np.uint8):
        shown = f"shape {x.shape[1:]} and type {x.dtype}"
        raise UserError(f"{where} has samples of {shown}, but the model takes {form}: make them alike")
    if x.dtype.kind == "f":
        if np.isinf(x).any():
            row = found.names[int(np.argwhere(np.isinf(x))[0][0])]
            raise UserError(f"{where} has a value in sample {row} that is not finite: correct or remove it")
        if not form.gaps and np.isnan(x).any():
            place = np.argwhere(np.isnan(x))[0]
            column = f" in {form.columns[place[1]].name!r}" if form.columns else ""
            raise UserError(
                f"{where} has no value in sample {found.names[int(place[0])]}{column}, and the model was trained "
                "without missing values: add it or remove the sample"
            )
    return Unlabelled(np.ascontiguousarray(x.astype(form.kind, copy=False)), found.names, found.notes)


def _cells(cells: Cells, form: Form) -> Unlabelled:
    """The rows of a table."""
    if form.kind == np.uint8 or len(form.shape) != 1:
        raise UserError(f"{cells.where} is a table, but the model takes {form}: name another file")
    count = len(next(iter(cells.columns.values())))
    notes: tuple[str, ...] = ()
    if form.columns:
        wanted = _wanted(cells, form)
        left = [name for name in cells.columns if name not in wanted]
        notes = (f"left out: {', '.join(left)}",) if left else ()
    else:
        wanted = list(cells.columns)
        if len(wanted) != form.shape[0]:
            raise UserError(
                f"{cells.where} has {len(wanted)} columns, but the model takes {form}: remove labels and other columns"
            )
    columns = form.columns or tuple(Column(name) for name in wanted)
    read = [_column(cells, name, column) for name, column in zip(wanted, columns, strict=True)]
    notes += tuple(_unknown(cells, column, codes) for column, codes in zip(columns, read, strict=True))
    names = tuple(str(row + 1) for row in range(count))
    return Unlabelled(_tokens(cells, np.stack(read, 1), form), names, tuple(note for note in notes if note))


def _wanted(cells: Cells, form: Form) -> list[str]:
    """The names of the model's columns in this table."""
    if not cells.headed:
        if len(cells.columns) != len(form.columns):
            raise UserError(f"{cells.where} has no names of columns: the model takes {form}")
        return list(cells.columns)
    lacking = next((column.name for column in form.columns if column.name not in cells.columns), None)
    if lacking is not None:
        raise UserError(f"{cells.where} has no column {lacking!r}: the model takes {form}")
    return [column.name for column in form.columns]


def _column(cells: Cells, name: str, column: Column) -> np.ndarray:
    """A column as float64: numbers, or codes of categories; NaN is a missing value."""
    texts = cells.columns[name]
    if column.categories:
        codes = {category: float(code) for code, category in enumerate(column.categories)}
        coded = [np.nan if missing(text) and text not in codes else _code(text, codes) for text in texts]
        return np.array(coded, np.float64)
    numbers = [value(text) for text in texts]
    odd = next((row for row, number in enumerate(numbers) if number is None), None)
    if odd is not None:
        raise UserError(f"{cells.place(odd)} has {texts[odd]!r} in {name!r}: the model takes a number there")
    return np.array(numbers, np.float64)


def _code(text: str, codes: dict[str, float]) -> float:
    return codes[text] if text in codes else codes.get(word(text), UNKNOWN)


def _unknown(cells: Cells, column: Column, codes: np.ndarray) -> str:
    rows = np.flatnonzero(codes == UNKNOWN) if column.categories else np.zeros(0, np.int64)
    if not len(rows):
        return ""
    first = cells.columns[column.name][int(rows[0])] if column.name in cells.columns else "?"
    have = "1 sample has" if len(rows) == 1 else f"{len(rows)} samples have"
    return f"{have} a category of {column.name!r} that the model does not know, such as {first!r}"


def _tokens(cells: Cells, x: np.ndarray, form: Form) -> np.ndarray:
    if not form.vocabulary:
        with np.errstate(over="ignore"):  # what becomes infinite is refused
            return x.astype(np.float32)
    if np.isnan(x).any() or (x != np.floor(x)).any() or x.min() < 0 or x.max() >= form.vocabulary:
        raise UserError(f"{cells.where} must have token ids 0..{form.vocabulary - 1} in all its columns: correct it")
    return x.astype(np.int32)


def _arrays(path: Path, form: Form) -> Unlabelled:
    """The array ``x`` of a file; with names of columns in the file, its columns are put into order."""
    arrays = read_arrays(path)
    if "x" not in arrays:
        raise UserError(f"{path} has no array 'x': save the samples under that name")
    x, notes = inputs_of(str(path), arrays["x"], form.vocabulary), ()
    names = tuple(str(row + 1) for row in range(len(x)))
    if form.columns and "columns" in arrays:
        own = columns_of(str(path), arrays, x)
        places = {column.name: place for place, column in enumerate(own)}
        lacking = next((column.name for column in form.columns if column.name not in places), None)
        if lacking is not None:
            raise UserError(f"{path} has no column {lacking!r}: the model takes {form}")
        x = np.stack([_recoded(x[:, places[c.name]], own[places[c.name]], c, str(path)) for c in form.columns], 1)
    return Unlabelled(x, names, notes)


def _recoded(codes: np.ndarray, own: Column, agreed: Column, where: str) -> np.ndarray:
    """A column with the codes of the model's categories."""
    if own.categories == agreed.categories:
        return codes
    if bool(own.categories) != bool(agreed.categories):
        raise UserError(
            f"{where} has numbers or categories in {own.name!r} where the model takes the other: correct it"
        )
    place = {name: float(code) for code, name in enumerate(agreed.categories)}
    known = np.array([place.get(name, UNKNOWN) for name in own.categories], np.float32)
    absent = np.isnan(codes)
    return np.where(absent, np.nan, known[np.where(absent, 0, codes).astype(np.int64)]).astype(np.float32)


def _images(place: Path, form: Form) -> Unlabelled:
    """An image, the images of a folder, or those of its sub folders."""
    if form.kind != np.uint8 or len(form.shape) != 3 or form.shape[2] not in (1, 3):
        raise UserError(f"{place} holds images, but the model takes {form}: name another file")
    try:
        files = [place] if place.is_file() else _files(place)
    except OSError as error:
        raise UserError(f"{error.filename} cannot be read: {error.strerror}") from None
    if not files:
        raise UserError(f"{place} holds no PNG or JPEG images: name {KINDS}")
    height, width, channels = form.shape
    read = []
    for file in files:
        image = open_image(file)
        if image.size != (width, height):
            raise UserError(
                f"{file} has {image.size[0]}x{image.size[1]} pixels, but the model takes {width}x{height}: resize it"
            )
        read.append(pixels(image, "L" if channels == 1 else "RGB"))
    names = tuple(file.name if place.is_file() else str(file.relative_to(place)) for file in files)
    return Unlabelled(np.stack(read), names)


def _files(place: Path) -> Sequence[Path]:
    return sorted(
        file
        for file in place.rglob("*")
        if file.suffix.lower() in IMAGES and not any(part[0] == "." for part in file.relative_to(place).parts)
    )
