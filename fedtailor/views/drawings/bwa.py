"""The learning curve and the decisions of BWA's agent."""

from typing import TYPE_CHECKING

import numpy as np

from fedtailor.methods.adjustment import ADJUSTMENT
from fedtailor.runs import Run
from fedtailor.views.curves import COLOURS, FAINT, GREY, new_figure, title
from fedtailor.views.drawings import Drawing
from fedtailor.views.panels.bwa import episodes, weights_of
from fedtailor.views.rewards import PARTS, moving_mean

if TYPE_CHECKING:
    from matplotlib.figure import Figure


def drawings(run: Run) -> dict[str, Drawing]:
    if not run.rewards():
        return {}
    return {"learning": learning} if run.pretrains else {"adjustments": adjustments}


def learning(run: Run) -> "Figure":
    """For every episode: the sum of rewards, the last accuracy, and the batch sizes."""
    found = episodes(run)
    panels: dict[str, list[float]] = {
        "sum of rewards": [one.gained for one in found],
        "validation accuracy (%)": [100 * one.accuracy for one in found],
        "mean batch size": [one.batch for one in found if one.batch is not None],
        "evenness of weights": [one.evenness for one in found if one.evenness is not None],
    }
    shown = {name: values for name, values in panels.items() if values}
    figure = new_figure(9, 2.2 * len(shown))
    axes = figure.subplots(len(shown), sharex=True, squeeze=False)[:, 0]
    window = max(1, len(found) // PARTS)
    kept = run.agents().get(ADJUSTMENT, {}).get("best", {}).get("kept")  # where pre-training keeps the best policy
    for panel, (name, values) in zip(axes, shown.items(), strict=True):
        places = range(1, len(values) + 1)
        panel.plot(places, values, ".", color=GREY, markersize=4, alpha=0.6, zorder=2)
        panel.plot(places[window - 1 :], moving_mean(values, window), color=COLOURS[0], zorder=3)
        if kept is not None:
            panel.axvline(kept["episode"] + 1, color=COLOURS[1], linestyle=":", zorder=1)
        panel.set_ylabel(name)
        panel.grid(color=FAINT)
        panel.spines[["top", "right"]].set_visible(False)
    axes[-1].set_xlabel("episode")
    note = "" if kept is None else f"; the policy of episode {kept['episode'] + 1} is the best and kept"
    title(axes[0], run.name, f"a point per episode, line: mean of {window}{note}")
    return figure


def adjustments(run: Run) -> "Figure":
    """The batch size and the weights of every round."""
    from matplotlib.ticker import MaxNLocator

    rows = run.decisions()
    controls = run.settings["method"]["controls"]
    figure = new_figure(9, 5.5 if controls == "both" else 3.6)
    panels = figure.subplots(2 if controls == "both" else 1, sharex=True, squeeze=False)[:, 0]
    rounds = [row["round"] for row in rows]
    if controls != "weights":
        panels[0].step(rounds, [float(row["action"][0]) for row in rows], where="mid", color=COLOURS[0])
        panels[0].set_ylabel("batch size")
        panels[0].set_ylim(bottom=0)
        panels[0].grid(color=FAINT)
    if controls != "batch":
        weights = np.array([weights_of(row, controls).numpy() for row in rows]).T  # (slots, rounds)
        place = (rounds[0] - 0.5, rounds[-1] + 0.5, len(weights) - 0.5, -0.5)
        image = panels[-1].imshow(weights, cmap="viridis", vmin=0, aspect="auto", extent=place)
        panels[-1].set_ylabel("client of the round")
        figure.colorbar(image, ax=panels[-1], label="weight")
    for panel in panels:
        panel.xaxis.set_major_locator(MaxNLocator(integer=True))
    panels[-1].yaxis.set_major_locator(MaxNLocator(integer=True))
    panels[-1].set_xlabel("round")
    title(panels[0], run.name, "what was decided")
    return figure
