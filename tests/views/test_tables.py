"""One table, four ways to write it."""

import csv
import io

import pytest
from rich.console import Console

from fedtailor.runs.results import ComparisonRow, ComparisonSummary, Spread
from fedtailor.views.tables import Grid, comparison_csv, comparison_grid

ODD = "a_b & 50 % | {x} \\ ~^ #1 $ <t> [red]"


def row(method: str, final: float | None, deviation: float | None = None) -> ComparisonRow:
    accuracy = {model: Spread(None, None) for model in ("received", "held", "global")}
    accuracy["final"] = Spread(final, deviation)
    extra = Spread(0.1, 0.1)
    return ComparisonRow(method, 2, accuracy, extra, extra, extra, megabytes=1.5, seconds=2.0)


def summary(*rows: ComparisonRow) -> ComparisonSummary:
    return ComparisonSummary("cmp", "runs/cmp", "final", "per client", (0, 1), rows)


def test_mean_and_deviation_in_percent_and_the_best_in_bold() -> None:
    grid = comparison_grid(summary(row("a", 0.5, 0.012), row("b", 0.75), row("c", None)))
    assert grid.header[:2] == ("method", "final %")
    assert [cells[1] for cells in grid.rows] == ["50.0 ± 1.2", "75.0", "–"]
    assert {place for place in grid.best if place[1] == 1} == {(1, 1)}
    assert "**75.0**" in grid.markdown()
    assert "\\textbf{75.0}" in grid.latex()


def test_what_is_printed_alike_is_equally_good() -> None:
    grid = comparison_grid(summary(row("a", 0.75001), row("b", 0.75004), row("c", 0.5)))
    assert {place for place in grid.best if place[1] == 1} == {(0, 1), (1, 1)}


@pytest.mark.parametrize("rows", [[row("a", 0.5)], [row("a", 0.5), row("b", 0.5)], [row("a", None)]])
def test_nothing_is_best_where_nothing_differs(rows: list[ComparisonRow]) -> None:
    assert comparison_grid(summary(*rows)).best == frozenset()


def test_a_model_that_nobody_has_is_no_column() -> None:
    assert "global %" not in comparison_grid(summary(row("a", 0.5))).header


def test_a_table_without_runs_is_still_a_table() -> None:
    empty = summary()
    assert comparison_csv(empty) == "method\n"
    assert comparison_grid(empty).rows == ()
    assert "\\end{tabular}" in comparison_grid(empty).latex()
    assert comparison_grid(empty).markdown().count("\n") == 2


def test_latex_escapes_every_special_sign() -> None:
    text = Grid(("method",), ((ODD,),)).latex()
    cell = text.partition("\\midrule\n")[2].partition(" \\\\\n")[0]
    plain = cell
    for escaped in (
        "\\textbackslash{}",
        "\\textasciitilde{}",
        "\\textasciicircum{}",
        "\\textless{}",
        "\\textgreater{}",
    ):
        assert escaped in plain
        plain = plain.replace(escaped, "")
    for sign in "&%$#_{}":
        plain = plain.replace(f"\\{sign}", "")
    assert not set("&%$#_{}\\~^<>") & set(plain)


def test_markdown_cells_stay_in_their_columns() -> None:
    lines = Grid(("method", "x"), ((ODD, "1"), ("b", "22"))).markdown().splitlines()
    assert len({len(line) for line in lines}) == 1
    assert all(line.replace("\\|", "").count("|") == 3 for line in lines)
    assert lines[1].endswith("--: |")


def test_csv_keeps_full_precision() -> None:
    (found,) = csv.DictReader(io.StringIO(comparison_csv(summary(row('odd, "name"', 1 / 3)))))
    assert float(found["final"]) == 1 / 3
    assert found["method"] == 'odd, "name"'
    assert found["global"] == ""


def test_brackets_are_shown_and_not_taken_as_markup() -> None:
    console = Console(file=io.StringIO(), width=100, markup=False)
    console.print(Grid(("method",), ((ODD,),)).rich())
    assert "[red]" in console.file.getvalue()  # type: ignore[attr-defined]


def test_a_narrow_terminal_shows_fewer_columns_and_no_broken_numbers() -> None:
    grid = comparison_grid(summary(row("a-long-name", 0.5, 0.012), row("b", 0.75, 0.1)))
    for width in (30, 60, 80, 200):
        shown = grid.fitting(width)
        console = Console(file=io.StringIO(), width=width, markup=False)
        console.print(shown.rich())
        text = console.file.getvalue()  # type: ignore[attr-defined]
        assert all(cell in text for cells in shown.rows for cell in cells), text
    assert grid.fitting(200) == grid
    assert len(grid.fitting(60).header) < len(grid.header)


def test_a_column_of_sentences_wraps() -> None:
    grid = Grid(("claim", "verdict"), (("a claim " * 10, "holds"),), words=frozenset({0, 1}), sentences=True)
    printed = io.StringIO()
    Console(width=40, file=printed).print(grid.rich())
    assert "verdict" in printed.getvalue()
    assert "holds" in printed.getvalue()
