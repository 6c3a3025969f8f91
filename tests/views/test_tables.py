"""One table, four ways to write it."""

import io

from rich.console import Console

from fedtailor.views.tables import Grid

ODD = "a_b & 50 % | {x} \\ ~^ #1 $ <t> [red]"


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


def test_brackets_are_shown_and_not_taken_as_markup() -> None:
    console = Console(file=io.StringIO(), width=100, markup=False)
    console.print(Grid(("method",), ((ODD,),)).rich())
    assert "[red]" in console.file.getvalue()  # type: ignore[attr-defined]


def test_a_column_of_sentences_wraps() -> None:
    grid = Grid(("claim", "verdict"), (("a claim " * 10, "holds"),), words=frozenset({0, 1}), sentences=True)
    printed = io.StringIO()
    Console(width=40, file=printed).print(grid.rich())
    assert "verdict" in printed.getvalue()
    assert "holds" in printed.getvalue()


def test_notes_stand_below_the_table_in_every_form() -> None:
    grid = Grid(("method",), (("bwa ¹",),), notes=("¹ bwa: it only explores",))
    printed = io.StringIO()
    Console(width=40, file=printed).print(grid.page())
    assert "¹ bwa: it only explores" in printed.getvalue()
    assert grid.markdown().endswith("\n\n¹ bwa: it only explores\n")
    assert "bwa $^1$" in grid.latex()
    assert grid.latex().endswith("$^1$ bwa: it only explores\n")
