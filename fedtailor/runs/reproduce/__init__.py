"""Declared reproductions: the experiments, tables and claims of a recipe folder."""

from fedtailor.runs.reproduce.claims import Decision, decide, verdict
from fedtailor.runs.reproduce.declaration import Size
from fedtailor.runs.reproduce.execution import ReproductionCallback, Todo, check, run_missing, todo
from fedtailor.runs.reproduce.headlines import Coverage, Headline, PaperClaims, read_claims
from fedtailor.runs.reproduce.measuring import Measure
from fedtailor.runs.reproduce.plan import Plan, Step, make_plan
from fedtailor.runs.reproduce.records import Record, read_records
from fedtailor.runs.reproduce.tables import Cell, Lead, Table, make_table, steps_of

__all__ = [
    "Cell",
    "Coverage",
    "Decision",
    "Headline",
    "Lead",
    "Measure",
    "PaperClaims",
    "Plan",
    "Record",
    "ReproductionCallback",
    "Size",
    "Step",
    "Table",
    "Todo",
    "check",
    "decide",
    "make_plan",
    "make_table",
    "read_claims",
    "read_records",
    "run_missing",
    "steps_of",
    "todo",
    "verdict",
]
