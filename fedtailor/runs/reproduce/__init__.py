"""Declared reproductions: the experiments, tables and claims of a recipe folder."""

from fedtailor.runs.reproduce.claims import Decision, decide, verdict
from fedtailor.runs.reproduce.execution import ReproductionCallback, Todo, check, run_missing, todo
from fedtailor.runs.reproduce.measuring import Measure
from fedtailor.runs.reproduce.plan import Plan, Size, Step, make_plan
from fedtailor.runs.reproduce.records import Record, read_records
from fedtailor.runs.reproduce.tables import Cell, Lead, Table, make_table, steps_of

__all__ = [
    "Cell",
    "Decision",
    "Lead",
    "Measure",
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
    "read_records",
    "run_missing",
    "steps_of",
    "todo",
    "verdict",
]
