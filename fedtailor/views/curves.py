"""Curves of the headline measure over rounds or over time, for a run or a comparison."""

import math
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import accumulate
from pathlib import Path
from statistics import fmean, stdev
from textwrap import fill
from typing import TYPE_CHECKING, Any, Literal

from fedtailor.runs import Run

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

    from fedtailor.runs import Comparison

# Okabe and Ito's colours, which can be distinguished with any colour vision and in print
COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#000000", "#8B6914")
STROKES = ("-", "--", "-.", ":")
MODELS = {"held": COLOURS[0], "global": COLOURS[1], "received": COLOURS[2]}
FEW = 6  # most methods for which bands are still readable
WIDEST = 44  # characters in a line of the legend
INK, GREY, FAINT = "#333333", "#8a94a0", "#e6e9ed"

Over = Literal["round", "time"]  # time: on the clients' devices


@dataclass(frozen=True)
class Curve:
    """Mean and deviation over the seeds for each round, and the final pass; shares are in percent."""

    label: str
    rounds: Sequence[float]  # over time: the times at which rounds end
    means: list[float]
    spreads: list[float]
    final: list[float]
    costs: Mapping[str, list[float]] = field(default_factory=dict)  # after each round: megabytes, seconds, ...


def draw_run(run: Run, path: Path) -> Path:
    """Every model's headline measure over the rounds of a run, as a file."""
    return _save(run_figure(run), path)


def run_figure(run: Run) -> "Figure":
    """Every model's headline measure over the rounds of a run."""
    figure = new_figure(9, 4.6)
    axes = figure.subplots()
    by_model: dict[str, list[dict[str, Any]]] = defaultdict(list)
    scale = 100 if run.shows_percent else 1
    for row in run.curve():
        if row["mean"] is not None:
            by_model[row["model"]].append({**row, **{key: scale * row[key] for key in ("mean", "worst_tenth")}})
    final = by_model.pop("final", [])
    by_model.pop("new", None)  # a single point, which the tables show
    _draw_models(axes, by_model)
    if final:
        _draw_final(axes, run.settings["rounds"], final[-1]["mean"])
    dress(axes, run.settings["rounds"], run.headline, run.shows_percent)
    settings = run.settings
    title(
        axes,
        run.name,
        f"{settings['method']['name']} on {settings['data']['source']}, seed {settings['seed']}; mean over clients",
    )
    legend(figure, axes)
    return figure


def draw_comparison(comparison: "Comparison", path: Path, over: Over = "round") -> Path:
    """The methods of a comparison, as a file."""
    return _save(comparison_figure(comparison, over), path)


def comparison_figure(comparison: "Comparison", over: Over = "round") -> "Figure":
    """The methods of a comparison: mean over seeds with a band of one deviation; at the right the final pass."""
    headline = comparison.experiment.compare.model
    curves = comparison_curves(comparison, over)
    looks = _looks([curve.label for curve in curves])
    figure = new_figure(9.5 + 0.12 * max(0, len(curves) - FEW), max(4.6, 1.2 + 0.27 * len(curves)))
    with_final = headline == "final" and any(curve.final for curve in curves)
    if with_final:
        axes, aside = figure.subplots(1, 2, sharey=True, width_ratios=[5, min(max(1.0, 0.16 * len(curves)), 1.6)])
        _draw_finals(aside, curves, looks)
    else:
        axes = figure.subplots()
    bands = len(curves) <= FEW
    for curve in curves:
        _draw_curve(axes, curve, looks[curve.label], bands)
    summary = comparison.summary()
    dress(axes, comparison.experiment.rounds if over == "round" else None, summary.measure, summary.percent)
    average = "samples" if comparison.experiment.compare.pooled else "clients"
    shown = "held model (global where there is none)" if headline == "final" else f"{headline} model"
    seeds = len(comparison.experiment.compare.seeds)
    spread = f"; {seeds} seeds" + (", band: one deviation" if bands else "") if seeds > 1 else ""
    title(axes, comparison.experiment.name, f"{shown}, mean over {average}{spread}")
    legend(figure, axes)
    return figure


def comparison_curves(comparison: "Comparison", over: Over = "round") -> list[Curve]:
    """A curve per method, sorted by the last value, best first."""
    settings = comparison.experiment.compare
    statistic, better = "pooled" if settings.pooled else "mean", 1
    wanted = ("held", "global") if settings.model == "final" else (settings.model,)
    curves = []
    for label, folders in comparison.runs().items():
        points: dict[int, list[float]] = defaultdict(list)
        ends: dict[int, list[float]] = defaultdict(list)
        costs: dict[str, dict[int, list[float]]] = defaultdict(lambda: defaultdict(list))
        final: list[float] = []
        for folder in folders:
            with Run(folder) as run:
                rows, scale = run.curve(), 100.0 if run.shows_percent else 1.0
                better = -1 if run.less_is_better else 1
                found = _values(rows, wanted, statistic, scale)
                final += _values(rows, ("final",), statistic, scale).values()
                for row in run.clock():
                    ends[row["round"]].append(row["begin"] + row["seconds"])
                _add_costs(costs, run.rounds())
            for round, value in found.items():
                points[round].append(value)
        rounds = sorted(points)
        spreads = [stdev(points[r]) if len(points[r]) > 1 else 0.0 for r in rounds]
        places = rounds if over == "round" else [fmean(ends[r]) for r in rounds]
        spent = {name: [fmean(by_round[r]) for r in rounds] for name, by_round in costs.items()}
        if ends:
            spent["device_seconds"] = [fmean(ends[r]) for r in rounds]
        curves.append(Curve(label, places, [fmean(points[r]) for r in rounds], spreads, final, spent))
    return sorted(curves, key=lambda curve: -better * _end(curve, settings.model, better))


def _add_costs(costs: dict[str, dict[int, list[float]]], rounds: Sequence[Mapping[str, Any]]) -> None:
    """Add what one run had cost after every round."""
    sent = accumulate((row["bytes_down"] + row["bytes_up"]) / 1e6 for row in rounds)
    spent = accumulate(row["seconds"] for row in rounds)
    for row, megabytes, seconds in zip(rounds, sent, spent, strict=True):
        costs["megabytes"][row["round"]].append(megabytes)
        costs["seconds"][row["round"]].append(seconds)


def _values(rows: Sequence[Mapping[str, Any]], models: Sequence[str], statistic: str, scale: float) -> dict[int, float]:
    """The headline by round, of the first of these models that was evaluated."""
    for model in models:
        found = {r["round"]: scale * r[statistic] for r in rows if r["model"] == model and r[statistic] is not None}
        if found:
            return found
    return {}


def _end(curve: Curve, model: str, better: int) -> float:
    if model == "final" and curve.final:
        return fmean(curve.final)
    return curve.means[-1] if curve.means else -better * math.inf


def _draw_models(axes: "Axes", by_model: Mapping[str, list[dict[str, Any]]]) -> None:
    others = [model for model in by_model if model not in MODELS]
    if len(others) > FEW:
        _draw_many(axes, [by_model[model] for model in others], others[0].partition("/")[0])
        others = []
    shaded = next((model for model in MODELS if model in by_model), None)
    for model in [*(m for m in MODELS if m in by_model), *others]:
        rows = by_model[model]
        rounds = [row["round"] for row in rows]
        colour = MODELS.get(model, GREY)
        means = [row["mean"] for row in rows]
        marker = "o" if len(rounds) < 3 else None
        axes.plot(
            rounds, means, color=colour, label=f"{model} {_figures(means[-1])}", linewidth=2, marker=marker, zorder=3
        )
        if model == shaded:  # one band only: three would hide each other
            worst = [row["worst_tenth"] for row in rows]
            axes.fill_between(
                rounds, worst, means, color=colour, alpha=0.12, linewidth=0, label=f"{model}, mean to worst 10 %"
            )


def _draw_many(axes: "Axes", models: Sequence[list[dict[str, Any]]], kind: str) -> None:
    """Draw many models as thin lines with one entry in the legend."""
    for place, rows in enumerate(models):
        label = f"{len(models)} models of the kind {kind}" if place == 0 else None
        rounds = [row["round"] for row in rows]
        axes.plot(rounds, [row["mean"] for row in rows], color=GREY, linewidth=0.7, alpha=0.7, label=label)


def _draw_final(axes: "Axes", rounds: int, value: float) -> None:
    label = f"final {_figures(value)}"
    axes.plot([rounds], [value], "*", markersize=13, color=INK, label=label, zorder=4, clip_on=False)


def _draw_curve(axes: "Axes", curve: Curve, look: dict[str, Any], band: bool) -> None:
    marker = "o" if len(curve.rounds) < 3 else None
    axes.plot(curve.rounds, curve.means, label=curve.label, linewidth=2, marker=marker, zorder=3, **look)
    if band and any(curve.spreads):
        low = [mean - spread for mean, spread in zip(curve.means, curve.spreads, strict=True)]
        high = [mean + spread for mean, spread in zip(curve.means, curve.spreads, strict=True)]
        axes.fill_between(curve.rounds, low, high, color=look["color"], alpha=0.09, linewidth=0)
        for edge in (low, high):
            axes.plot(curve.rounds, edge, color=look["color"], alpha=0.35, linewidth=0.6)


def _draw_finals(axes: "Axes", curves: Sequence[Curve], looks: Mapping[str, dict[str, Any]]) -> None:
    """The final pass of every method in the order of the legend, side by side so that none hides another."""
    for place, curve in enumerate(curves):
        if curve.final:
            spread = stdev(curve.final) if len(curve.final) > 1 else 0.0
            colour = looks[curve.label]["color"]
            axes.errorbar(
                [place],
                [fmean(curve.final)],
                [spread],
                color=colour,
                marker="*",
                markersize=9,
                capsize=3,
                linewidth=1.2,
            )
    axes.set_xlim(-0.7, len(curves) - 0.3)
    axes.set_xticks([])
    axes.set_title("final pass", fontsize=9, color=GREY)
    axes.grid(axis="y", color=FAINT)
    axes.set_axisbelow(True)
    for side in ("top", "right", "left"):
        axes.spines[side].set_visible(False)
    axes.spines["bottom"].set_color(GREY)
    axes.tick_params(axis="y", length=0)


def _looks(labels: Sequence[str]) -> dict[str, dict[str, Any]]:
    """A colour for each method; after the last colour they repeat with another stroke."""
    return {
        label: {"color": COLOURS[i % len(COLOURS)], "linestyle": STROKES[i // len(COLOURS) % len(STROKES)]}
        for i, label in enumerate(labels)
    }


def _figures(value: float) -> str:
    return f"{value:.1f}" if abs(value) >= 10 else f"{value:.3g}"


def dress(axes: "Axes", rounds: int | None, measure: str = "accuracy", percents: bool = True) -> None:
    """Style axes of a measure over ``rounds`` rounds; None means over time."""
    from matplotlib.ticker import MaxNLocator

    if rounds is None:
        axes.set_xlabel("time on the clients' devices (s)")
        axes.set_xlim(left=0)
    else:
        axes.set_xlabel("round")
        axes.set_xlim(1 if rounds > 1 else 0.5, max(rounds, 1.5))
        axes.xaxis.set_major_locator(MaxNLocator(integer=True))
    axes.set_ylabel(f"{measure} (%)" if percents else measure)
    if percents:
        low, high = axes.get_ylim()
        axes.set_ylim(max(low, -1), min(high, 101))
    axes.grid(color=FAINT)
    axes.set_axisbelow(True)
    for side in ("top", "right"):
        axes.spines[side].set_visible(False)
    for side in ("left", "bottom"):
        axes.spines[side].set_color(GREY)


def title(axes: "Axes", name: str, what: str) -> None:
    """Set the run's name as the title of the figure, and ``what`` as the title of the axes."""
    axes.set_title(what, loc="left", fontsize=9, color=GREY)
    axes.figure.suptitle(name, x=0.01, ha="left", fontsize=12, color=INK)


def legend(figure: "Figure", axes: "Axes") -> None:
    """Add a legend beside the axes, or a note if there are no curves."""
    handles, labels = axes.get_legend_handles_labels()
    if handles:
        labels = [fill(label, WIDEST) for label in labels]
        figure.legend(handles, labels, loc="outside right center", frameon=False, fontsize=9, handlelength=2.6)
    else:
        text = "no evaluations during the run"
        axes.text(0.5, 0.5, text, transform=axes.transAxes, ha="center", color=GREY)


def new_figure(width: float, height: float) -> "Figure":
    """Make a figure that needs no window."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    figure = Figure(figsize=(width, height), dpi=140, layout="constrained")
    FigureCanvasAgg(figure)
    return figure


def _save(figure: "Figure", path: Path) -> Path:
    figure.savefig(path)
    return path
