"""Tables of texts for the terminal, Markdown and LaTeX."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Literal

from rich.box import SIMPLE_HEAD
from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from fedtailor.views.numbers import NOTHING


@dataclass(frozen=True)
class Grid:
    """A table of texts with footnotes."""

    header: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    words: frozenset[int] = frozenset({0})  # columns of words, aligned to the left
    title: str = ""
    sentences: bool = False  # whether the first column holds sentences, not names
    notes: tuple[str, ...] = ()  # sentences below the table
    tight: bool = False  # whether columns of numbers are as narrow as their cells

    def rich(self) -> Table:
        """The table for the terminal."""
        table = Table(title=self.title or None, title_justify="left", title_style="bold", box=SIMPLE_HEAD)
        for column, name in enumerate(self.header):
            justify: Literal["left", "right"] = "left" if column in self.words else "right"
            # Names must not wrap, so that they can be copied into a command; sentences and headers may.
            narrowest = None if column in self.words else self._narrowest(column)
            table.add_column(
                name,
                justify=justify,
                no_wrap=column == 0 and not self.sentences,
                min_width=narrowest,
                width=narrowest if self.tight else None,
            )
        for cells in self.rows:
            table.add_row(*map(Text, cells))
        return table

    def page(self) -> RenderableType:
        """The table for the terminal, with its notes."""
        return Group(self.rich(), *map(Text, self.notes))

    def markdown(self) -> str:
        """The table as Markdown with aligned columns, then its notes."""
        rows = [list(map(_escape_markdown, cells)) for cells in self.rows]
        widths = [max(3, *map(len, column)) for column in zip(self.header, *rows, strict=True)]
        rule = ["-" * w if i in self.words else "-" * (w - 1) + ":" for i, w in enumerate(widths)]
        lines = [list(self.header), rule, *rows]
        table = "".join("| " + " | ".join(self._padded(line, widths)) + " |\n" for line in lines)
        return table + "".join(f"\n{_escape_markdown(note)}\n" for note in self.notes)

    def latex(self) -> str:
        """The table as a LaTeX booktabs tabular."""
        columns = "".join("l" if i in self.words else "r" for i in range(len(self.header)))
        body = [" & ".join(map(_escape_latex, cells)) + r" \\" for cells in self.rows]
        head = " & ".join(map(_escape_latex, self.header)) + r" \\"
        caption = [f"% {self.title}"] if self.title else []
        lines = [
            "% needs \\usepackage{booktabs,amssymb}",
            *caption,
            f"\\begin{{tabular}}{{{columns}}}",
            "\\toprule",
            head,
            "\\midrule",
            *body,
            "\\bottomrule",
            "\\end{tabular}",
            *(f"\n{_escape_latex(note)}" for note in self.notes),
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
        # Left to itself, rich narrows the widest columns below what their numbers need.
        natural = 1 + sum(max(map(len, column)) + 3 for column in zip(self.header[:kept], *rows, strict=True))
        return replace(self, header=self.header[:kept], rows=rows, tight=natural > width)

    def _narrowest(self, column: int) -> int:
        cells = [row[column] for row in self.rows]
        return max(map(len, (*self.header[column].split(), *cells)), default=0)

    def _padded(self, cells: Sequence[str], widths: Sequence[int]) -> list[str]:
        return [
            c.ljust(w) if i in self.words else c.rjust(w) for i, (c, w) in enumerate(zip(cells, widths, strict=True))
        ]


def superscript(number: int) -> str:
    """The mark of a footnote.

    >>> superscript(12)
    '¹²'
    """
    return "".join("⁰¹²³⁴⁵⁶⁷⁸⁹"[int(digit)] for digit in str(number))


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
    "▲": r"$\blacktriangle$",
    "△": r"$\triangle$",
    "▼": r"$\blacktriangledown$",
    **{sign: f"$^{number}$" for number, sign in enumerate("⁰¹²³⁴⁵⁶⁷⁸⁹")},
    NOTHING: "--",
}
