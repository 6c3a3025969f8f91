"""The tables of a reproduction: every cell has a value for each seed. Views render them."""

import json
import math
from collections.abc import Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean

from scipy.stats import rankdata, spearmanr

from fedtailor.errors import UserError
from fedtailor.methods import spec
from fedtailor.runs.reproduce.declaration import FILE, Line, Show, TableDeclaration
from fedtailor.runs.reproduce.measuring import Measure, curve, measured, parse
from fedtailor.runs.reproduce.plan import Plan, Step
from fedtailor.runs.reproduce.records import Record
from fedtailor.runs.results import Note, equal_rows
from fedtailor.runs.statistics import paired

EXPERIMENT = "{experiment}"
BEST = "best"  # in `of best`: the best of the table's other rows


@dataclass(frozen=True)
class Cell:
    """The numbers of a row in a column, by seed; None for a seed that did not reach its target."""

    measure: Measure
    values: Mapping[int, float | None]
    show: Show = "value"
    against: Mapping[int, float | None] | None = None

    @property
    def known(self) -> list[float]:
        return [value for value in self.values.values() if value is not None]

    @property
    def mean(self) -> float | None:
        return fmean(self.known) if self.known else None


@dataclass(frozen=True)
class Lead:
    """The lead of a row over the best other row of a column, by seed."""

    other: str
    differences: tuple[float, ...]


@dataclass(frozen=True)
class PaperColumn:
    """A paper's numbers beside our first column, and how well the orders agree (Spearman)."""

    title: str
    values: Mapping[str, float]
    ranks: Mapping[str, tuple[float, float]]  # by row: rank in the paper and here; 1 is the highest
    correlation: float


@dataclass(frozen=True)
class Curve:
    """Mean over the seeds at every evaluation."""

    row: str
    column: str
    points: tuple[tuple[float, float], ...]


@dataclass(frozen=True)
class Table:
    """A table; cells whose runs are missing are empty."""

    name: str
    declared: TableDeclaration
    columns: tuple[str, ...]
    rows: Mapping[str, tuple[Cell, ...]]
    leads: Mapping[str, tuple[Lead | None, ...]]
    paper_columns: tuple[PaperColumn, ...]
    curves: tuple[Curve, ...]
    missing: tuple[str, ...]  # the names of runs without a record
    notes: tuple[Note, ...] = ()  # what runs of some rows warned about

    def cell(self, row: str, column: str) -> Cell:
        return self.rows[row][self.columns.index(column)]


def steps_of(plan: Plan, name: str) -> list[Step]:
    """The runs that a table needs, without the pre-trainings of their policies."""
    table = _Reader(plan, name, {})
    found: dict[str, Step] = {}
    for row, column in table.places():
        for step in table.steps(row, column):
            found[step.key] = step
    return list(found.values())


def make_table(plan: Plan, name: str, records: Mapping[str, Record]) -> Table:
    """Make a table from records; cells without records are empty."""
    return _Reader(plan, name, records).table()


def best_of(rows: Mapping[str, Cell]) -> str | None:
    """The row with the best mean over its seeds; None if no row has one."""
    known = {title: cell.mean * (cell.measure.better or 1) for title, cell in rows.items() if cell.mean is not None}
    return max(known, key=lambda title: known[title]) if known else None


def lead_over(row: Cell, others: Mapping[str, Cell]) -> Lead | None:
    """The lead of a row over the best of ``others``, by the means over their seeds."""
    if row.mean is None or (best := best_of(others)) is None:
        return None
    return Lead(best, tuple(paired(row.values, others[best].values)))


@dataclass(frozen=True)
class _Place:
    """A cell's runs and measure, merged from row, column and table."""

    experiment: str
    method: str | None
    measure: str


class _Reader:
    def __init__(self, plan: Plan, name: str, records: Mapping[str, Record]):
        self.plan, self.name, self.records = plan, name, records
        self.declared = plan.declaration.tables[name]
        self.columns = [self._column(one) for one in self.declared.columns]
        self.rows = [self._row(one) for one in self.declared.rows] or self._every_method()
        self._unique()

    def table(self) -> Table:
        rows = {_title(row): tuple(self._cell(row, column) for column in self.columns) for row in self.rows}
        titles = tuple(_title(column) for column in self.columns)
        missing = {
            step.name: None
            for row, column in self.places()
            for step in self.steps(row, column)
            if step.key not in self.records
        }
        leads = {row: self._leads(row, rows) for row in self.declared.lead}
        beside = tuple(self._beside(title, values, rows) for title, values in self.declared.paper_columns.items())
        curves = tuple(self._curves()) if self.declared.picture == "curves" else ()
        notes = (*self._notes(), *self._equal_rows())
        return Table(self.name, self.declared, titles, rows, leads, beside, curves, tuple(missing), notes)

    def places(self) -> Iterator[tuple[Line, Line]]:
        return ((row, column) for row in self.rows for column in self.columns)

    def steps(self, row: Line, column: Line) -> Iterator[Step]:
        place = self._place(row, column)
        yield from self._find(place)
        if (other := self._against(row, column, place)) is not None:
            yield from self._find(other)
        for reference in self._references(place):
            yield from self._find(reference)

    # Cells from rows and columns

    def _cell(self, row: Line, column: Line) -> Cell:
        place = self._place(row, column)
        other = self._against(row, column, place)
        show = column.show or row.show or self.declared.show
        values = self._values(place)
        return Cell(self._measure(place), values, show, None if other is None else self._values(other))

    def _place(self, row: Line, column: Line) -> _Place:
        base = self._experiment(row, column)
        name = next((one.experiment for one in (column, row, self.declared) if one.experiment is not None), None)
        if row.experiment is not None and EXPERIMENT in row.experiment:
            name = row.experiment
        method = next((one.method for one in (column, row, self.declared) if one.method is not None), None)
        measure = next((one.measure for one in (row, column, self.declared) if one.measure is not None), None)
        if name is None or measure is None:
            what = "experiment" if name is None else "measure"
            raise self._error(f"the cell ({_title(row)}, {_title(column)}) has no {what}")
        return _Place(name.replace(EXPERIMENT, base), method, measure.replace(EXPERIMENT, base))

    def _against(self, row: Line, column: Line, place: _Place) -> _Place | None:
        show, other = column.show or row.show or self.declared.show, column.against or row.against
        if show == "value":
            return None
        if other is None:
            raise self._error(f"the cell ({_title(row)}, {_title(column)}) shows a {show}: say against what")
        name = (other.experiment or place.experiment).replace(EXPERIMENT, self._experiment(row, column))
        return _Place(name, other.method or place.method, other.measure or place.measure)

    def _experiment(self, row: Line, column: Line) -> str:
        """The value of {experiment}: the experiment that the row or the column names without a placeholder."""
        named = [one.experiment for one in (column, row, self.declared) if one.experiment is not None]
        return next((name for name in named if EXPERIMENT not in name), "")

    def _references(self, place: _Place) -> list[_Place]:
        """The runs that give a measure its target: those that `of` names, or those of the best other row."""
        measure = self._measure(place)
        reference = measure.reference()
        if reference is None:
            return []
        if measure.of == BEST:
            methods = {_title(row): row.method for row in self.rows}
            return [_Place(place.experiment, methods[other], reference.text) for other in self._others()]
        name, slash, method = str(measure.of).rpartition("/")
        return [_Place(name if slash else place.experiment, method, reference.text)]

    def _values(self, place: _Place) -> dict[int, float | None]:
        measure = self._measure(place)
        means = []
        for other in self._references(place):
            known = [value for value in self._values(other).values() if value is not None]
            means += [fmean(known)] if known else []
        reference = max(means) if means else None
        found = {}
        for step in self._find(place):
            if step.key in self.records:
                value = measured(measure, self.records[step.key], reference)
                found[step.seed] = value if value is None or math.isfinite(value) else None
        return found

    def _find(self, place: _Place) -> tuple[Step, ...]:
        return self.plan.find(place.experiment, place.method, f"tables.{self.name}")

    def _measure(self, place: _Place) -> Measure:
        try:
            return parse(place.measure)
        except UserError as error:
            raise self._error(str(error)) from None

    # Values from several cells

    def _others(self) -> list[str]:
        return [*self.declared.over] or [_title(row) for row in self.rows if _title(row) not in self.declared.lead]

    def _leads(self, row: str, rows: Mapping[str, Sequence[Cell]]) -> tuple[Lead | None, ...]:
        others = [other for other in self._others() if other != row]
        return tuple(
            lead_over(cell, {other: rows[other][index] for other in others}) if cell.measure.better > 0 else None
            for index, cell in enumerate(rows[row])
        )

    def _beside(self, title: str, values: Mapping[str, float], rows: Mapping[str, Sequence[Cell]]) -> PaperColumn:
        ours = {row: mean for row in values if row in rows and (mean := rows[row][0].mean) is not None}
        there = [-values[row] for row in ours]
        here = [-mean for mean in ours.values()]
        ranks = zip(rankdata(there, "min"), rankdata(here, "min"), strict=True) if ours else ()
        correlation = float(spearmanr(there, here).statistic) if len(ours) > 2 else float("nan")
        return PaperColumn(title, values, dict(zip(ours, ranks, strict=True)), correlation)

    def _notes(self) -> Iterator[Note]:
        """What the runs of each row warned about, once for all rows that it concerns."""
        rows: dict[str, dict[str, None]] = {}
        for row, column in self.places():
            for step in self._find(self._place(row, column)):
                if (record := self.records.get(step.key)) is None:
                    continue
                inert = step.settings.method.inert()  # records of earlier versions have no warnings
                for sentence in record.warnings or ([f"{spec(step.settings.method)}: {inert}"] if inert else []):
                    rows.setdefault(sentence, {})[_title(row)] = None
        for sentence, titles in rows.items():
            yield Note(tuple(titles), sentence)

    def _equal_rows(self) -> list[Note]:
        """A note for rows of the first column in which every client has the same score in every seed."""
        scores: dict[str, Hashable] = {}
        shown: set[tuple[str, ...]] = set()  # rows that show the same runs are equal without a note
        steps_of_row: dict[str, Step] = {}
        for row in self.rows:
            place = self._place(row, self.columns[0])
            steps = [step for step in self._find(place) if step.key in self.records]
            model, keys = self._measure(place).what.rpartition(".")[0], tuple(step.key for step in steps)
            found = [(step.seed, self.records[step.key].scores.get(model)) for step in steps]
            if keys not in shown and any(one for _, one in found):
                shown.add(keys)
                scores[_title(row)], steps_of_row[_title(row)] = json.dumps(found), steps[0]
        if not scores:
            return []
        training = next(iter(steps_of_row.values())).settings.training
        return equal_rows(scores, {row: step.settings.method for row, step in steps_of_row.items()}, training)

    def _curves(self) -> Iterator[Curve]:
        """A curve for every cell, or for every row and experiment if `curve` names a measure."""
        drawn: set[tuple[str, _Place]] = set()
        for row, column in self.places():
            place = self._place(row, column)
            if self.declared.curve is not None:
                place = _Place(place.experiment, place.method, row.measure or self.declared.curve)
            if (_title(row), place) in drawn:
                continue
            drawn.add((_title(row), place))
            measure = self._measure(place)
            known = [self.records[step.key] for step in self._find(place) if step.key in self.records]
            runs = [points for record in known if (points := curve(measure, record, self.declared.over_axis))]
            if runs:
                means = [tuple(map(fmean, zip(*points, strict=True))) for points in zip(*runs, strict=False)]
                yield Curve(_title(row), _title(column), tuple((x, y) for x, y in means))

    # Lines as they are declared

    def _row(self, one: str | Line) -> Line:
        return Line(title=one, method=one) if isinstance(one, str) else one

    def _column(self, one: str | Line) -> Line:
        if isinstance(one, Line):
            return one
        return Line(title=one, experiment=one) if one in self.plan.steps else Line(title=one, measure=one)

    def _every_method(self) -> list[Line]:
        names = [*(column.experiment for column in self.columns), self.declared.experiment]
        known = [name for name in names if name is not None and EXPERIMENT not in name]
        methods = dict.fromkeys(m for name in known for m in self.plan.methods(name, f"tables.{self.name}"))
        return [self._row(method) for method in methods]

    def _unique(self) -> None:
        for what, lines in (("row", self.rows), ("column", self.columns)):
            titles = [_title(line) for line in lines]
            if twice := {title for title in titles if titles.count(title) > 1}:
                raise self._error(f"the {what} {sorted(twice)[0]!r} appears twice: give each a title")
        known = [_title(row) for row in self.rows]
        for name in (*self.declared.lead, *self.declared.over):
            if name not in known:
                raise self._error(f"lead and over name rows, but {name!r} is not one of {', '.join(known)}")

    def _error(self, sentence: str) -> UserError:
        return UserError(f"{self.plan.folder / FILE}: tables.{self.name}: {sentence}")


def _title(line: Line) -> str:
    return line.title or line.method or line.measure or line.experiment or ""
