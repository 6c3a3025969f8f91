"""FedAH and FedALA: the mixing weights that every client has learned, 0 for its own model and 1 for the global one."""

import math
from typing import Any

from fedtailor.runs import Run
from fedtailor.views.html.facts import quantiles, thinned
from fedtailor.views.panels.kinds import ROWS, Frame, Labels, Panel, curves, heat, some

BYTES = 50_000_000  # of states that are read for one picture
POINTS = 5000  # elements of a client that count in the distribution


def panels(run: Run) -> list[Panel]:
    weights = mixing_weights(run)
    if not weights:
        return []
    label, names = Labels(run), list(next(iter(weights.values())))
    rows = [[float(mix[name].mean()) for name in names] for mix in weights.values()]
    note = f"0: the client starts from its own; 1: from the global one.{some(len(weights), run.client_count)}"
    frame = Frame("", rows, [label(k) for k in weights], names)
    shown = [heat("Mean mixing weight", note, [frame], x="parameter", y="client", unit="mean weight")]
    lines = {}
    for name in names:
        found = quantiles(x for mix in weights.values() for x in thinned(mix[name].flatten().tolist(), POINTS))
        if len(found) > 1:
            lines[name] = (found, [place / (len(found) - 1) for place in range(len(found))])
    words = "All elements of the clients above."
    shown.append(curves("Share of elements with at most this weight", words, lines, x="mixing weight", y="share"))
    return shown


def mixing_weights(run: Run, most: int = ROWS) -> dict[int, dict[str, Any]]:
    """By client, its latest mixing weights by parameter; of clients that are evenly spaced if there are many."""
    found: dict[int, dict[str, Any]] = {}
    for client in thinned(range(run.client_count), most):
        state = run.client_state(client)
        if not found and "mix" in state:
            size = sum(t.nbytes for part in state.values() if isinstance(part, dict) for t in part.values())
            if (room := max(2, BYTES // max(1, size))) < min(most, run.client_count):
                return mixing_weights(run, room)
        if "mix" in state:
            found[client] = state["mix"]
    return found


def about(run: Run, client: int) -> list[str]:
    """How much of the global model a client starts from."""
    mix = run.client_state(client).get("mix")
    if not mix:
        return []
    count = sum(t.numel() for t in mix.values())
    mean = math.fsum(float(t.sum()) for t in mix.values()) / count
    parts = ", ".join(f"{name} {float(t.mean()):.3f}" for name, t in mix.items())
    return [
        f"Its {count:,} mixing weights have the mean {mean:.3f} (0: its own model, 1: the global one): it learned them "
        f"on its training data. By parameter: {parts}."
    ]
