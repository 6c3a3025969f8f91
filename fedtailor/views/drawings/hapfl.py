"""HAPFL: the clients' times, and the accuracy of the models of every size."""

from statistics import fmean
from typing import TYPE_CHECKING, Any

from fedtailor.runs import Run
from fedtailor.views.curves import COLOURS, FAINT, GREY, INK, dress, legend, new_figure, title
from fedtailor.views.drawings import Drawing
from fedtailor.views.panels.hapfl import spread, turns

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

BARS = 40  # most rounds that are drawn as single bars
NAMED = 30  # most clients whose bars are labelled


def drawings(run: Run) -> dict[str, Drawing]:
    found: dict[str, Drawing] = {}
    if run.server_state().get("timeline", {}).get("first"):
        found["timeline"] = timeline
    if run.clock():
        found["clock"] = clock
    if any(row["model"] == "global" for row in run.metrics()):
        found["sizes"] = sizes
    return found


def timeline(run: Run) -> "Figure":
    """What every client does in the first and in the latest round: assessment, training, waiting."""
    kept = run.server_state()["timeline"]
    return rounds(run, {"first round": kept["first"], "latest round": kept["latest"]})


def rounds(run: Run, rounds: dict[str, dict[str, Any]]) -> "Figure":
    """What every client does in these two rounds of the run, or of others with the same model sizes."""
    bars = {what: turns(allocation) for what, allocation in rounds.items()}
    most = max(len(rows) for rows in bars.values())
    figure = new_figure(9, 1.6 + 0.6 * max(4, min(most, NAMED)))
    panels = figure.subplots(2, 1, sharex=True)
    names = list(run.server_state()["hapfl"]["flops"])
    for axes, (what, rows) in zip(panels, bars.items(), strict=True):
        clients = [run.label(row["client"]) if run.names else f"client {row['client']}" for row in rows]
        _draw_round(axes, rows, names, clients)
        axes.set_title(f"{what}: {spread(rows)}", loc="left", fontsize=9, color=GREY)
    panels[-1].set_xlabel("seconds on the devices" if run.clock() else "multiply-adds")
    panels[-1].set_xlim(right=1.08 * panels[-1].get_xlim()[1])  # room for the last number of epochs
    handles, labels = panels[-1].get_legend_handles_labels()
    known = dict(zip(labels, handles, strict=True))
    known |= dict(zip(*panels[0].get_legend_handles_labels()[::-1], strict=True))
    figure.legend(known.values(), known.keys(), loc="outside lower center", ncols=len(known), frameon=False)
    figure.suptitle(run.name, x=0.01, ha="left", fontsize=12, color=INK)
    return figure


def clock(run: Run) -> "Figure":
    """The time of every round, and its straggling latency; for many rounds, means."""
    rows = run.clock()
    group = -(-len(rows) // BARS)
    parts = [rows[start : start + group] for start in range(0, len(rows), group)]
    figure = new_figure(9, 5.4)
    for axes, (key, name) in zip(
        figure.subplots(2, 1, sharex=True), {"seconds": "time", "latency": "straggling latency"}.items(), strict=True
    ):
        values = [[row[key] for row in part if row[key] is not None] for part in parts]
        places = [1 + group * place + (group - 1) / 2 for place in range(len(parts))]
        axes.bar(places, [fmean(v) if v else 0.0 for v in values], width=0.8 * group, color=COLOURS[0], zorder=3)
        axes.set_ylabel(f"{name} (s)")
        axes.grid(axis="y", color=FAINT)
        axes.set_axisbelow(True)
        axes.spines[["top", "right"]].set_visible(False)
    figure.axes[-1].locator_params(axis="x", integer=True)
    figure.axes[-1].set_xlabel("round" if group == 1 else f"round, means of {group}")
    total = sum(row["seconds"] for row in rows)
    title(figure.axes[0], run.name, f"{total:.4g} s on the devices in {len(rows)} rounds")
    return figure


def sizes(run: Run) -> "Figure":
    """The accuracy of the LiteModel and of the model of every size, over the rounds, on all test samples."""
    figure = new_figure(8.5, 4.2)
    axes = figure.subplots()
    models = {"global": "LiteModel", **{name: name for name in run.server_state()["hapfl"]["sizes"]}}
    for colour, (model, name) in zip(COLOURS, models.items(), strict=False):
        rows = [row for row in run.metrics(model) if row["pooled"] is not None]
        if rows:
            values = [100 * row["pooled"] for row in rows]
            rounds, marker = [row["round"] for row in rows], "o" if len(rows) < 3 else None
            axes.plot(rounds, values, color=colour, label=f"{name} {values[-1]:.1f}", linewidth=2, marker=marker)
    dress(axes, run.settings["rounds"])
    settings = run.settings
    title(axes, run.name, f"hapfl on {settings['data']['source']}, seed {settings['seed']}; accuracy over all samples")
    legend(figure, axes)
    return figure


def _draw_round(axes: "Axes", rows: list[dict[str, Any]], names: list[str], clients: list[str]) -> None:
    """Draw the phases of a round; each phase lasts until its slowest client has finished."""
    begin = max((row["assessment"] for row in rows), default=0.0)
    end = begin + max((row["training"] for row in rows), default=0.0)
    places = range(len(rows))
    axes.barh(places, [end] * len(rows), color=FAINT, label="waiting", zorder=1)
    axes.barh(places, [row["assessment"] for row in rows], color=GREY, label="assessment", zorder=2)
    for colour, name in zip(COLOURS[1:], names, strict=False):  # the first is the LiteModel's
        own = [place for place in places if rows[place]["size"] == name]
        if own:
            axes.barh(own, [rows[p]["training"] for p in own], left=begin, color=colour, label=name, zorder=2)
    if len(rows) <= NAMED:
        axes.set_yticks(places, clients)
        for place, row in enumerate(rows):
            axes.annotate(
                f"{row['epochs']} epochs",
                (begin + row["training"], place),
                (4, 0),
                textcoords="offset points",
                va="center",
                fontsize=8,
                color=INK,
            )
    else:
        axes.set_ylabel(f"{len(rows)} clients")
    axes.invert_yaxis()
    axes.tick_params(axis="y", length=0, labelsize=8)
    axes.spines[["top", "right", "left"]].set_visible(False)
