"""Tests the claims of a paper on tables with one criterion."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean, stdev
from typing import Literal

from scipy.stats import t

from fedtailor.errors import UserError
from fedtailor.runs.reproduce.declaration import FILE, ClaimDeclaration
from fedtailor.runs.reproduce.plan import Plan
from fedtailor.runs.reproduce.tables import Cell, Table, lead_over, paired

CONFIDENCE = 0.95
SEEDS = 3  # with fewer seeds a claim is not decidable
LEVEL = 2.0  # points, or %: a narrower interval around the claimed difference means that there is none

Verdict = Literal["holds", "does not", "level", "not decidable at this size"]


@dataclass(frozen=True)
class Interval:
    """Mean and 95 % t-interval of paired differences."""

    mean: float
    low: float
    high: float


@dataclass(frozen=True)
class Decision:
    """The result of a claim in one column of its table."""

    claim: ClaimDeclaration
    column: str
    other: str  # the row that it is compared with
    seeds: int
    unit: str
    interval: Interval | None
    verdict: Verdict


def interval(differences: Sequence[float]) -> Interval | None:
    """The 95 % t-interval of the mean; None for fewer than two numbers, or if one is not finite.

    Examples
    --------
    >>> interval([1.0, 2.0, 3.0])
    Interval(mean=2.0, low=-0.48413771175..., high=4.48413771175...)
    """
    if len(differences) < 2 or not all(map(math.isfinite, differences)):
        return None
    mean = fmean(differences)
    half = float(t.ppf((1 + CONFIDENCE) / 2, len(differences) - 1)) * stdev(differences) / math.sqrt(len(differences))
    return Interval(mean, mean - half, mean + half)


def verdict(differences: Sequence[float], at_least: float = 0.0, sign: int = 1) -> Verdict:
    """Test whether paired differences are above ``at_least`` (below it with ``sign`` -1).

    Parameters
    ----------
    differences
        One number for each seed.
    at_least
        The claimed difference.
    sign
        1 if more is claimed, -1 if less is.

    Returns
    -------
    Verdict
        ``holds`` if the 95 % interval is on the claimed side, ``does not`` if it is on the other, ``level`` if it
        holds the claimed difference and is narrower than 2 points, otherwise, and with fewer than three seeds,
        ``not decidable at this size``.
    """
    found = interval(differences)
    if found is None or len(differences) < SEEDS:
        return "not decidable at this size"
    low, high = sorted((sign * (found.low - at_least), sign * (found.high - at_least)))
    if low > 0:
        return "holds"
    if high < 0:
        return "does not"
    return "level" if high - low < LEVEL else "not decidable at this size"


def decide(plan: Plan, tables: Mapping[str, Table]) -> list[Decision]:
    """Test every claim whose table is present, column by column."""
    decisions: list[Decision] = []
    for number, claim in enumerate(plan.declaration.claims, 1):
        if (table := tables.get(claim.table)) is not None:
            decisions += _decided(claim, table, f"{plan.folder / FILE}: claim {number}")
    return decisions


def _decided(claim: ClaimDeclaration, table: Table, place: str) -> list[Decision]:
    over = (claim.over,) if isinstance(claim.over, str) else claim.over
    others = over or tuple(row for row in table.rows if row != claim.row)
    for row in (claim.row, *others):
        if row not in table.rows:
            raise UserError(f"{place}: {row!r} is no row of {claim.table}: {', '.join(table.rows)}")
    found = []
    for column in claim.columns or table.columns:
        if column not in table.columns:
            raise UserError(f"{place}: {column!r} is no column of {claim.table}: {', '.join(table.columns)}")
        for group in [[other] for other in others] if claim.each else [others]:
            cells = {other: table.cell(other, column) for other in group}
            found.append(_in_column(claim, column, table.cell(claim.row, column), cells))
    return found


def _in_column(claim: ClaimDeclaration, column: str, row: Cell, others: Mapping[str, Cell]) -> Decision:
    relative = claim.relative or not row.measure.points
    lead = lead_over(row, others)
    other = lead.other if lead is not None else next(iter(others))
    differences = paired(row.values, others[other].values, relative)
    sign = -1 if claim.at_most is not None else 1
    limit = claim.at_most if claim.at_most is not None else claim.at_least or 0.0
    decided = verdict(differences, limit, sign)
    return Decision(
        claim, column, other, len(differences), "%" if relative else "points", interval(differences), decided
    )
