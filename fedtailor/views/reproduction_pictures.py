"""The pictures of a reproduction's tables: bars, lines over the columns, or curves over rounds."""

from collections.abc import Sequence
from pathlib import Path
from statistics import stdev
from typing import TYPE_CHECKING, Any

from fedtailor.runs.reproduce import Cell, Table
from fedtailor.views.curves import COLOURS, FAINT, GREY, STROKES, new_figure

if TYPE_CHECKING:
    from matplotlib.axes import Axes

ACROSS = 4  # panels beside each other
AXES = {
    "rounds": "round",
    "steps": "gradient steps of all clients",
    "seconds": "seconds of all clients",
    "clock": "time on the clients' devices (s)",
    "bytes": "MB sent",
}


def draw_table(table: Table, path: Path) -> Path:
    """Draw a table as its declaration says."""
    if table.declared.picture == "lines":
        figure = new_figure(max(6.5, 1.1 * len(table.columns) + 3.5), 4.4)
        _lines(figure.subplots(), table)
    else:
        bars = table.declared.picture == "bars"
        drawn = {curve.column for curve in table.curves}
        columns = [i for i, title in enumerate(table.columns) if (any(_known(table, i)) if bars else title in drawn)]
        across = min(ACROSS, max(1, len(columns)))
        down = -(-len(columns) // across)
        height = 0.8 + 0.26 * len(table.rows) if bars else max(3.3, (0.6 + 0.2 * len(table.rows)) / down)
        figure = new_figure(3.6 * across + (0 if bars else 2.2), max(2.4, height) * down)
        panels = figure.subplots(down, across, squeeze=False, sharey=bars).ravel()
        for axes, index in zip(panels, columns, strict=False):
            _bars(axes, table, index) if bars else _curves(axes, table, table.columns[index])
        for axes in panels[len(columns) :]:
            axes.set_axis_off()
    if table.declared.picture != "bars":
        named: dict[str, Any] = {}
        for axes in figure.axes:
            named |= {label: handle for handle, label in zip(*axes.get_legend_handles_labels(), strict=True)}
        figure.legend(named.values(), named.keys(), loc="outside right center", frameon=False, fontsize=8)
    figure.savefig(path)
    return path


def _bars(axes: "Axes", table: Table, index: int) -> None:
    rows = [(title, cells[index]) for title, cells in table.rows.items()]
    for place, (_, cell) in enumerate(rows):
        if cell.mean is not None:
            axes.barh(place, cell.mean, xerr=_deviation(cell), color=COLOURS[0], ecolor=GREY, capsize=2, zorder=3)
    axes.set_yticks(range(len(rows)), [title for title, _ in rows], fontsize=8)
    axes.set_ylim(len(rows) - 0.4, -0.6)
    axes.set_xlabel(_unit(cell for _, cell in rows), fontsize=8)
    _dress(axes, table.columns[index], "x")


def _lines(axes: "Axes", table: Table) -> None:
    for place, (title, cells) in enumerate(table.rows.items()):
        points = [(x, cell) for x, cell in enumerate(cells) if cell.mean is not None]
        axes.errorbar(
            [x for x, _ in points],
            [cell.mean for _, cell in points if cell.mean is not None],
            [_deviation(cell) for _, cell in points],
            label=title,
            linewidth=2.6 if title in table.declared.lead else 1.4,
            capsize=3,
            **_look(place),
        )
    axes.set_xticks(range(len(table.columns)), table.columns, fontsize=8, rotation=20, ha="right")
    axes.set_ylabel(_unit(cell for cells in table.rows.values() for cell in cells))
    _dress(axes, table.declared.title, "both")


def _curves(axes: "Axes", table: Table, column: str) -> None:
    from matplotlib.ticker import MaxNLocator

    rows = list(table.rows)
    for curve in table.curves:
        if curve.column == column:
            x, y = zip(*curve.points, strict=True)
            width = 2.6 if curve.row in table.declared.lead else 1.4
            axes.plot(x, y, label=curve.row, linewidth=width, **_look(rows.index(curve.row)))
    axes.set_xlabel(AXES[table.declared.over_axis])
    if table.declared.over_axis == "rounds":
        axes.xaxis.set_major_locator(MaxNLocator(integer=True))
    axes.set_ylabel("accuracy (%)")
    alone = len({curve.column for curve in table.curves}) == 1
    _dress(axes, table.declared.curve or column if alone else column, "both")


def _look(place: int) -> dict[str, Any]:
    return {"color": COLOURS[place % len(COLOURS)], "linestyle": STROKES[place // len(COLOURS) % len(STROKES)]}


def _dress(axes: "Axes", title: str, grid: Any) -> None:
    axes.set_title(title, loc="left", fontsize=9)
    axes.grid(axis=grid, color=FAINT)
    axes.set_axisbelow(True)
    axes.spines[["top", "right"]].set_visible(False)


def _known(table: Table, index: int) -> Sequence[bool]:
    return [cells[index].mean is not None for cells in table.rows.values()]


def _deviation(cell: Cell) -> float:
    return stdev(cell.known) if len(cell.known) > 1 else 0.0


def _unit(cells: Any) -> str:
    units = {cell.measure.unit for cell in cells} - {""}
    return next(iter(units)) if len(units) == 1 else ""
