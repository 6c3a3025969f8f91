"""CSV files of numbers; an invalid file is one sentence."""

import csv
from collections.abc import Iterable
from pathlib import Path

from fedtailor.errors import UserError


def read_numbers(path: Path, columns: Iterable[str], needed: Iterable[str]) -> list[dict[str, float]]:
    """Read the rows of a file with a header; every cell must be a finite number of at least 0."""
    try:
        text = path.expanduser().read_text(encoding="utf-8-sig")
    except (OSError, UnicodeDecodeError) as error:
        raise UserError(f"{path} cannot be read: {getattr(error, 'strerror', None) or 'it is not UTF-8'}") from None
    lines = csv.reader(text.splitlines())
    header = [name.strip() for name in next(lines, [])]
    known, missing = list(columns), [name for name in needed if name not in header]
    strange = [name for name in header if name not in known]
    if missing or strange or len(set(header)) < len(header):
        what = f"lacks the column {missing[0]!r}" if missing else f"has the columns {', '.join(header) or '(none)'}"
        raise UserError(f"{path} {what}: its first line names some of {', '.join(known)}, each once")
    rows = []
    for number, cells in enumerate(lines, start=2):
        where = f"{path}, line {number}"
        if cells and len(cells) != len(header):
            raise UserError(f"{where} has {len(cells)} cells: the header has {len(header)}")
        if cells:
            rows.append({name: _number(cell, f"{where}: {name}") for name, cell in zip(header, cells, strict=True)})
    if not rows:
        raise UserError(f"{path} has no rows: write one for each client")
    return rows


def client_of(row: dict[str, float], clients: int, path: Path) -> int:
    """The client of a row."""
    client = int(row["client"])
    if client != row["client"] or client >= clients:
        raise UserError(f"{path} has a row for client {row['client']:g}: the clients are 0 to {clients - 1}")
    return client


def _number(cell: str, where: str) -> float:
    try:
        value = float(cell)
    except ValueError:
        value = -1.0
    if not 0 <= value < float("inf"):
        raise UserError(f"{where} = {cell[:40]!r}: should be a number of at least 0")
    return value
