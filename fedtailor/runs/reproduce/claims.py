"""Tests the claims of a paper on tables, by the criterion of ``runs/statistics.py``."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from fedtailor.errors import UserError
from fedtailor.runs.reproduce.declaration import FILE, ClaimDeclaration
from fedtailor.runs.reproduce.plan import Plan
from fedtailor.runs.reproduce.tables import Cell, Table, best_of, lead_over
from fedtailor.runs.statistics import Interval, interval, outcome, paired

Verdict = Literal["holds", "does not", "level", "not decidable at this size"]


@dataclass(frozen=True)
class Decision:
    """The result of a claim in one column of its table.

    Attributes
    ----------
    row : str
        The row that the claim is about: of several, the best.
    other : str
        The row that it is compared with: the best of those that have runs.
    differences : tuple of float
        One for each seed that both rows have.
    unit : str
        ``points``, or ``%`` of the other row's value.
    run : bool
        Whether there are runs of the row and of one to compare it with.
    known, rows : int
        How many rows it could be compared with, and how many the claim names.
    """

    claim: ClaimDeclaration
    column: str
    row: str
    other: str
    differences: tuple[float, ...]
    unit: str
    verdict: Verdict
    run: bool
    known: int
    rows: int

    @property
    def interval(self) -> Interval | None:
        return interval(self.differences)


def verdict(differences: Sequence[float], limit: float = 0.0, sign: int = 1, level: bool = False) -> Verdict:
    """What paired differences say about a claim: more than ``limit`` (less with ``sign`` -1), or at least ``level``."""
    found = outcome(differences, limit, sign)
    holds = found == "ahead" or (level and found == "level")
    return "holds" if holds else "does not" if found == "behind" else found  # type: ignore[return-value]


def decide(plan: Plan, tables: Mapping[str, Table]) -> list[Decision]:
    """Test every claim whose table is present, column by column."""
    decisions: list[Decision] = []
    for number, claim in enumerate(plan.declaration.claims, 1):
        if claim.table is not None and (table := tables.get(claim.table)) is not None:
            decisions += _decided(claim, table, f"{plan.folder / FILE}: claim {number}")
    return decisions


def _decided(claim: ClaimDeclaration, table: Table, place: str) -> list[Decision]:
    over = (claim.over,) if isinstance(claim.over, str) else claim.over
    rows = (claim.row,) if isinstance(claim.row, str) else claim.row
    others = over or tuple(row for row in table.rows if row not in rows)
    for row in (*rows, *others):
        if row not in table.rows:
            raise UserError(f"{place}: {row!r} is no row of {claim.table}: {', '.join(table.rows)}")
    found = []
    for column in claim.columns or table.columns:
        if column not in table.columns:
            raise UserError(f"{place}: {column!r} is no column of {claim.table}: {', '.join(table.columns)}")
        for group in [[other] for other in others] if claim.each else [others]:
            cells = {other: table.cell(other, column) for other in group}
            found.append(_in_column(claim, column, {row: table.cell(row, column) for row in rows}, cells))
    return found


def _in_column(claim: ClaimDeclaration, column: str, rows: Mapping[str, Cell], others: Mapping[str, Cell]) -> Decision:
    title = best_of(rows) or next(iter(rows))
    row = rows[title]
    relative = claim.relative or not row.measure.points
    lead = lead_over(row, others)
    other = lead.other if lead is not None else next(iter(others))
    differences = paired(row.values, others[other].values, relative)
    sign = -1 if claim.at_most is not None else 1
    limit = claim.at_most if claim.at_most is not None else claim.at_least or 0.0
    known = sum(bool(cell.values) for cell in others.values())
    return Decision(
        claim,
        column,
        title,
        other,
        tuple(differences),
        "%" if relative else "points",
        verdict(differences, limit, sign, claim.level),
        bool(row.values) and known > 0,
        known,
        len(others),
    )
