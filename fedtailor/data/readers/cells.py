"""Tables of text: numbers, categories and missing values, read in the same way for all clients."""

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path

import numpy as np

from fedtailor.data.samples import Column
from fedtailor.errors import UserError, unknown

from .table import PARTS, Roles, Table, checked, in_order

MISSING = frozenset(("", "?", "na", "n/a", "nan", "none", "null"))  # cells without a value, in small letters
FEW = 20  # categories of a column that are always plausible
MANY = 100  # more than these are texts, not categories
WHOLE = re.compile(r"[+-]?\d+")
COMMA = re.compile(r"[+-]?\d+(,\d+)+")


@dataclass(frozen=True, eq=False)
class Cells:
    """The text of one table, column by column."""

    where: str  # names the table in errors
    columns: Mapping[str, list[str]]
    headed: bool = True  # whether the columns have names of their own
    part: str = "train"
    words: frozenset[str] = frozenset()  # columns that hold categories, even if these look like numbers

    def place(self, row: int) -> str:
        """A row as a user counts it: a header is the first row."""
        return f"{self.where} row {row + 1 + self.headed}"


def read_csv(path: Path, part: str = "train") -> Cells:
    """Read a file with one sample per row, separated by commas, semicolons or tabs, with or without a header."""
    import csv

    try:
        with path.open(encoding="utf-8-sig", newline="") as file:
            start = file.readline()
            file.seek(0)
            rows = [[cell.strip() for cell in row] for row in csv.reader(file, delimiter=_delimiter(start)) if row]
    except (OSError, UnicodeDecodeError, csv.Error) as problem:
        raise UserError(f"{path} cannot be read ({problem}): save it as CSV in UTF-8") from None
    if not rows:
        raise UserError(f"{path} holds no samples: add some or remove it")
    header, body = _header(path, rows)
    for number, row in enumerate(body, start=len(rows) - len(body) + 1):
        if len(row) != len(header):
            raise UserError(f"{path} row {number} has {len(row)} cells instead of {len(header)}: correct it")
    if not body:
        raise UserError(f"{path} holds no samples: add some or remove it")
    columns = {name: [row[place] for row in body] for place, name in enumerate(header)}
    return Cells(str(path), columns, len(body) < len(rows), part)


def typed(tables: Sequence[Cells], roles: Roles) -> list[Table]:
    """Decide over all tables what each column is, and read them."""
    names = _names(tables, roles)
    label = roles.label or names[-1]
    used = {label, *(name for name in (roles.client, roles.group, roles.time) if name), *roles.ignore}
    inputs = [name for name in names if name not in used]
    if not inputs:
        raise UserError(f"{tables[0].where} has no column besides the label {label!r}: add the inputs")
    columns, values = [], []
    for name in inputs:
        column, read = _column(name, tables, roles)
        columns.append(column)
        values.append(read)
    if not tables[0].headed and not any(column.categories for column in columns):
        columns = []  # a table of numbers without names is an array
    targets, classes = _targets(label, tables, roles)
    return [
        checked(
            Table(
                table.where,
                x=np.stack([read[index] for read in values], 1),
                y=targets[index],
                part=np.full(len(targets[index]), PARTS.index(table.part), np.int8),
                clients=_texts(table, roles.client, "client"),
                units=_texts(table, roles.group, "group"),
                times=_moments(table, roles.time),
                classes=classes,
                columns=tuple(columns),
            )
        )
        for index, table in enumerate(tables)
    ]


def _delimiter(line: str) -> str:
    """The character that separates cells: a comma unless the first line has none."""
    return next((mark for mark in ",;\t" if mark in line), ",")


def _header(path: Path, rows: list[list[str]]) -> tuple[list[str], list[list[str]]]:
    """The names of the columns and the rows below them; without names, the columns are numbered."""
    first = rows[0]
    if all(_number(cell) is not None for cell in first[:-1]) and len(first) > 1:
        return [f"column {place}" for place in range(1, len(first) + 1)], rows
    odd = next((cell for cell in first if not cell or _number(cell) is not None), None)
    if odd is not None:
        raise UserError(f"{path} has {odd!r} in its first row: give each column a name there, or only numbers")
    twice = next((name for name in first if first.count(name) > 1), None)
    if twice is not None:
        raise UserError(f"{path} has two columns {twice!r}: give each column a name of its own")
    return first, rows[1:]


def _names(tables: Sequence[Cells], roles: Roles) -> list[str]:
    """The names of the columns, which all tables must have."""
    first = tables[0]
    names = list(first.columns)
    for table in tables[1:]:
        for one, other in ((first, table), (table, first)):
            lacking = next((name for name in one.columns if name not in other.columns), None)
            if lacking is not None:
                raise UserError(f"{other.where} has no column {lacking!r}, but {one.where} has: make them alike")
    for role in ("label", "client", "group", "time", "categorical", "ignore"):
        value = getattr(roles, role)
        for name in (value,) if isinstance(value, str) else value or ():
            if name not in names:
                raise UserError(f"data.{role}: {unknown(f'column of {first.where}', name, names)}")
    taken = [name for name in (roles.label or names[-1], roles.client, roles.group, roles.time) if name]
    for name in taken:
        if taken.count(name) > 1 or name in (*roles.ignore, *roles.categorical):
            raise UserError(f"data.label, client, group, time, categorical and ignore name column {name!r} twice")
    return names


def _column(name: str, tables: Sequence[Cells], roles: Roles) -> tuple[Column, list[np.ndarray]]:
    """A column of all tables: float32 numbers, or codes of categories; NaN is a missing value."""
    words = name in roles.categorical or any(name in table.words for table in tables)
    numbers = None if words else [[value(cell) for cell in table.columns[name]] for table in tables]
    if numbers is not None and all(value is not None for values in numbers for value in values):
        with np.errstate(over="ignore"):
            read = [np.array(values, np.float64).astype(np.float32) for values in numbers]
        for table, values in zip(tables, read, strict=True):
            if np.isinf(values).any():
                row = int(np.isinf(values).argmax())
                raise UserError(f"{table.place(row)} has {table.columns[name][row]!r} in {name!r}: it is not finite")
        return Column(name), read
    texts = [[None if missing(cell) else word(cell) for cell in table.columns[name]] for table in tables]
    categories = _categories(f"column {name!r}", tables, texts, name, f"leave it out with data.ignore = [{name!r}]")
    codes = {category: float(code) for code, category in enumerate(categories)}
    coded = [np.array([np.nan if t is None else codes[t] for t in column], np.float32) for column in texts]
    return Column(name, categories), coded


def _targets(label: str, tables: Sequence[Cells], roles: Roles) -> tuple[list[np.ndarray], tuple[str, ...]]:
    """The labels of all tables: numbers of classes, or targets to predict."""
    for table, row, cell in _all(label, tables):
        if missing(cell):
            raise UserError(f"{table.place(row)} has no label in {label!r}: add it or remove the row")
    cells = [cell for _, _, cell in _all(label, tables)]
    numbers = all(_number(cell) is not None for cell in cells)
    words = any(label in table.words for table in tables)
    target = roles.target or (_guess(label, tables[0].where, cells) if numbers and not words else "class")
    if target == "number":
        if not numbers:
            table, row, cell = next(found for found in _all(label, tables) if _number(found[2]) is None)
            raise UserError(f"{table.place(row)} has {cell!r} in {label!r}: data.target = 'number' needs numbers")
        return [np.array([float(cell) for cell in table.columns[label]], np.float32) for table in tables], ()
    texts = [[word(cell) for cell in table.columns[label]] for table in tables]
    hint = "name the label with data.label" + (", or set data.target to 'number'" if numbers else "")
    classes = _categories(f"the label {label!r}", tables, texts, label, hint)
    codes = {name: code for code, name in enumerate(classes)}
    return [np.array([codes[text] for text in column], np.int64) for column in texts], classes


def _guess(label: str, where: str, cells: list[str]) -> str:
    """Whether numbers in the label are classes or targets; refuses what may be either."""
    if all(WHOLE.fullmatch(cell) for cell in cells):
        return "class"
    if all(float(cell).is_integer() for cell in cells):
        raise UserError(
            f"{where} has numbers such as {cells[0]} in the label {label!r}: set data.target to 'class', or to "
            f"'number' for a regression"
        )
    return "number"


def _categories(
    what: str, tables: Sequence[Cells], texts: Sequence[Sequence[str | None]], name: str, remedy: str
) -> tuple[str, ...]:
    """The different texts in order; refuses a column that does not look like categories."""
    found = {text for column in texts for text in column if text is not None}
    rows = sum(len(column) for column in texts)
    for table, row, cell in _all(name, tables):
        if COMMA.fullmatch(cell):
            raise UserError(f"{table.place(row)} has {cell!r} in {name!r}: write numbers with a point, as in 37.5")
    if len(found) > MANY or (len(found) > FEW and len(found) > rows / 2):
        raise UserError(f"{tables[0].where}: {what} has {len(found)} different values in {rows} rows: {remedy}")
    by_letters: dict[str, str] = {}
    for text in sorted(found):
        if by_letters.setdefault(text.casefold(), text) != text:
            other = by_letters[text.casefold()]
            raise UserError(f"{tables[0].where}: {what} has {other!r} and {text!r}: write them in the same way")
    return tuple(in_order(found))


def _all(name: str, tables: Sequence[Cells]) -> Iterator[tuple[Cells, int, str]]:
    """Every cell of a column, with its table and row."""
    return ((table, row, cell) for table in tables for row, cell in enumerate(table.columns[name]))


def _texts(table: Cells, name: str | None, role: str) -> np.ndarray | None:
    if name is None:
        return None
    for row, cell in enumerate(table.columns[name]):
        if missing(cell):
            raise UserError(f"{table.place(row)} has no {role} in {name!r}: add it or remove the row")
    return np.array(table.columns[name])


def _moments(table: Cells, name: str | None) -> np.ndarray | None:
    if name is None:
        return None
    return np.array([_moment(table, row, cell, name) for row, cell in enumerate(table.columns[name])], np.float64)


def _moment(table: Cells, row: int, cell: str, name: str) -> float:
    number = _number(cell)
    try:
        return float(datetime.fromisoformat(cell).timestamp()) if number is None else number
    except ValueError:
        raise UserError(
            f"{table.place(row)} has {cell!r} in {name!r}: write times as 2024-05-31 or as numbers"
        ) from None


def missing(cell: str) -> bool:
    """Whether a cell holds no value."""
    return cell.casefold() in MISSING


def _number(cell: str) -> float | None:
    """The number in a cell; None for anything else, also for a missing value."""
    if missing(cell) or "_" in cell:
        return None
    try:
        return float(cell)
    except ValueError:
        return None


def value(cell: str) -> float | None:
    """A number, NaN for a missing value, None for a text."""
    return float("nan") if missing(cell) else _number(cell)


def word(cell: str) -> str:
    """A category; codes such as 1 and 1.0 are the same."""
    number = _number(cell)
    return f"{number:.12g}" if number is not None else cell
