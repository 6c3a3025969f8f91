"""HAPFL: the size and the epochs of every client in every round, and the phases of the first and the latest round."""

from collections import defaultdict
from typing import Any

from fedtailor.methods.allocation import divide
from fedtailor.methods.hapfl import INTENSITY, SIZE
from fedtailor.runs import Run
from fedtailor.views.panels import decisions
from fedtailor.views.panels.kinds import Labels, Panel, counted, curves, gantt, heat, some, table_over_rounds


def panels(run: Run) -> list[Panel]:
    state = run.server_state("hapfl", "timeline")
    if "hapfl" not in state:
        return []
    names, rows = list(state["hapfl"]["flops"]), run.decisions()
    found = _tables(run, rows, names) + _shares(run, rows, names)
    if state["timeline"]["first"]:
        found.append(_timeline(run, state["timeline"]))
    return [*found, *decisions.rewards(run, rows)]


def turns(allocation: dict[str, Any]) -> list[dict[str, Any]]:
    """What each client that answered did in a round, of which a timeline keeps the allocation."""
    given, training = allocation["sizes"], allocation["training"]
    return [
        {
            "client": k,
            "size": given[k],
            "epochs": allocation["epochs"][k],
            "assessment": seconds,
            "training": training[k],
        }
        for k, seconds in allocation["seconds"].items()
        if k in training
    ]


def allocated(run: Run, rows: list[dict[str, Any]]) -> dict[str, dict[int, dict[int, float]]]:
    """By decision, client and round: the number of the size, and the epochs."""
    found: dict[str, dict[int, dict[int, float]]] = {SIZE: defaultdict(dict), INTENSITY: defaultdict(dict)}
    each = max(1, run.settings["training"]["epochs"])
    for row in rows:
        if row["slots"] is None or row["name"] not in found:
            continue
        clients = [k for k in row["slots"] if k is not None]
        numbers = row["action"].tolist()[: len(clients)]
        if row["name"] == INTENSITY:
            numbers = divide(numbers, each * len(clients))
        for k, number in zip(clients, numbers, strict=True):
            found[row["name"]][k][counted(run, row)] = float(number)
    return found


def about(run: Run, client: int) -> list[str]:
    """What was allocated to a client in the latest round that it took part in."""
    state = run.server_state("timeline").get("timeline", {})
    for what in ("latest", "first"):
        kept = state.get(what)
        if kept and client in kept["sizes"]:
            order = list(kept["seconds"])
            return [
                f"In the {what} round it trained the model of size {kept['sizes'][client]} for "
                f"{kept['epochs'][client]} epochs. Its assessed time was {kept['seconds'][client]:.4g}: number "
                f"{order.index(client) + 1} of {len(order)}, the fastest first. The agents are rewarded if clients "
                "wait little for each other."
            ]
    return []


def _tables(run: Run, rows: list[dict[str, Any]], names: list[str]) -> list[Panel]:
    label, shown = Labels(run), []
    sizes = ", ".join(f"{place}: {name}" for place, name in enumerate(names))
    words = {SIZE: ("Size of the local model", sizes), INTENSITY: ("Epochs of every client", "epochs")}
    for name, values in allocated(run, rows).items():
        if values:
            frame = table_over_rounds(values, label)
            note = f"A row is a client, a column a round. {words[name][1]}.{some(len(frame.down), len(values))}"
            shown.append(heat(words[name][0], note, [frame], x="round", y="client", unit=name * (name == SIZE)))
    return shown


def _shares(run: Run, rows: list[dict[str, Any]], names: list[str]) -> list[Panel]:
    """How many clients of a round had each size."""
    chosen = [row for row in rows if row["name"] == SIZE]
    if not chosen:
        return []
    rounds = [counted(run, row) for row in chosen]
    counts = [[int(value) for value in row["action"][row["mask"]].tolist()] for row in chosen]
    lines = {name: (rounds, [float(of.count(place)) for of in counts]) for place, name in enumerate(names)}
    return [curves("Clients of every size", "In every round.", lines, x="round", y="clients")]


def _timeline(run: Run, kept: dict[str, Any]) -> Panel:
    """Assessment, then training: each phase lasts until its slowest client has finished."""
    label, frames = Labels(run), []
    for what in ("first", "latest"):
        rows = turns(kept[what])
        begin = max((row["assessment"] for row in rows), default=0.0)
        end = begin + max((row["training"] for row in rows), default=0.0)
        bars = [
            {
                "name": label(row["client"]),
                "parts": [["assessment", 0.0, row["assessment"]], [row["size"], begin, begin + row["training"]]],
                "note": f"{row['epochs']} epochs",
            }
            for row in rows
        ]
        frames.append({"name": f"{what} round", "end": end, "said": spread(rows), "rows": bars})
    unit = "seconds on the devices" if run.clock() else "multiply-adds"
    return gantt("Assessment and training", "Grey is waiting.", frames, x=unit)


def spread(rows: list[dict[str, Any]]) -> str:
    totals = [row["assessment"] + row["training"] for row in rows]
    return f"{len(rows)} clients, latency {max(totals) - min(totals):.4g}" if totals else "no client answered"
