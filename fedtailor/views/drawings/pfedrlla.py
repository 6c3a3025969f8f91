"""The weights of pFedRLLA's agent: which heads it mixes for which client."""

from typing import TYPE_CHECKING

from fedtailor.runs import Run
from fedtailor.views.curves import new_figure, title
from fedtailor.views.drawings import Drawing
from fedtailor.views.panels.pfedrlla import LAST, mean_weights

if TYPE_CHECKING:
    from matplotlib.figure import Figure

MOST = 40  # most clients whose numbers are written beside the heat map


def drawings(run: Run) -> dict[str, Drawing]:
    return {"weights": weights_figure} if run.decisions() else {}


def weights_figure(run: Run) -> "Figure":
    """The mean weight of every client's head in every other's, over the last rounds."""
    weights = mean_weights(run)
    count = len(weights)
    figure = new_figure(7.2, 6)
    axes = figure.subplots()
    image = axes.imshow(weights, cmap="viridis", vmin=0)
    axes.set_xlabel("client whose head is mixed in")
    axes.set_ylabel("client that receives the mix")
    if count <= MOST:
        names = [run.label(client) for client in range(count)]
        axes.set_xticks(range(count), names, rotation=90 if run.names else 0)
        axes.set_yticks(range(count), names)
        axes.tick_params(labelsize=9 if count <= 20 else 6)
    figure.colorbar(image, ax=axes, label="mean weight")
    title(axes, run.name, f"weights of heads, mean over the last {100 * LAST:.0f} % of the rounds")
    return figure
