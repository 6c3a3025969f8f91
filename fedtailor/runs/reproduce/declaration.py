"""The declarations in ``reproduce.toml`` of a recipe folder: experiments, tables and claims."""

import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from fedtailor.errors import UserError, unknown

FILE = "reproduce.toml"
Show = Literal["value", "change", "value and change", "difference", "ratio"]
Picture = Literal["bars", "lines", "curves", "none"]
Size = Literal["laptop", "paper"]
OTHERS = "others"  # in seeds by method: all methods that are not named
Seeds = tuple[int, ...] | dict[str, tuple[int, ...]]  # for all methods, or by label


class Declared(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")


class ExperimentDeclaration(Declared):
    """One or several comparisons: every combination of base file and varied values, with all methods and seeds.

    Its name is a template with placeholders for what varies: ``{base}``, ``{method}``, ``{data.clients}``.
    """

    base: str | tuple[str, ...] = Field(description="the experiment's TOML file in this folder, or several")
    methods: tuple[str | dict[str, Any], ...] | None = Field(
        None, description="labels of [methods], names, or tables with a label; default: the base file's compare.methods"
    )
    seeds: Seeds | None = Field(None, description="default: the base file's compare.seeds")
    paper_seeds: Seeds | None = Field(None, description="seeds of size paper; default: `seeds`")
    set: dict[str, Any] = Field({}, description="settings that differ from the base file, by dotted name")
    vary: dict[str, tuple[Any, ...]] = Field({}, description="settings and their values: a grid")
    paper: dict[str, Any] = Field({}, description="settings of size paper, by dotted name")
    pretrain: bool = Field(False, description="train an agent; other methods use it with policy = '@name'")
    deciders: str | None = Field(
        None, description="FILE.py:FUNCTION in this folder; called with the experiment and `given`, returns deciders"
    )
    given: dict[str, Any] = Field({}, description="further arguments of the function in `deciders`")

    @property
    def bases(self) -> tuple[str, ...]:
        return (self.base,) if isinstance(self.base, str) else self.base


class Where(Declared):
    """The runs and the measure of a cell. Missing values come from the column, then the row, then the table.

    ``{experiment}`` in one of them is replaced by the experiment that another one names.
    """

    experiment: str | None = None
    method: str | None = None
    measure: str | None = None


class Line(Where):
    """A row or a column of a table."""

    title: str | None = None
    show: Show | None = None
    against: Where | None = Field(None, description="reference of `change`, `difference` and `ratio`")


class TableDeclaration(Declared):
    """A table of the paper: rows by columns."""

    title: str
    about: str = ""
    page: str | None = Field(None, description="name of the page; default: that of the recipe")
    size: Size | None = Field(None, description="the only size that has this table; default: both")
    experiment: str | None = None
    method: str | None = None
    measure: str | None = None
    show: Show = "value"
    rows: tuple[str | Line, ...] = Field((), description="methods, or tables; default: every method")
    columns: tuple[str | Line, ...] = Field(min_length=1, description="experiments, measures, or tables")
    lead: tuple[str, ...] = Field((), description="rows for which the table shows the lead over the best other row")
    over: tuple[str, ...] = Field((), description="the rows that count as others; default: all but `lead`")
    paper: dict[str, tuple[float, ...]] = Field({}, description="the paper's numbers, by row; nan where it has none")
    paper_columns: dict[str, dict[str, float]] = Field(
        {}, description="a paper's numbers by row, shown beside the first column with ranks and their correlation"
    )
    picture: Picture = Field("none", description="the figure: drawn from the cells, or curves over the rounds")
    curve: str | None = Field(None, description="the measure of curves, such as held.accuracy; default: the cells'")
    over_axis: Literal["rounds", "steps", "seconds", "clock", "bytes"] = Field(
        "rounds", description="horizontal axis of curves"
    )


class ClaimDeclaration(Declared):
    """A claim of the paper, and the table that tests it."""

    says: str
    paper: str = Field("", description="the paper's number")
    headline: bool = Field(False, description="a main claim of the paper: it has a line on the page of claims")
    table: str | None = Field(None, description="only a headline may have none: no table tests it")
    row: str | tuple[str, ...] = Field("", description="the row that it is about; the best of several counts")
    page: str | None = Field(None, description="a page of docs/results that reports on a claim without a table")
    over: str | tuple[str, ...] | None = Field(
        None, description="rows to compare with; the best of several counts; default: all"
    )
    each: bool = Field(False, description="compare with each of the other rows instead of only the best")
    columns: tuple[str, ...] | None = Field(None, description="default: every column")
    at_least: float | None = Field(None, description="the claimed difference; default 0")
    at_most: float | None = Field(None, description="the claimed difference if less is better")
    level: bool = Field(False, description="the claim is to be at least level: it also holds if the rows are level")
    relative: bool = Field(False, description="differences in % of the other row instead of points")


class Declaration(Declared):
    """Everything in ``reproduce.toml``."""

    page: str | None = Field(None, description="name of the page under docs/results; default: that of the folder")
    title: str
    about: str = ""
    paper: dict[str, Any] = Field({}, description="settings of size paper, for all experiments")
    methods: dict[str, dict[str, Any]] = Field(
        {}, description="methods by label; `like` copies the settings of another label"
    )
    experiments: dict[str, ExperimentDeclaration] = Field(min_length=1)
    tables: dict[str, TableDeclaration] = Field(min_length=1)
    claims: tuple[ClaimDeclaration, ...] = ()


def read_declaration(folder: Path) -> Declaration:
    """Read the declaration of a recipe folder."""
    file = folder / FILE
    try:
        values = tomllib.loads(file.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise UserError(f"{folder} declares no reproduction: it has no {FILE}") from None
    except (OSError, UnicodeDecodeError) as error:
        raise UserError(f"{file} cannot be read: {error}") from None
    except ValueError as error:
        raise UserError(f"{file} is not valid TOML: {error}") from None
    try:
        made = Declaration.model_validate(values)
    except ValidationError as error:
        raise UserError(f"{file}: {_sentence(error)}") from None
    _check(made, file)
    return made


def method_tables(declaration: Declaration, file: Path) -> dict[str, dict[str, Any]]:
    """The methods by label, with the settings that `like` copies."""
    found: dict[str, dict[str, Any]] = {}

    def resolve(label: str, seen: tuple[str, ...]) -> dict[str, Any]:
        if label in seen:
            raise UserError(f"{file}: methods.{label}: like = {label!r} leads back to itself")
        table = dict(declaration.methods[label])
        parent = table.pop("like", None)
        if parent is None:
            return table
        if parent not in declaration.methods:
            raise UserError(f"{file}: methods.{label}: {unknown('method in like', str(parent), declaration.methods)}")
        return merged(resolve(parent, (*seen, label)), table)

    for label in declaration.methods:
        found[label] = resolve(label, ())
    return found


def merged(table: Mapping[str, Any], changes: Mapping[str, Any]) -> dict[str, Any]:
    """Merge two tables, including nested ones such as those of agents."""
    found = dict(table)
    for key, value in changes.items():
        before = found.get(key)
        found[key] = merged(before, value) if isinstance(before, Mapping) and isinstance(value, Mapping) else value
    return found


def _check(declaration: Declaration, file: Path) -> None:
    for number, claim in enumerate(declaration.claims, 1):
        if claim.table is None and not claim.headline:
            raise UserError(f"{file}: claim {number}: name its table; only a headline may have none")
        if claim.table is not None and claim.table not in declaration.tables:
            raise UserError(f"{file}: claim {number}: {unknown('table', claim.table, declaration.tables)}")
        if claim.table is not None and not claim.row:
            raise UserError(f"{file}: claim {number}: name the row of {claim.table} that it is about")
        if claim.at_least is not None and claim.at_most is not None:
            raise UserError(f"{file}: claim {number}: set at_least or at_most, not both")
    for name, table in declaration.tables.items():
        for row, numbers in table.paper.items():
            if len(numbers) != len(table.columns):
                said = f"tables.{name}.paper.{row} has {len(numbers)} numbers"
                raise UserError(f"{file}: {said}: the table has {len(table.columns)} columns (nan where there is none)")


def _sentence(error: ValidationError) -> str:
    problems = error.errors(include_url=False)
    # in a union, the branch that got furthest into the value is probably the intended one
    first = max(problems, key=lambda problem: len(problem["loc"]))
    place = ".".join(str(part) for part in first["loc"] if part not in ("str", "Line"))
    if first["type"] == "extra_forbidden":
        return f"{place} is not known here"
    if first["type"] == "missing":
        return f"{place} is missing"
    return f"{place} = {repr(first['input'])[:60]}: {first['msg'][:1].lower()}{first['msg'][1:]}"
