"""FedALP's tree of clients, groups, layer weights and accuracies."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from fedtailor.data.statistics import label_counts
from fedtailor.errors import UserError
from fedtailor.runs import Run
from fedtailor.views.curves import COLOURS, FAINT, GREY, INK, MODELS, dress, legend, new_figure, title
from fedtailor.views.panels.fedalp import cut_height, in_groups, merge_groups, used_layers

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

    from fedtailor.views.drawings import Drawing

MANY = 60  # most clients, groups or layers that are named one by one


def drawings(run: Run) -> "dict[str, Drawing]":
    """The pictures of a run; only the curves before there are groups."""
    found: dict[str, Drawing] = {"local-and-global": local_and_global}
    if run.server_state()["groups"]["member"]:
        found |= {"dendrogram": dendrogram, "groups": groups, "psi": psi}
    return found


def true_labels(run: Run) -> list[int] | None:
    """Each client's most frequent label; None if the run's data are missing or have no labels."""
    try:
        federation = run.federation()
    except UserError:
        return None
    if not federation.samples.classes or federation.digest() != run.data_digest:
        return None
    labels: list[int] = label_counts(federation).argmax(1).tolist()
    return labels


def agreement(groups: dict[int, int], labels: Sequence[int]) -> float:
    """The adjusted Rand index of groups and labels: 1 if they are the same partition, about 0 by chance."""
    from sklearn.metrics import adjusted_rand_score

    return float(adjusted_rand_score([labels[k] for k in groups], list(groups.values())))


def local_and_global(run: Run) -> "Figure":
    """The paper's Fig. 2: what the clients receive and the global model, over the rounds."""
    figure = new_figure(8.5, 4.2)
    axes = figure.subplots()
    for model, name in (("received", "local (received)"), ("global", "global")):
        rows = [row for row in run.metrics(model) if row["pooled"] is not None]
        if rows:
            values = [100 * row["pooled"] for row in rows]
            label = f"{name} {values[-1]:.1f}"
            marker = "o" if len(rows) < 3 else None
            rounds = [row["round"] for row in rows]
            axes.plot(rounds, values, color=MODELS[model], label=label, linewidth=2, marker=marker, zorder=3)
    if end := run.server_state()["clustering"]["round"]:
        axes.axvline(end, color=GREY, linewidth=1, linestyle="--", label=f"end of the warm-up, round {end}")
    dress(axes, run.settings["rounds"])
    title(axes, run.name, f"{_settings(run)}; accuracy over all samples")
    legend(figure, axes)
    return figure


def dendrogram(run: Run) -> "Figure":
    """Ward's tree with the groups it was cut into and the clients' labels; beside it the scores that chose the cut."""
    from scipy.cluster.hierarchy import dendrogram as draw_tree

    state = run.server_state()
    found = state["clustering"]
    clients, tree, scores = found["clients"], found["linkage"].numpy(), found["scores"]
    figure = new_figure(12, 4.6)
    if scores:
        axes, aside = figure.subplots(1, 2, width_ratios=[5, 1.3])
        _draw_scores(aside, scores, len(found["psi"]), found["chosen"].removeprefix("by "))
    else:
        axes = figure.subplots()
    count = len(found["psi"])
    title(axes, run.name, f"Ward's tree of the updates in round {found['round']}; {count} groups, {found['chosen']}")
    if len(clients) < 2:
        axes.text(0.5, 0.5, "one client has no tree", transform=axes.transAxes, ha="center", color=GREY)
        return figure
    members = [state["groups"]["member"][k] for k in clients]
    leaves = draw_tree(tree, no_plot=True)["leaves"]
    colours = _branch_colours(tree, members, list(dict.fromkeys(members[leaf] for leaf in leaves)))
    draw_tree(tree, ax=axes, no_labels=True, link_color_func=colours.__getitem__)
    if count > 1:
        axes.axhline(cut_height(tree, count), color=GREY, linewidth=1, linestyle="--")
    _draw_leaves(run, axes, [clients[leaf] for leaf in leaves], true_labels(run))
    axes.set_ylabel("height of the merge")
    for side in ("top", "right", "bottom"):
        axes.spines[side].set_visible(False)
    return figure


def groups(run: Run) -> "Figure":
    """The similarities in the order of the groups, and the groups against the clients' labels."""
    state = run.server_state()
    found, members = state["clustering"], state["groups"]["member"]
    labels = true_labels(run)
    figure = new_figure(12 if labels else 7, 5.2)
    panels = figure.subplots(1, 2 if labels else 1, squeeze=False)[0]
    order = in_groups(found["clients"], members)
    _draw_similarity(figure, panels[0], found["similarity"].numpy()[np.ix_(order, order)])
    sizes = np.bincount([members[k] for k in found["clients"]])
    for edge in np.cumsum(sizes)[:-1]:
        panels[0].axvline(edge - 0.5, color=INK, linewidth=0.6)
        panels[0].axhline(edge - 0.5, color=INK, linewidth=0.6)
    title(panels[0], run.name, f"cosine of the updates in round {found['round']}; clients by group")
    if labels:
        names = run.federation().samples.classes
        counts = np.zeros((len(found["psi"]), len(names)), np.int64)
        for client, group in members.items():
            counts[group, labels[client]] += 1
        _draw_counts(panels[1], counts, names)
        what = f"clients by group and most frequent label; adjusted Rand index {agreement(members, labels):.3f}"
        panels[1].set_title(what, loc="left", fontsize=9, color=GREY)
    return figure


def psi(run: Run) -> "Figure":
    """The share of the group's own weights in each layer."""
    found = run.server_state()["clustering"]
    shown, names = used_layers(found)
    figure = new_figure(2.6 + 0.75 * len(names), 1.8 + 0.34 * len(shown))
    axes = figure.subplots()
    image = axes.imshow(shown, aspect="auto", cmap="Blues", vmin=0, vmax=1)
    _write_numbers(axes, shown, "{:.2f}", 0.6)
    _name_ticks(axes, names, [str(group) for group in range(len(shown))])
    axes.set_xlabel("layer")
    axes.set_ylabel("group")
    figure.colorbar(image, ax=axes, label="Psi", pad=0.02)
    title(axes, run.name, f"share of the group's model, beta = {run.settings['method']['beta']:g}")
    return figure


def _settings(run: Run) -> str:
    settings = run.settings
    return f"beta = {settings['method']['beta']:g} on {settings['data']['source']}, seed {settings['seed']}"


def _branch_colours(tree: Any, members: Sequence[int], order: Sequence[int]) -> dict[int, str]:
    """The colour of every merge: its group's, another one than the neighbour's, or grey where groups meet."""
    return {
        node: GREY if group is None else COLOURS[order.index(group) % len(COLOURS)]
        for node, group in merge_groups(tree, members).items()
    }


def _draw_leaves(run: Run, axes: "Axes", clients: Sequence[int], labels: Sequence[int] | None) -> None:
    """Write each client's name or number and label under the tree, if there is space."""
    places = [5 + 10 * place for place in range(len(clients))]
    if len(clients) > MANY:
        axes.set_xlabel(f"{len(clients)} clients")
        return
    below = ["" if labels is None else f"\n{labels[client]}" for client in clients]
    axes.set_xticks(places, [run.label(client) + text for client, text in zip(clients, below, strict=True)])
    axes.tick_params(axis="x", length=0, labelsize=7 if len(clients) > 25 else 9)
    axes.set_xlabel("client" if labels is None else "client, and below it the number of its most frequent class")


def _draw_scores(axes: "Axes", scores: dict[int, float], count: int, measure: str) -> None:
    axes.plot(list(scores), list(scores.values()), color=INK, linewidth=1.5, marker=".", zorder=3)
    if count in scores:
        axes.plot([count], [scores[count]], "o", color=COLOURS[1], zorder=4)
    axes.set_xlabel("groups")
    axes.set_title(f"{measure} by number of groups", loc="left", fontsize=9, color=GREY)
    axes.grid(color=FAINT)
    axes.set_axisbelow(True)
    for side in ("top", "right"):
        axes.spines[side].set_visible(False)


def _draw_similarity(figure: "Figure", axes: "Axes", similar: Any) -> None:
    image = axes.imshow(similar, cmap="RdBu_r", vmin=-1, vmax=1, interpolation="nearest")
    axes.set_xticks([])
    axes.set_yticks([])
    figure.colorbar(image, ax=axes, pad=0.02, shrink=0.9)


def _draw_counts(axes: "Axes", counts: Any, names: Sequence[str]) -> None:
    axes.imshow(counts, aspect="auto", cmap="Blues", vmin=0)
    _write_numbers(axes, counts, "{:d}", 0.6 * counts.max())
    _name_ticks(
        axes, [name if len(name) < 12 else f"{name[:10]}…" for name in names], [str(g) for g in range(len(counts))]
    )
    axes.set_xlabel("label")
    axes.set_ylabel("group")


def _write_numbers(axes: "Axes", values: Any, pattern: str, dark: float) -> None:
    if values.size > MANY * 10:
        return
    for (row, column), value in np.ndenumerate(values):
        if value:
            colour = "white" if value > dark else INK
            axes.text(column, row, pattern.format(value), ha="center", va="center", fontsize=8, color=colour)


def _name_ticks(axes: "Axes", columns: Sequence[str], rows: Sequence[str]) -> None:
    if len(columns) <= MANY:
        long = max(map(len, columns)) > 4
        axes.set_xticks(
            range(len(columns)), list(columns), rotation=45 if long else 0, ha="right" if long else "center"
        )
    if len(rows) <= MANY:
        axes.set_yticks(range(len(rows)), list(rows))
    axes.tick_params(length=0, labelsize=8)
