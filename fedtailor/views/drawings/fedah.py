"""The mixing weights of FedAH's clients."""

from typing import TYPE_CHECKING

from fedtailor.runs import Run
from fedtailor.views.curves import new_figure, title
from fedtailor.views.drawings import Drawing
from fedtailor.views.panels.mixing import mixing_weights

if TYPE_CHECKING:
    from matplotlib.figure import Figure

NAMED = 40  # most clients that are named


def drawings(run: Run) -> dict[str, Drawing]:
    return {"mixing": mixing} if mixing_weights(run, most=2) else {}


def mixing(run: Run) -> "Figure":
    """The mean mixing weight of every client and parameter: 0 is the client's own model, 1 the global one."""
    weights = mixing_weights(run)
    names = list(next(iter(weights.values())))
    figure = new_figure(3.5 + 0.9 * len(names), 2 + 0.22 * min(len(weights), NAMED))
    axes = figure.subplots()
    means = [[float(mix[name].mean()) for name in names] for mix in weights.values()]
    image = axes.imshow(means, aspect="auto", cmap="viridis", vmin=0, vmax=1)
    axes.set_xticks(range(len(names)), names, rotation=30, ha="right")
    if len(weights) <= NAMED:
        axes.set_yticks(range(len(weights)), [run.label(client) for client in weights])
    axes.set_xlabel("parameter")
    axes.set_ylabel("client")
    figure.colorbar(image, ax=axes, label="mean mixing weight")
    title(axes, run.name, "0: its own model, 1: the global one")
    return figure
