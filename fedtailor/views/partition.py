"""A picture of a partition: the samples of each class and client."""

from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from fedtailor.data.federation import Federation
from fedtailor.data.statistics import label_counts, shares_by_part, summary

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

FEW_CLIENTS = 100  # most clients that are drawn one by one
NAMED = 40  # most clients whose names are written below the picture
FEW_CLASSES = 25  # most classes drawn as named rows of bubbles; more become a heat map
INK, GREY = "#1f4e79", "#9aa5b1"
PARTS = {"train": "#1f4e79", "val": "#e0a030", "test": "#7fb2d9"}


def draw(federation: Federation, path: Path | str) -> Path:
    """Draw the federation into a file; its ending sets the format (png, svg, pdf)."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    path = Path(path)
    figure = Figure(figsize=(11, 6.5), dpi=130, layout="constrained")
    FigureCanvasAgg(figure)
    if federation.everyone > FEW_CLIENTS:
        _draw_histograms(federation, figure)
    elif federation.samples.classes:
        _draw_clients(federation, figure)
    else:
        _draw_sizes(federation, figure.subplots())
    figure.suptitle(_title(federation), fontsize=12)
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path)
    return path


def _title(federation: Federation) -> str:
    facts = summary(federation)
    amounts = ", ".join(f"{facts[name]:,} {name}" for name in PARTS if facts[name])
    title = f"{facts['clients']:,} clients: {amounts} samples"
    return f"{title}; label skew {facts['skew']:.2f}" if facts["classes"] else title


def _draw_clients(federation: Federation, figure: "Figure") -> None:
    """Classes against clients above, sizes below, on one axis of clients."""
    top, bottom = figure.subplots(2, 1, sharex=True, height_ratios=[3, 1])
    counts = label_counts(federation)
    if counts.shape[1] <= FEW_CLASSES:
        _draw_bubbles(counts, federation.samples.classes, top)
    else:
        _draw_heat(counts, figure, top)
    _draw_sizes(federation, bottom)


def _draw_bubbles(counts: np.ndarray, classes: tuple[str, ...], axes: "Axes") -> None:
    """A bubble's area is the number of samples; every class has its colour."""
    from matplotlib import colormaps

    clients, kinds = np.nonzero(counts)
    room = min(700 / max(1, len(counts)), 300 / max(1, len(classes)))  # points between neighbours
    largest = max(room, 7) ** 2  # neighbours may touch but not overlap
    areas = np.maximum(2.0, counts[clients, kinds] / counts.max() * largest)
    colours = colormaps["tab20" if len(classes) > 10 else "tab10"](kinds % 20)
    axes.scatter(clients, kinds, s=areas, c=colours, alpha=0.85, linewidths=0)
    axes.set_yticks(range(len(classes)), [name if len(name) < 22 else name[:20] + "…" for name in classes])
    axes.set_ylim(len(classes) - 0.4, -0.6)
    axes.set_axisbelow(True)
    axes.grid(axis="y", color="#e6e9ed", linewidth=0.8)
    axes.set_title(f"area = samples of a class; the largest bubble is {counts.max():,}", fontsize=9, color=GREY)
    _plain(axes)
    axes.tick_params(axis="y", length=0)


def _draw_heat(counts: np.ndarray, figure: "Figure", axes: "Axes") -> None:
    from matplotlib.colors import LogNorm

    shown = np.where(counts.T > 0, counts.T, np.nan)
    # Logarithmic, starting above white: a single sample must differ from none.
    scale = LogNorm(vmin=0.3, vmax=max(1, int(counts.max())))
    image = axes.imshow(shown, aspect="auto", cmap="Blues", interpolation="nearest", norm=scale)
    axes.set_ylabel("class")
    bar = figure.colorbar(image, ax=axes, label="samples", pad=0.01, format="%d")
    bar.ax.set_ylim(bottom=1)
    _plain(axes)


def _draw_sizes(federation: Federation, axes: "Axes") -> None:
    clients = np.arange(federation.everyone)
    below = np.zeros(federation.everyone, np.int64)
    for name, shares in shares_by_part(federation).items():
        if len(shares.indices):
            axes.bar(clients, shares.sizes, bottom=below, width=0.8, color=PARTS[name], label=name)
            below = below + shares.sizes
    axes.set_xlim(-0.8, federation.everyone - 0.2)
    _whole_numbers(axes)
    if federation.labels and federation.everyone <= NAMED:
        axes.set_xticks(clients, federation.labels, rotation=90 if federation.everyone > 8 else 0)
    axes.set_xlabel("client")
    axes.set_ylabel("samples")
    axes.legend(ncols=3, frameon=False, fontsize=8, loc="lower right", bbox_to_anchor=(1, 1), borderpad=0)
    _plain(axes)


def _draw_histograms(federation: Federation, figure: "Figure") -> None:
    """For many clients: histograms of samples and classes per client."""
    left, right = figure.subplots(1, 2)
    sizes = sum(shares.sizes for shares in shares_by_part(federation).values())
    width = max(1, -(-int(np.ptp(sizes) + 1) // 40))  # whole numbers, or the bars would have gaps
    bins = np.arange(np.min(sizes), np.max(sizes) + 2 * width, width) - 0.5
    left.hist(sizes, bins=bins.tolist(), color=INK, rwidth=0.9)
    left.set_xlabel("samples of a client")
    kinds = np.count_nonzero(label_counts(federation), axis=1)
    edges = np.arange(kinds.min(), max(kinds.max(), kinds.min()) + 2) - 0.5
    right.hist(kinds, bins=edges.tolist(), color=INK, rwidth=0.9)
    right.set_xlabel("classes of a client")
    _whole_numbers(right)
    for axes in (left, right):
        axes.set_ylabel("clients")
        _plain(axes)


def _whole_numbers(axes: "Axes") -> None:
    from matplotlib.ticker import MaxNLocator

    axes.xaxis.set_major_locator(MaxNLocator(integer=True, steps=[1, 2, 5, 10]))


def _plain(axes: "Axes") -> None:
    for side in ("top", "right"):
        axes.spines[side].set_visible(False)
    for side in ("left", "bottom"):
        axes.spines[side].set_color(GREY)
