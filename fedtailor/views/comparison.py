"""The table of a comparison: what is decided against its baseline, and notes about its rows."""

import csv
import io
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from fedtailor.runs.results import ComparisonRow, ComparisonSummary, Note, Spread
from fedtailor.runs.statistics import CRITERION, SEEDS, UNDECIDED, Difference, comparisons_text
from fedtailor.views.numbers import NOTHING, figures, measured, percent
from fedtailor.views.tables import Grid, superscript

if TYPE_CHECKING:
    from fedtailor.runs import Comparison


def comparison_grid(summary: ComparisonSummary) -> Grid:
    """The table of a comparison, sorted by the headline; what is decided against the baseline; notes about rows."""
    table = summary.table
    models = [summary.model, *(m for m in ("final", "held", "received", "global", "new") if m != summary.model)]
    spreads = {
        f"{model} %" if summary.percent else model: [row.headline[model] for row in table]
        for model in models
        if any(row.headline[model].mean is not None for row in table)
    }
    spreads |= {"worst 10 % of clients": [row.worst_tenth for row in table]}
    spreads |= {"std of clients": [row.deviation for row in table]}
    clock = CLOCK if table and table[0].clock is not None else {}
    against = len(table) > 1
    rows = []
    for index, row in enumerate(table):
        first, *others = (_mean_and_deviation(column[index], summary.percent) for column in spreads.values())
        times = (write(getattr(row.clock, key)) for key, (_, write) in clock.items())
        rows.append(
            (
                " ".join([row.method, *_marks(summary.notes, row.method)]),
                first,
                *(_against(row) if against else ()),
                *others,
                *times,
                _number(row.megabytes),
                _number(row.seconds),
                str(row.seeds),
            )
        )
    headline, *more = spreads
    decided = (f"against {summary.baseline}", "decided", "clients won / tied / lost") if against else ()
    header = (headline, *decided, *more, *(name for name, _ in clock.values()), "MB", "seconds", "seeds")
    return Grid(
        ("method", *header),
        tuple(rows),
        frozenset({0, 3}) if against else frozenset({0}),
        title=f"{summary.name}: {summary.measure} averaged {summary.average}, mean ± deviation over seeds",
        notes=comparison_notes(summary),
    )


def comparison_notes(summary: ComparisonSummary) -> tuple[str, ...]:
    """The sentences below a comparison: about its rows, the criterion, and how many comparisons were made."""
    notes = [f"{superscript(number)} {note.text}" for number, note in enumerate(summary.notes, 1)]
    if any(row.headline["new"].mean is not None for row in summary.table):
        notes.append("new: clients that took no part received and adapted the model at the end.")
    if summary.comparisons:
        few = max(row.seeds for row in summary.table) < SEEDS
        advice = [f"Fewer than {SEEDS} seeds decide nothing: --seeds 0,1,2 adds what is missing."] if few else []
        notes.append(" ".join([CRITERION, comparisons_text(summary.comparisons), *advice]))
    return tuple(notes)


def difference_text(found: Difference | None) -> str:
    """A paired difference with its 95 % interval.

    >>> difference_text(Difference((1.0, 2.0, 3.0), "points"))
    '+2.0 [-0.5, +4.5]'
    """
    if found is None or found.mean is None:
        return NOTHING
    unit = " %" if found.unit == "%" else ""
    limits = found.interval
    shown = "" if limits is None else f" [{limits.low:+.1f}, {limits.high:+.1f}]"
    return f"{found.mean:+.1f}{shown}{unit}"


def outcome_text(found: Difference | None) -> str:
    """What a difference decides, in a word that fits a column."""
    if found is None or found.mean is None:
        return NOTHING
    return "not decidable" if found.outcome == UNDECIDED else found.outcome


def comparison_csv(summary: ComparisonSummary) -> str:
    """Every number of a comparison in full precision; percentages are shares of one."""
    text = io.StringIO()
    rows = [row.as_dict() for row in summary.table]
    writer = csv.DictWriter(
        text, list(dict.fromkeys(key for row in rows for key in row)) or ["method"], lineterminator="\n"
    )
    writer.writeheader()
    writer.writerows(rows)
    return text.getvalue()


def write_comparison(comparison: "Comparison") -> list[Path]:
    """Write the table of a comparison as CSV, Markdown and LaTeX into its folder."""
    summary = comparison.summary()
    grid = comparison_grid(summary)
    texts = {
        "table.csv": comparison_csv(summary),
        "table.md": f"{grid.title}\n\n{grid.markdown()}",
        "table.tex": grid.latex(),
    }
    for name, text in texts.items():
        (comparison.folder / name).write_text(text, encoding="utf-8")
    return [comparison.folder / name for name in texts]


def _mean_and_deviation(spread: Spread, percents: bool) -> str:
    deviation = "" if spread.std is None else f" ± {measured(spread.std, percents)}"
    return measured(spread.mean, percents) + deviation


def _against(row: ComparisonRow) -> tuple[str, str, str]:
    if row.difference is None:
        return ("baseline", NOTHING, NOTHING)
    wins = row.wins
    counts = NOTHING if wins is None else f"{wins.won} / {wins.tied} / {wins.lost}"
    return (difference_text(row.difference), outcome_text(row.difference), counts)


def _marks(notes: Sequence[Note], row: str) -> list[str]:
    return [superscript(number) for number, note in enumerate(notes, 1) if row in note.rows]


def _number(value: float | None) -> str:
    return NOTHING if value is None else f"{value:,.1f}"


# Columns of a comparison with devices: header and format of each clock value
CLOCK: dict[str, tuple[str, Callable[[float | None], str]]] = {
    "seconds": ("time on devices s", figures),
    "latency": ("straggling s", figures),
    "idle": ("idle %", percent),
    "late": ("late", figures),
    "dropped": ("dropped", figures),
}
