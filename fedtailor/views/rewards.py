"""The rewards of an agent's decisions, in order."""

from collections.abc import Sequence
from itertools import accumulate
from typing import TYPE_CHECKING

from fedtailor.runs import Run
from fedtailor.views.curves import COLOURS, FAINT, GREY, new_figure, title

if TYPE_CHECKING:
    from matplotlib.figure import Figure

PARTS = 20  # the moving mean covers one of this many parts of all decisions


def rewards_figure(run: Run) -> "Figure":
    """Every reward as a point, with a moving mean; one panel for each kind of decision."""
    rewards = run.rewards()
    figure = new_figure(9, 3.6 * max(1, len(rewards)))
    panels = figure.subplots(max(1, len(rewards)), squeeze=False)[:, 0]
    for axes, (name, values) in zip(panels, rewards.items(), strict=True):
        window = max(1, len(values) // PARTS)
        places = range(1, len(values) + 1)
        axes.plot(places, values, ".", color=GREY, markersize=3, alpha=0.4, label="one decision", zorder=2)
        axes.plot(
            places[window - 1 :], moving_mean(values, window), color=COLOURS[0], label=f"mean of {window}", zorder=3
        )
        axes.set_xlabel("decision")
        axes.set_ylabel(f"reward of {name}")
        axes.grid(color=FAINT)
        axes.spines[["top", "right"]].set_visible(False)
        axes.legend(frameon=False, fontsize=9)
    settings = run.settings
    title(panels[0], run.name, f"{settings['method']['name']} on {settings['data']['source']}, seed {settings['seed']}")
    return figure


def moving_mean(values: Sequence[float], window: int) -> list[float]:
    """The mean of every ``window`` consecutive values."""
    sums = [0.0, *accumulate(values)]
    return [(after - before) / window for before, after in zip(sums, sums[window:], strict=False)]
