"""Rounds on the virtual clock of the devices: who computed, transferred and waited, and who was the straggler."""

from collections import defaultdict
from typing import Any

from fedtailor.runs import Run
from fedtailor.views.html.facts import thinned
from fedtailor.views.panels.kinds import FRAMES, Labels, Panel, counted, gantt

ROWS = 60  # most clients of a round, the slowest first


def panels(run: Run) -> list[Panel]:
    """What every client did in a round, with the straggler that the others waited for."""
    if not (rounds := run.clock()):
        return []
    label = Labels(run)
    kept = {(row["episode"], row["round"]) for row in thinned(rounds, FRAMES)}
    clients: dict[tuple[int, int], list[dict[str, Any]]] = defaultdict(list)
    for row in run.times():
        if (when := (row["episode"], row["round"])) in kept:
            clients[when].append(row)
    failed = {(event["episode"], event["round"], event["client"]): event["detail"] for event in run.events()}
    frames = []
    for row in rounds:
        when = (row["episode"], row["round"])
        if when not in kept:
            continue
        slowest = sorted(clients[when], key=lambda one: -(one["compute"] + one["transfer"]))
        bars = [_bar(one, label, failed.get((*when, one["client"]), "")) for one in slowest[:ROWS]]
        frames.append(
            {
                "name": f"round {counted(run, row)}",
                "end": row["seconds"],
                "said": _said(row, slowest, label),
                "rows": bars,
            }
        )
    note = f"The slowest come first{f', {ROWS} at most' if any(len(of) > ROWS for of in clients.values()) else ''}; "
    note += "grey is waiting. Transfer is the sum of both ways. The clock starts when the round begins."
    return [gantt("Rounds on the clock of the devices", note, frames, x="seconds")]


def _bar(row: dict[str, Any], label: Labels, failure: str) -> dict[str, Any]:
    computed = row["compute"]
    parts = [["computing", 0.0, computed], ["transfer", computed, computed + row["transfer"]]]
    return {"name": label(row["client"]), "parts": parts, "note": failure}


def _said(row: dict[str, Any], slowest: list[dict[str, Any]], label: Labels) -> str:
    said = f"{row['seconds']:.4g} s"
    if slowest:
        first = slowest[0]
        said += f"; the slowest is client {label(first['client'])} with {first['compute'] + first['transfer']:.4g} s"
    if row["latency"] is not None:
        said += f"; straggling latency {row['latency']:.4g} s"
    if row["idle"] is not None:
        said += f"; {100 * row['idle']:.0f} % of the clients' time is waiting"
    return said
