"""FedALP: the tree of clients, the groups it was cut into, and the weight Psi of every layer."""

from collections.abc import Sequence
from typing import Any

import numpy as np

from fedtailor.runs import Run
from fedtailor.views.html.facts import thinned
from fedtailor.views.panels.groups import membership
from fedtailor.views.panels.kinds import Frame, Labels, Panel, curves, heat, some

MOST = 150  # most clients in the table of similarities
LEAVES = 1000  # most clients of a tree that is drawn


def panels(run: Run) -> list[Panel]:
    state = run.server_state("groups", "clustering")
    members, found = state["groups"]["member"], state["clustering"]
    if not members:
        return []
    label, chosen = Labels(run), found["chosen"].removeprefix("by ")
    shown = [tree(found, members, label)] if 1 < len(found["clients"]) <= LEAVES else []
    if found["scores"]:
        line = {chosen: (list(found["scores"]), list(found["scores"].values()))}
        note = f"The number of groups was chosen {found['chosen']}: {len(found['psi'])}."
        shown.append(curves("Score of every number of groups", note, line, x="groups", y=chosen))
    shown.append(_psi(run, found))
    order = [row for row in in_groups(found["clients"], members) if row is not None]
    some_rows = thinned(order, MOST)
    rows = found["similarity"].numpy()[np.ix_(some_rows, some_rows)].tolist()
    names = [f"{label(found['clients'][row])} (group {members[found['clients'][row]]})" for row in some_rows]
    note = f"Clients in the order of their groups.{some(len(some_rows), len(order))}"
    title = f"Cosine of the clients' updates in round {found['round']}"
    return [*shown, heat(title, note, [Frame("", rows, names, names)], x="client", y="client", unit="cosine")]


def tree(found: dict[str, Any], members: dict[int, int], label: Labels) -> Panel:
    """Ward's tree: every merge as four points, with the group if both sides belong to one; where it was cut."""
    from scipy.cluster.hierarchy import dendrogram

    clients, linkage = found["clients"], found["linkage"].numpy()
    groups = merge_groups(linkage, [members[k] for k in clients])
    drawn = dendrogram(linkage, no_plot=True, link_color_func=lambda node: str(groups[node]))
    links = [
        {"x": [(place - 5) / 10 for place in x], "y": list(y), "group": None if group == "None" else int(group)}
        for x, y, group in zip(drawn["icoord"], drawn["dcoord"], drawn["color_list"], strict=True)
    ]
    order = [clients[leaf] for leaf in drawn["leaves"]]
    count = len(found["psi"])
    return {
        "kind": "tree",
        "title": f"Ward's tree of the updates in round {found['round']}",
        "note": f"{count} groups, chosen {found['chosen']}. The dashed line is the cut.",
        "leaves": [{"name": label(k), "group": members[k]} for k in order],
        "links": links,
        "cut": cut_height(linkage, count) if count > 1 else None,
    }


def merge_groups(tree: Any, members: Sequence[int]) -> dict[int, int | None]:
    """The group of every merge, by its node in the tree; None where groups meet."""
    within: list[int | None] = list(members)  # the group of every node
    for left, right in tree[:, :2].astype(int):
        within.append(within[left] if within[left] == within[right] else None)
    return {node: within[node] for node in range(len(members), len(within))}


def cut_height(tree: Any, count: int) -> float:
    """Between the last merge before the cut and the first above it."""
    heights: list[float] = [0.0, *tree[:, 2].tolist()]
    merges = len(heights) - count  # before the cut
    return (heights[merges] + heights[merges + 1]) / 2


def in_groups(clients: Sequence[int], members: dict[int, int]) -> list[int]:
    """The rows of the clients, in the order of their groups."""
    return sorted(range(len(clients)), key=lambda row: (members[clients[row]], row))


def used_layers(found: dict[str, Any]) -> tuple[Any, list[str]]:
    """Psi of the layers that have weights: (groups, layers), and their names."""
    values, layers = found["psi"].numpy(), found["layers"]
    used = [place for place in range(len(layers)) if len(layers) == 1 or values[:, place].any()]
    return (values[:, used], [layers[place] for place in used]) if used else (values, list(layers))


def about(run: Run, client: int) -> list[str]:
    """The group of a client, and how near its update was to those of every group."""
    state = run.server_state("groups", "clustering")
    members, found = state["groups"]["member"], state["clustering"]
    if client not in members:
        return ["It is in no group yet: it receives the global model."] if members else []
    said = [membership(members, client)]
    if client in found["clients"]:
        row = found["similarity"][found["clients"].index(client)].tolist()
        others = [(members[k], cosine) for k, cosine in zip(found["clients"], row, strict=True) if k != client]
        near = {group: [c for g, c in others if g == group] for group in sorted(set(members.values()))}
        parts = ", ".join(f"group {group} {sum(of) / len(of):.3f}" for group, of in near.items() if of)
        said.append(f"Mean cosine of its update with those of every group, in round {found['round']}: {parts}.")
    for joined in state["groups"]["joined"]:
        if joined["client"] == client:
            said.append(f"It joined in round {joined['round']}: its first update had cosine {joined['cosine']:.3f}.")
    return said


def _psi(run: Run, found: dict[str, Any]) -> Panel:
    values, layers = used_layers(found)
    frame = Frame("", values.tolist(), [str(group) for group in range(len(values))], layers)
    note = f"The share of the group's own model in every layer, beta = {run.settings['method']['beta']:g}."
    return heat("Psi by group and layer", note, [frame], x="layer", y="group", unit="Psi")
