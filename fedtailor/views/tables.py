"""Tables for the terminal, Markdown, LaTeX and CSV, and the table of a comparison."""

import csv
import io
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from rich.box import SIMPLE_HEAD
from rich.table import Table
from rich.text import Text

from fedtailor.views.numbers import NOTHING, figures, percent

if TYPE_CHECKING:
    from fedtailor.runs import Comparison, ComparisonSummary
    from fedtailor.runs.results import Spread


@dataclass(frozen=True)
class Grid:
    """A table of texts; ``best`` holds the (row, column) of the cells to set in bold."""

    header: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    best: frozenset[tuple[int, int]] = frozenset()
    words: frozenset[int] = frozenset({0})  # columns of words, aligned to the left
    title: str = ""
    sentences: bool = False  # whether the first column holds sentences, not names

    def rich(self) -> Table:
        """The table for the terminal."""
        table = Table(title=self.title or None, title_justify="left", title_style="bold", box=SIMPLE_HEAD)
        for column, name in enumerate(self.header):
            justify: Literal["left", "right"] = "left" if column in self.words else "right"
            # Names must not wrap, so that they can be copied into a command; sentences and headers may.
            narrowest = None if column in self.words else self._narrowest(column)
            table.add_column(name, justify=justify, no_wrap=column == 0 and not self.sentences, min_width=narrowest)
        for row, cells in enumerate(self.rows):
            table.add_row(*(Text(c, style="bold" if (row, i) in self.best else "") for i, c in enumerate(cells)))
        return table

    def markdown(self) -> str:
        """The table as Markdown with aligned columns."""
        rows = [
            [
                f"**{_escape_markdown(c)}**" if (row, i) in self.best else _escape_markdown(c)
                for i, c in enumerate(cells)
            ]
            for row, cells in enumerate(self.rows)
        ]
        widths = [max(3, *map(len, column)) for column in zip(self.header, *rows, strict=True)]
        rule = ["-" * w if i in self.words else "-" * (w - 1) + ":" for i, w in enumerate(widths)]
        lines = [list(self.header), rule, *rows]
        return "".join("| " + " | ".join(self._padded(line, widths)) + " |\n" for line in lines)

    def latex(self) -> str:
        """The table as a LaTeX booktabs tabular."""
        columns = "".join("l" if i in self.words else "r" for i in range(len(self.header)))
        rows = [
            [
                f"\\textbf{{{_escape_latex(c)}}}" if (row, i) in self.best else _escape_latex(c)
                for i, c in enumerate(cells)
            ]
            for row, cells in enumerate(self.rows)
        ]
        body = [" & ".join(row) + r" \\" for row in rows]
        head = " & ".join(map(_escape_latex, self.header)) + r" \\"
        caption = [f"% {self.title}"] if self.title else []
        lines = [
            "% needs \\usepackage{booktabs}",
            *caption,
            f"\\begin{{tabular}}{{{columns}}}",
            "\\toprule",
            head,
            "\\midrule",
            *body,
            "\\bottomrule",
            "\\end{tabular}",
        ]
        return "\n".join(lines) + "\n"

    def fitting(self, width: int) -> "Grid":
        """The leftmost columns, at least two, that fit into a width without broken numbers."""
        needed, columns = 1, 0
        for column in range(len(self.header)):
            needed += self._narrowest(column) + 3
            columns += needed <= width
        kept = max(2, columns)
        rows = tuple(row[:kept] for row in self.rows)
        return Grid(self.header[:kept], rows, self.best, self.words, self.title, self.sentences)

    def _narrowest(self, column: int) -> int:
        cells = [row[column] for row in self.rows]
        return max(map(len, (*self.header[column].split(), *cells)), default=0)

    def _padded(self, cells: Sequence[str], widths: Sequence[int]) -> list[str]:
        return [
            c.ljust(w) if i in self.words else c.rjust(w) for i, (c, w) in enumerate(zip(cells, widths, strict=True))
        ]


def comparison_grid(summary: "ComparisonSummary") -> Grid:
    """The table of a comparison: the headline first, mean ± deviation over the seeds in percent."""
    table = summary.table
    models = [summary.metric, *(m for m in ("final", "held", "received", "global") if m != summary.metric)]
    spreads = {
        f"{model} %": [row.accuracy[model] for row in table]
        for model in models
        if any(row.accuracy[model].mean is not None for row in table)
    }
    spreads["worst 10 % of clients"] = [row.worst_tenth for row in table]
    best = [_best(column) for column in spreads.values()]
    spreads["std of clients"] = [row.deviation for row in table]  # neither high nor low is best
    clock = CLOCK if table and table[0].clock is not None else {}
    rows = [
        (
            row.method,
            *(_mean_and_deviation(column[index]) for column in spreads.values()),
            *(write(getattr(row.clock, key)) for key, (_, write) in clock.items()),
            _number(row.megabytes),
            _number(row.seconds),
            str(row.seeds),
        )
        for index, row in enumerate(table)
    ]
    return Grid(
        ("method", *spreads, *(name for name, _ in clock.values()), "MB", "seconds", "seeds"),
        tuple(rows),
        frozenset((row, 1 + column) for column, those in enumerate(best) for row in those),
        title=f"{summary.name}: accuracy averaged {summary.average}, mean ± deviation over seeds",
    )


def comparison_csv(summary: "ComparisonSummary") -> str:
    """Every number of a comparison in full precision; accuracies are shares of one."""
    text = io.StringIO()
    rows = [row.as_dict() for row in summary.table]
    writer = csv.DictWriter(text, list(rows[0]) if rows else ["method"], lineterminator="\n")
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


def _mean_and_deviation(spread: "Spread") -> str:
    return percent(spread.mean) + ("" if spread.std is None else f" ± {percent(spread.std)}")


def _best(column: Sequence["Spread"]) -> set[int]:
    """The rows with the highest printed mean; none if all are equal or only one is known."""
    known = {index: float(percent(spread.mean)) for index, spread in enumerate(column) if spread.mean is not None}
    if len(known) < 2 or len(set(known.values())) == 1:
        return set()
    return {index for index, value in known.items() if value == max(known.values())}


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


def _escape_markdown(text: str) -> str:
    for sign in "\\|*_`<":
        text = text.replace(sign, "\\" + sign)
    return text.replace("\n", " ")


def _escape_latex(text: str) -> str:
    escaped = "".join(_LATEX.get(sign, sign) for sign in text)
    return escaped.replace(" $\\pm$ ", "$\\,\\pm\\,$")


_LATEX = {
    "\\": r"\textbackslash{}",
    "~": r"\textasciitilde{}",
    "^": r"\textasciicircum{}",
    **{sign: f"\\{sign}" for sign in "&%$#_{}"},
    "<": r"\textless{}",
    ">": r"\textgreater{}",
    "±": r"$\pm$",
    NOTHING: "--",
}
