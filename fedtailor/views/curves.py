"""Accuracy over rounds: of one run, and of the methods of a comparison."""

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean, stdev
from typing import TYPE_CHECKING, Any

from fedtailor.runs import Comparison, Run

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

# Okabe and Ito's colours: told apart with any colour vision, and in print.
COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#000000", "#8B6914")
STROKES = ("-", "--", "-.", ":")
MODELS = {"held": COLOURS[0], "global": COLOURS[1], "received": COLOURS[2]}
FEW = 6  # methods whose bands do not yet make mud of each other
INK, GREY, FAINT = "#333333", "#8a94a0", "#e6e9ed"


@dataclass(frozen=True)
class Curve:
    """Mean and deviation over the seeds, round by round, in percent; and the final pass."""

    label: str
    rounds: list[int]
    means: list[float]
    spreads: list[float]
    final: list[float]


def draw_run(run: Run, path: Path) -> Path:
    """Every model's accuracy over the rounds of a run."""
    figure = _figure(9, 4.6)
    axes = figure.subplots()
    by_model: dict[str, list[dict[str, Any]]] = defaultdict(list)
    for row in run.metrics():
        if row["accuracy"] is not None:
            by_model[row["model"]].append(row)
    final = by_model.pop("final", [])
    _draw_models(axes, by_model)
    if final:
        _draw_final(axes, run.settings["rounds"], 100 * final[-1]["accuracy"])
    _dress(axes, run.settings["rounds"])
    settings = run.settings
    _title(
        axes,
        run.name,
        f"{settings['method']['name']} on {settings['data']['source']}, seed {settings['seed']}; mean over clients",
    )
    _legend(figure, axes)
    return _save(figure, path)


def draw_comparison(comparison: Comparison, path: Path) -> Path:
    """The methods of a comparison: mean over seeds with a band of one deviation; at the right the final pass."""
    headline = comparison.experiment.compare.metric
    curves = comparison_curves(comparison)
    looks = _looks([curve.label for curve in curves])
    figure = _figure(9.5, max(4.6, 1.2 + 0.27 * len(curves)))
    with_final = headline == "final" and any(curve.final for curve in curves)
    if with_final:
        axes, aside = figure.subplots(1, 2, sharey=True, width_ratios=[5, max(1.0, 0.16 * len(curves))])
        _draw_finals(aside, curves, looks)
    else:
        axes = figure.subplots()
    bands = len(curves) <= FEW
    for curve in curves:
        _draw_curve(axes, curve, looks[curve.label], bands)
    _dress(axes, comparison.experiment.rounds)
    average = "samples" if comparison.experiment.compare.pooled else "clients"
    shown = "held model (global where there is none)" if headline == "final" else f"{headline} model"
    seeds = len(comparison.experiment.compare.seeds)
    spread = f"; {seeds} seeds" + (", band: one deviation" if bands else "") if seeds > 1 else ""
    _title(axes, comparison.experiment.name, f"{shown}, mean over {average}{spread}")
    _legend(figure, axes)
    return _save(figure, path)


def comparison_curves(comparison: Comparison) -> list[Curve]:
    """A curve per method, the best at the end first."""
    settings = comparison.experiment.compare
    statistic = "pooled" if settings.pooled else "accuracy"
    wanted = ("held", "global") if settings.metric == "final" else (settings.metric,)
    curves = []
    for label, folders in comparison.runs().items():
        points: dict[int, list[float]] = defaultdict(list)
        final: list[float] = []
        for folder in folders:
            with Run(folder) as run:
                found = _values(run.metrics(), wanted, statistic)
                final += _values(run.metrics(), ("final",), statistic).values()
            for round, value in found.items():
                points[round].append(value)
        rounds = sorted(points)
        spreads = [stdev(points[r]) if len(points[r]) > 1 else 0.0 for r in rounds]
        curves.append(Curve(label, rounds, [fmean(points[r]) for r in rounds], spreads, final))
    return sorted(curves, key=lambda curve: -_end(curve, settings.metric))


def _values(rows: Sequence[Mapping[str, Any]], models: Sequence[str], statistic: str) -> dict[int, float]:
    """Accuracy in percent by round, of the first of these models that was evaluated."""
    for model in models:
        found = {r["round"]: 100 * r[statistic] for r in rows if r["model"] == model and r[statistic] is not None}
        if found:
            return found
    return {}


def _end(curve: Curve, metric: str) -> float:
    if metric == "final" and curve.final:
        return fmean(curve.final)
    return curve.means[-1] if curve.means else -1.0


def _draw_models(axes: "Axes", by_model: Mapping[str, list[dict[str, Any]]]) -> None:
    others = [model for model in by_model if model not in MODELS]
    shaded = next((model for model in MODELS if model in by_model), None)
    for model in [*(m for m in MODELS if m in by_model), *others]:
        rows = by_model[model]
        rounds = [row["round"] for row in rows]
        colour = MODELS.get(model, GREY)
        means = [100 * row["accuracy"] for row in rows]
        marker = "o" if len(rounds) < 3 else None
        axes.plot(rounds, means, color=colour, label=f"{model} {means[-1]:.1f}", linewidth=2, marker=marker, zorder=3)
        if model == shaded:  # one band only: three would hide each other
            worst = [100 * row["worst_tenth"] for row in rows]
            axes.fill_between(
                rounds, worst, means, color=colour, alpha=0.12, linewidth=0, label=f"{model}, mean to worst 10 %"
            )


def _draw_final(axes: "Axes", rounds: int, value: float) -> None:
    label = f"final {value:.1f}"
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
    """A colour for each method; when they are used up, they come again with another stroke."""
    return {
        label: {"color": COLOURS[i % len(COLOURS)], "linestyle": STROKES[i // len(COLOURS) % len(STROKES)]}
        for i, label in enumerate(labels)
    }


def _dress(axes: "Axes", rounds: int) -> None:
    from matplotlib.ticker import MaxNLocator

    axes.set_xlabel("round")
    axes.set_ylabel("accuracy (%)")
    axes.set_xlim(1 if rounds > 1 else 0.5, max(rounds, 1.5))
    low, high = axes.get_ylim()
    axes.set_ylim(max(low, -1), min(high, 101))
    axes.xaxis.set_major_locator(MaxNLocator(integer=True))
    axes.grid(color=FAINT)
    axes.set_axisbelow(True)
    for side in ("top", "right"):
        axes.spines[side].set_visible(False)
    for side in ("left", "bottom"):
        axes.spines[side].set_color(GREY)


def _title(axes: "Axes", name: str, what: str) -> None:
    axes.set_title(what, loc="left", fontsize=9, color=GREY)
    axes.figure.suptitle(name, x=0.01, ha="left", fontsize=12, color=INK)


def _legend(figure: "Figure", axes: "Axes") -> None:
    handles, labels = axes.get_legend_handles_labels()
    if handles:
        figure.legend(handles, labels, loc="outside right center", frameon=False, fontsize=9, handlelength=2.6)
    else:
        text = "nothing was evaluated on the way"
        axes.text(0.5, 0.5, text, transform=axes.transAxes, ha="center", color=GREY)


def _figure(width: float, height: float) -> "Figure":
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    figure = Figure(figsize=(width, height), dpi=140, layout="constrained")
    FigureCanvasAgg(figure)
    return figure


def _save(figure: "Figure", path: Path) -> Path:
    figure.savefig(path)
    return path
