"""The weights of pFedRLLA's agent: which heads it mixes for which client."""

from typing import TYPE_CHECKING, Any

import numpy as np

from fedtailor.runs import Run
from fedtailor.views.curves import new_figure, title
from fedtailor.views.drawings import Drawing

if TYPE_CHECKING:
    from matplotlib.figure import Figure

LAST = 0.2  # share of the last rounds that the picture covers
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


def mean_weights(run: Run) -> "np.ndarray[Any, np.dtype[np.float64]]":
    """(clients, clients), of the last episode: a row for each target, NaN where two clients never met."""
    episode = max(row["episode"] for row in run.rounds())
    rounds = {row["round"]: row["cohort"] for row in run.rounds() if row["episode"] == episode}
    failed: dict[int, set[int]] = {}
    for event in run.events():
        if event["episode"] == episode:
            failed.setdefault(event["round"], set()).add(event["client"])
    answered = {round: [k for k in cohort if k not in failed.get(round, ())] for round, cohort in rounds.items()}
    count = run.summary().clients
    sums, times = np.zeros((count, count)), np.zeros((count, count))
    for row in run.decisions():
        if row["episode"] < episode or row["round"] <= (1 - LAST) * max(rounds):
            continue
        peers = answered.get(row["round"] - 1) or answered[row["round"]]
        about, mask, weights = row["about"], row["mask"].tolist(), row["action"].tolist()
        others = [k for k in peers if k != about]
        for place, k in enumerate(others):
            if mask[place]:
                sums[about, k] += weights[place]
                times[about, k] += 1
        sums[about, about] += sum(weights[len(others) :])  # one model or, if they are mixed after the training, two
        times[about, about] += 1
    with np.errstate(invalid="ignore"):
        return np.asarray(sums / times)
