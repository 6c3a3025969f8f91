"""The table of a comparison: what is decided, and what a reader must know about its rows."""

import csv
import io
from dataclasses import replace

from rich.console import Console

from fedtailor.runs.results import ComparisonRow, ComparisonSummary, Note, Spread
from fedtailor.runs.statistics import Difference, Wins
from fedtailor.views.comparison import comparison_csv, comparison_grid


def row(method: str, final: float | None, deviation: float | None = None) -> ComparisonRow:
    accuracy = {model: Spread(None, None) for model in ("received", "held", "global", "new")}
    accuracy["final"] = Spread(final, deviation)
    extra = Spread(0.1, 0.1)
    return ComparisonRow(method, 2, accuracy, extra, extra, extra, megabytes=1.5, seconds=2.0)


def summary(*rows: ComparisonRow) -> ComparisonSummary:
    return ComparisonSummary("cmp", "runs/cmp", "final", "accuracy", True, "per client", (0, 1), rows)


def test_a_model_without_scores_is_no_column() -> None:
    assert "global %" not in comparison_grid(summary(row("a", 0.5))).header


def test_a_table_without_runs_is_still_a_table() -> None:
    empty = summary()
    assert comparison_csv(empty) == "method\n"
    assert comparison_grid(empty).rows == ()
    assert "\\end{tabular}" in comparison_grid(empty).latex()
    assert comparison_grid(empty).markdown().count("\n") == 2


def test_csv_keeps_full_precision() -> None:
    (found,) = csv.DictReader(io.StringIO(comparison_csv(summary(row('odd, "name"', 1 / 3)))))
    assert float(found["final"]) == 1 / 3
    assert found["method"] == 'odd, "name"'
    assert found["global"] == ""


def test_a_narrow_terminal_shows_fewer_columns_and_no_broken_numbers() -> None:
    grid = comparison_grid(summary(row("a-long-name", 0.5, 0.012), row("b", 0.75, 0.1)))
    for width in (30, 60, 80, 200):
        shown = grid.fitting(width)
        console = Console(file=io.StringIO(), width=width, markup=False)
        console.print(shown.rich())
        text = console.file.getvalue()  # type: ignore[attr-defined]
        assert all(cell in text for cells in shown.rows for cell in cells), text
    assert grid.fitting(300) == grid
    assert len(grid.fitting(60).header) < len(grid.header)


def test_intervals_and_outcomes_stand_beside_the_headline_and_nothing_is_bold() -> None:
    ahead = replace(row("b", 0.75), difference=Difference((2.9, 3.0, 3.1), "points"), wins=Wins(9, 1, 2), seeds=3)
    grid = comparison_grid(replace(summary(ahead, row("a", 0.5, 0.012), row("c", None)), baseline="a"))
    assert grid.header[:5] == ("method", "final %", "against a", "decided", "clients won / tied / lost")
    assert grid.rows[0][:5] == ("b", "75.0", "+3.0 [+2.8, +3.2]", "ahead", "9 / 1 / 2")
    assert grid.rows[1][:3] == ("a", "50.0 ± 1.2", "baseline")
    assert "**" not in grid.markdown()
    assert "textbf" not in grid.latex()
    assert "1 comparison was made" in grid.notes[-1]
    assert "95 % t-interval" in grid.notes[-1]
    (first, *_) = csv.DictReader(io.StringIO(comparison_csv(summary(ahead))))
    assert (first["decided"], first["clients_won"], first["difference_unit"]) == ("ahead", "9", "points")


def test_two_seeds_decide_nothing_and_the_table_says_how_to_get_more() -> None:
    two = replace(row("b", 0.75), difference=Difference((2.9, 3.1), "points"))
    grid = comparison_grid(replace(summary(two, row("a", 0.5)), baseline="a"))
    assert grid.rows[0][3] == "not decidable"
    assert "--seeds 0,1,2" in grid.notes[-1]


def test_a_note_is_marked_in_its_rows() -> None:
    notes = (Note(("b",), "it only explores"), Note(("a", "b"), "they are equal"))
    grid = comparison_grid(replace(summary(row("a", 0.5), row("b", 0.5)), notes=notes))
    assert [cells[0] for cells in grid.rows] == ["a ²", "b ¹ ²"]
    assert grid.notes[:2] == ("¹ b: it only explores", "² a, b: they are equal")


def test_a_note_names_its_rows_once() -> None:
    """A warning of a method begins with the method's name, which often is the name of the row."""
    assert Note(("bwa",), "bwa: the rule 'uniform' decides").text == "bwa: the rule 'uniform' decides"
    assert Note(("bwa, fp32", "bwa"), "bwa: it explores").text == "bwa, fp32, bwa: bwa: it explores"
    assert Note(("bwa",), "bwa-like: it explores").text == "bwa: bwa-like: it explores"


def test_no_number_is_cut_where_the_table_just_fits() -> None:
    rows = []
    for name in ("local", "fedavg", "fedavg-ft", "fedper"):
        accuracy = {model: Spread(0.581, 0.08) for model in ("final", "held", "received", "global")}
        accuracy["new"] = Spread(None, None)
        spread = Spread(0.181, 0.134)
        found = Difference((-2.3, -1.7, -2.1), "points")
        rows.append(
            replace(row(name, 0.5), headline=accuracy, worst_tenth=spread, difference=found, wins=Wins(1, 52, 7))
        )
    grid = comparison_grid(replace(summary(*rows), baseline="local"))
    for width in range(60, 200, 3):
        shown = grid.fitting(width)
        console = Console(file=io.StringIO(), width=width, markup=False)
        console.print(shown.rich())
        text = console.file.getvalue()  # type: ignore[attr-defined]
        assert all(cell in text for cells in shown.rows for cell in cells), (width, text)
        assert all(word in text for name in shown.header for word in name.split()), (width, text)
