"""A reproduction as pages: Markdown with its tables, claims and pictures; CSV and LaTeX beside it."""

import csv
import io
import math
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean, stdev
from typing import Any

from rich.console import RenderableType

from fedtailor.runs.reproduce import Cell, Decision, Lead, Plan, Record, Table, Todo, decide, make_table
from fedtailor.runs.reproduce.tables import steps_of
from fedtailor.runs.statistics import CRITERION, Difference, Outcome, comparisons_text, difference, paired
from fedtailor.version import RESULTS
from fedtailor.views import console
from fedtailor.views.comparison import difference_text, outcome_text
from fedtailor.views.numbers import NOTHING, duration, figures
from fedtailor.views.reproduction_pictures import draw_table
from fedtailor.views.tables import Grid, superscript

NOT_MADE = "Not made yet"
CLAIMS = (
    "A claim holds if the criterion above says that the row is ahead of the claimed difference, and does not if it is "
    "behind it."
)
LEVEL = "A claim of being at least level also holds if the rows are level."
DECIDED, CLAIMED = "What is decided", "Claims"  # the sections of a page that are no table
AHEAD, BEST, BEHIND = "▲", "△", "▼"
MARKS = (
    f"{AHEAD}: the best mean of its column, and all others are behind it; {BEST}: the best mean, but not ahead of all "
    f"others; {BEHIND}: behind the best mean; =: level with it; no mark: not decidable at this size."
)


@dataclass(frozen=True)
class Written:
    """What a reproduction wrote, and a sentence for each page that it left as it is."""

    files: list[Path]
    kept: list[str]


def write_pages(plan: Plan, chosen: Sequence[str], records: Mapping[str, Record], folder: Path) -> Written:
    """Write the pages of the chosen tables, and what belongs to them.

    A page shows all of its tables, also those that were not chosen, as far as there are records. A page stays as it is
    if it shows a table that no run has a record of: it still says by which version it was made.
    """
    pages = dict.fromkeys(page_of(plan, name) for name in chosen)
    written: list[Path] = []
    kept: list[str] = []
    for page in pages:
        names = [name for name in plan.declaration.tables if page_of(plan, name) == page]
        tables = {name: make_table(plan, name, records) for name in names}
        gone = [name for name, table in tables.items() if _without_records(plan, table)]
        if gone and (len(gone) == len(tables) or _shows_others(folder / f"{page}.md", tables.keys() - gone, plan)):
            kept.append(_kept_text(plan, folder / f"{page}.md", gone))
            continue
        beside = folder / page
        beside.mkdir(parents=True, exist_ok=True)
        for name, table in tables.items():
            written += _write_table(table, beside / name)
        place = folder / f"{page}.md"
        write_whole(place, page_text(plan, page, tables, records))
        written.insert(len(written) - sum(path.parent == beside for path in written), place)
    return Written(written, kept)


def show_reproduction(
    plan: Plan, chosen: Sequence[str], records: Mapping[str, Record], written: Written, as_json: bool
) -> None:
    """Print the chosen tables, the claims that they decide, and where the pages are."""
    tables = {name: make_table(plan, name, records) for name in chosen}
    decisions = decide(plan, tables)
    if as_json:
        counts = {name: len(table.missing) for name, table in tables.items()}
        claims = [
            {"claim": one.claim.says, "column": one.column, "against": one.other, "verdict": one.verdict}
            for one in decisions
        ]
        files = list(map(str, written.files))
        console.show_json({"written": files, "kept": written.kept, "missing": counts, "claims": claims})
        return
    for table in tables.values():
        console.show(table_grid(table).fitting(console.results().width).page())
        if lacking := missing_text(plan, table):
            console.show(lacking)
    if decisions:
        console.show(claims_grid(decisions).rich())
    for sentence in written.kept:
        console.show(sentence)
    if pages := [str(path) for path in written.files if path.suffix == ".md"]:
        console.show(f"pages: {', '.join(pages)}")


def todo_grid(found: Todo) -> list[RenderableType]:
    """What a reproduction would run, and how long that takes by its records."""
    rows = [
        (step.experiment, step.method, str(step.seed), str(step.rounds), NOTHING if one is None else duration(one))
        for step, one in zip(found.missing, found.seconds, strict=True)
    ]
    if not rows:
        return ["nothing to run: every run of these tables has a record"]
    if found.estimate is None:
        total = f"{len(rows)} runs; there is no estimate before a first run has a record"
    else:
        total = f"{len(rows)} runs, about {duration(found.estimate)}"
    header = ("experiment", "method", "seed", "rounds", "estimate")
    return [Grid(header, tuple(rows), words=frozenset({0, 1})).rich(), total]


def todo_document(found: Todo) -> dict[str, Any]:
    """The same as one JSON document."""
    runs = [
        {"experiment": step.experiment, "method": step.method, "seed": step.seed, "seconds": one}
        for step, one in zip(found.missing, found.seconds, strict=True)
    ]
    return {"runs": runs, "seconds": found.estimate}


def page_of(plan: Plan, table: str) -> str:
    """The name of the page that a table is on."""
    name = plan.declaration.tables[table].page or plan.name
    return name if plan.size == "laptop" else f"{name}-{plan.size}"


def command_of(plan: Plan, tables: Iterable[str] = ()) -> str:
    """The command that makes some tables, or all, without a path of this machine."""
    chosen = [] if set(tables) == set(plan.declaration.tables) else list(tables)
    size = [] if plan.size == "laptop" else ["--size", plan.size]
    return " ".join(["fedtailor", "reproduce", f"recipes/{plan.folder.resolve().name}", *chosen, *size])


def page_text(plan: Plan, page: str, tables: Mapping[str, Table], records: Mapping[str, Record]) -> str:
    """A page as Markdown."""
    declared = plan.declaration
    title = declared.title if len({page_of(plan, name) for name in declared.tables}) == 1 else page
    parts = [f"# {title}", "", f"Written by `{command_of(plan, tables)}`. {declared.about}".strip(), ""]
    for name, table in tables.items():
        parts += _section(plan, page, name, table)
    decisions = decide(plan, tables)
    made = sum(len(_outcomes(table)) for table in tables.values()) + len(decisions)
    if made:
        parts += [f"## {DECIDED}", "", f"{CRITERION} {comparisons_text(made)} {MARKS}", ""]
    if decisions:
        said = f"{CLAIMS} {LEVEL}" if any(one.claim.level for one in decisions) else CLAIMS
        parts += [f"## {CLAIMED}", "", said, "", claims_grid(decisions).markdown()]
    return "\n".join([*parts, _made(plan, tables, records), ""])


def table_grid(table: Table) -> Grid:
    """A table in words: means and deviations, leads, and the paper's numbers."""
    beside = table.paper_columns
    titles = [_column_title(table, index) for index in range(len(table.columns))]
    header = ["", *titles, *(text for column in beside for text in (column.title, "rank there", "rank here"))]
    marks, notes = _marks(table), table.notes
    rows = []
    for title, cells in table.rows.items():
        more: list[str] = []
        for column in beside:
            ranks = column.ranks.get(title)
            number = column.values.get(title)
            more.append(NOTHING if number is None else f"{number:.2f}")
            more += [NOTHING] * 2 if ranks is None else [f"{rank:.0f}" for rank in ranks]
        texts = [f"{cell_text(cell)} {marks.get((title, index), '')}".rstrip() for index, cell in enumerate(cells)]
        about = [superscript(number) for number, note in enumerate(notes, 1) if title in note.rows]
        rows.append((" ".join([title, *about]), *texts, *more))
    empty = [""] * (3 * len(beside))
    for title, leads in table.leads.items():
        rows.append((f"lead of {title}", *map(lead_text, leads), *empty))
    for title, numbers in table.declared.paper.items():
        told = [NOTHING if math.isnan(number) else f"{number:.2f}" for number in numbers]
        rows.append((f"paper: {title}", *told, *empty))
    said = tuple(f"{superscript(number)} {note.text}" for number, note in enumerate(notes, 1))
    return Grid(tuple(header), tuple(rows), title=table.declared.title, notes=said)


def table_csv(table: Table) -> str:
    """Every number of a table in full precision, a line for each seed."""
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(("row", "column", "measure", "unit", "seed", "value"))
    for title, cells in table.rows.items():
        for column, cell in zip(table.columns, cells, strict=True):
            for seed, value in cell.values.items():
                writer.writerow((title, column, cell.measure.text, cell.measure.unit, seed, value))
    return text.getvalue()


def claims_grid(decisions: Sequence[Decision]) -> Grid:
    """The claims and what became of them."""
    rows = []
    for one in decisions:
        found = one.interval
        difference = NOTHING if found is None else f"{found.mean:+.1f} [{found.low:+.1f}, {found.high:+.1f}] {one.unit}"
        where = one.column if isinstance(one.claim.row, str) else f"{one.column}: {one.row}"
        rows.append((one.claim.says, where, one.claim.paper or NOTHING, one.other, difference, one.verdict))
    header = ("claim", "where", "paper", "against", "here, with 95 % interval", "verdict")
    return Grid(header, tuple(rows), words=frozenset({0, 1, 2, 3, 5}), sentences=True)


def cell_text(cell: Cell) -> str:
    """A cell as it is shown."""
    if not cell.values:
        return NOTHING
    if not cell.known:
        return "never" if cell.measure.how == "to" else NOTHING
    if cell.show == "value" or cell.against is None:
        return _spread(cell)
    others = [value for value in cell.against.values() if value is not None]
    if not others:
        return NOTHING
    if cell.show == "difference":
        return difference_text(Difference(tuple(paired(cell.values, cell.against)), "points"))
    ratio = fmean(cell.known) / fmean(others) if fmean(others) else math.nan
    if cell.show == "ratio":
        return f"{ratio:.2f}"
    change = f"{100 * (ratio - 1):+.1f} %"
    return change if cell.show == "change" else f"{_spread(cell)} ({change})"


def lead_text(lead: Lead | None) -> str:
    """Paired differences with their 95 % interval, the row they are against, and what they decide."""
    if lead is None or not lead.differences:
        return NOTHING
    found = Difference(lead.differences, "points")
    return f"{difference_text(found)} ({lead.other}), {outcome_text(found)}"


def missing_text(plan: Plan, table: Table) -> str:
    """What a table lacks, in a sentence; nothing if it is complete."""
    if not table.missing:
        return ""
    total = len(steps_of(plan, table.name))
    left = len(table.missing)
    if _without_records(plan, table):
        return f"{NOT_MADE}: `{command_of(plan, [table.name])}`."
    return f"Not complete: {left} of {total} runs are missing; `{command_of(plan, [table.name])}` makes them."


def _without_records(plan: Plan, table: Table) -> bool:
    return len(table.missing) >= len(steps_of(plan, table.name))


def _shows_others(place: Path, tables: Iterable[str], plan: Plan) -> bool:
    """Whether a page has a section with content besides those of these tables, such as an earlier version's."""
    if not place.exists():
        return False
    known = {plan.declaration.tables[name].title for name in tables} | {DECIDED, CLAIMED}
    sections = re.split(r"^## (.*)\n", place.read_text(encoding="utf-8"), flags=re.MULTILINE)[1:]
    pairs = zip(sections[::2], sections[1::2], strict=True)
    return any(title not in known and not re.search(f"^{NOT_MADE}", body, re.MULTILINE) for title, body in pairs)


def _kept_text(plan: Plan, place: Path, gone: Sequence[str]) -> str:
    """Why a page is not written, in a sentence."""
    what = f"{place} stays as it is" if place.exists() else f"{place} is not written"
    return f"{what}: there is no record of {', '.join(gone)}; `{command_of(plan, gone)}` runs what is missing."


def _section(plan: Plan, page: str, name: str, table: Table) -> list[str]:
    declared = table.declared
    parts = [f"## {declared.title}", ""]
    if declared.about:
        parts += [declared.about, ""]
    lacking = missing_text(plan, table)
    if lacking.startswith(NOT_MADE):
        return [*parts, lacking, ""]
    parts += [table_grid(table).markdown()]
    for column in table.paper_columns:
        parts += [
            f"{column.title}: rank correlation (Spearman) {column.correlation:.2f} over {len(column.ranks)} rows."
        ]
        parts += [""]
    if lacking:
        parts += [lacking, ""]
    if declared.picture != "none":
        parts += [f"![{declared.title}]({page}/{name}.png)", ""]
    return [*parts, f"Numbers: [CSV]({page}/{name}.csv), [LaTeX]({page}/{name}.tex).", ""]


def _made(plan: Plan, tables: Mapping[str, Table], records: Mapping[str, Record]) -> str:
    """The last line of a page: seeds, versions and time."""
    steps = {step.key: step for name in tables for step in steps_of(plan, name)}
    steps |= {step.needs.key: step.needs for step in steps.values() if step.needs is not None}
    used = [records[key] for key in steps if key in records]
    seeds = ", ".join(map(str, sorted({record.seed for record in used})))
    seconds = duration(sum(record.seconds for record in used))
    versions = dict.fromkeys(", ".join(f"{k} {v}" for k, v in record.versions.items()) for record in used)
    return (
        f"Size {plan.size}, seeds {seeds}, results version {RESULTS}; the rounds of {len(used)} runs took {seconds} in "
        f"all, without the final passes. {'; '.join(versions)}. The records of the runs are in "
        f"recipes/{plan.folder.resolve().name}/records: `{command_of(plan, tables)} --from-records` makes this page "
        "from them."
    )


def _write_table(table: Table, place: Path) -> list[Path]:
    """CSV, LaTeX and picture of a table that has any number."""
    if not any(cell.known for cells in table.rows.values() for cell in cells):
        return []
    written = [place.with_name(f"{place.name}.{ending}") for ending in ("csv", "tex")]
    write_whole(written[0], table_csv(table))
    write_whole(written[1], table_grid(table).latex())
    if table.declared.picture != "none":
        written.append(draw_table(table, place.with_name(f"{place.name}.png")))
    return written


def write_whole(place: Path, text: str) -> None:
    """Write a text completely or not at all."""
    draft = place.with_name(f".{place.name}")
    draft.write_text(text, encoding="utf-8")
    draft.replace(place)


def _spread(cell: Cell) -> str:
    known, mean = cell.known, fmean(cell.known)
    one = (lambda value: f"{value:.1f}") if cell.measure.points or cell.measure.how == "to" else figures
    exact = len(known) < 2 or (stdev(known) == 0 and not cell.measure.points)  # such as bytes, which no seed changes
    text = one(mean) if exact else f"{one(mean)} ± {one(stdev(known))}"
    missed = len(cell.values) - len(known)
    return f"{text} ({len(known)} of {len(cell.values)})" if missed else text


def _column_title(table: Table, index: int) -> str:
    """The title that is declared; of a measure, its words and unit."""
    title = table.columns[index]
    measures = {cells[index].measure.text for cells in table.rows.values()}
    if title not in measures:
        return title
    unit = next(iter(table.rows.values()))[index].measure.unit
    model, dot, statistic = title.rpartition(".")
    words = {"accuracy": model, "pooled": f"{model}, pooled", "worst_tenth": f"worst 10 % of clients, {model}"}
    words |= {"deviation": f"std of clients, {model}"}
    text = words.get(statistic, title) if dot else title
    return f"{text} {unit}".strip()


def _outcomes(table: Table) -> dict[tuple[str, int], tuple[str, Outcome]]:
    """By row and column, what is decided against the best mean of the column, and the row that has it."""
    found: dict[tuple[str, int], tuple[str, Outcome]] = {}
    for column in range(len(table.columns)):
        cells = {
            title: cells[column]
            for title, cells in table.rows.items()
            if cells[column].mean is not None and cells[column].measure.better and cells[column].show == "value"
        }
        if len(cells) < 2 or len({cell.measure.text for cell in cells.values()}) > 1:
            continue
        measure = next(iter(cells.values())).measure
        best = max(cells, key=lambda title: measure.better * (cells[title].mean or 0.0))
        for title in cells.keys() - {best}:
            one = difference(cells[title].values, cells[best].values, measure.points, measure.better)
            found[title, column] = (best, one.outcome)
    return found


def _marks(table: Table) -> dict[tuple[str, int], str]:
    """The mark of every cell whose place in its column is decided."""
    outcomes = _outcomes(table)
    marks = {
        place: BEHIND if one == "behind" else "=" for place, (_, one) in outcomes.items() if one in ("behind", "level")
    }
    for column in {column for _, column in outcomes}:
        those = [(best, one) for (_, place), (best, one) in outcomes.items() if place == column]
        marks[those[0][0], column] = AHEAD if all(one == "behind" for _, one in those) else BEST
    return marks
