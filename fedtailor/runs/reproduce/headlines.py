"""The main claims of the papers, and what the committed records decide about them at every size."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import get_args

from fedtailor.errors import UserError
from fedtailor.runs.reproduce.claims import Decision, decide
from fedtailor.runs.reproduce.declaration import FILE, ClaimDeclaration, Size, read_declaration
from fedtailor.runs.reproduce.plan import Plan, make_plan
from fedtailor.runs.reproduce.records import Record, read_records
from fedtailor.runs.reproduce.tables import make_table, steps_of

SIZES: tuple[Size, ...] = get_args(Size)


@dataclass(frozen=True)
class Headline:
    """A main claim, and its comparisons at every size; none if no table tests it."""

    claim: ClaimDeclaration
    decisions: Mapping[Size, tuple[Decision, ...]]


@dataclass(frozen=True)
class Coverage:
    """How many runs of a table have a record."""

    table: str
    done: int
    runs: int


@dataclass(frozen=True)
class PaperClaims:
    """The main claims of one recipe."""

    plans: Mapping[Size, Plan]
    headlines: tuple[Headline, ...]
    coverage: Mapping[Size, tuple[Coverage, ...]]  # of every table, in the order of the recipe

    @property
    def title(self) -> str:
        return self.plans["laptop"].declaration.title


def read_claims(folder: Path) -> list[PaperClaims]:
    """The main claims of all recipes in a folder, decided by their records alone; needs no data.

    Raises
    ------
    UserError
        If no recipe of the folder declares a main claim.
    """
    recipes = sorted(file.parent for file in folder.glob(f"*/{FILE}"))
    found = [claims for recipe in recipes if (claims := _claims_of(recipe)).headlines]
    if not found:
        raise UserError(
            f"{folder} has no recipe with a claim that says headline = true: name the folder of all recipes"
        )
    return found


def _claims_of(recipe: Path) -> PaperClaims:
    records = read_records(recipe)
    plans = {size: make_plan(recipe, size) for size in SIZES}
    decided = {size: _decisions(plan, records) for size, plan in plans.items()}
    claims = [claim for claim in read_declaration(recipe).claims if claim.headline]  # also those of one size's tables
    headlines = [
        Headline(claim, {size: tuple(one for one in decided[size] if one.claim == claim) for size in SIZES})
        for claim in claims
    ]
    return PaperClaims(plans, tuple(headlines), {size: _coverage(plan, records) for size, plan in plans.items()})


def _decisions(plan: Plan, records: Mapping[str, Record]) -> list[Decision]:
    named = {claim.table for claim in plan.declaration.claims if claim.headline}
    return decide(plan, {name: make_table(plan, name, records) for name in plan.declaration.tables if name in named})


def _coverage(plan: Plan, records: Mapping[str, Record]) -> tuple[Coverage, ...]:
    found = []
    for name in plan.declaration.tables:
        steps = steps_of(plan, name)
        found.append(Coverage(name, sum(step.key in records for step in steps), len(steps)))
    return tuple(found)
