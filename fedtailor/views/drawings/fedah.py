"""FedAH: how much of the global head every client takes."""

from typing import TYPE_CHECKING

import torch

from fedtailor.runs import Run
from fedtailor.views.curves import COLOURS, FAINT, new_figure, title
from fedtailor.views.drawings import Drawing

if TYPE_CHECKING:
    from matplotlib.figure import Figure


def drawings(run: Run) -> dict[str, Drawing]:
    return {"mixing-weights": mixing_weights} if any("mix" in state for _, state in run.client_states()) else {}


def mixing_weights(run: Run) -> "Figure":
    """A box for every client: its mixing weights, from 0, its own head, to 1, the global head."""
    mixes = {k: state["mix"] for k, state in run.client_states() if "mix" in state}
    figure = new_figure(9, 4.2)
    axes = figure.subplots()
    values = [torch.cat([weight.flatten() for weight in mix.values()]).numpy() for mix in mixes.values()]
    axes.boxplot(
        values,
        tick_labels=[run.label(k) for k in mixes],
        showfliers=False,
        showmeans=True,
        medianprops={"color": COLOURS[0]},
    )
    axes.set_ylim(-0.03, 1.03)
    axes.set_ylabel("0: own head, 1: global head")
    axes.set_xlabel("client")
    axes.grid(color=FAINT, axis="y")
    title(axes, run.name, "mixing weights of the head; triangles are means")
    return figure
