"""The kinds of panels: numbers for a picture, with its words. ``static/panels.js`` draws them."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from fedtailor.runs import Run
from fedtailor.views.html.facts import thinned

Panel = dict[str, Any]
NUMBERS = 40_000  # most numbers of a panel
FRAMES = 120  # most rounds that can be scrubbed
ROWS = 200  # most clients in a panel
COLUMNS = 300  # most rounds in a panel that shows all of them

Numbers = Sequence[float | None]


@dataclass(frozen=True)
class Frame:
    """A table of numbers: what is drawn for one round."""

    name: str
    rows: Sequence[Numbers]
    down: Sequence[str]  # the label of every row
    across: Sequence[str]  # the label of every column

    @property
    def size(self) -> int:
        return max(1, len(self.down) * len(self.across))


def heat(title: str, note: str, frames: Sequence[Frame], *, x: str, y: str, unit: str = "") -> Panel:
    """Cells whose colour is a number; several frames can be scrubbed."""
    kept = fewer(frames, [frame.size for frame in frames])
    said = note if len(kept) == len(frames) else f"{note} {len(kept)} of {len(frames)} rounds, evenly spaced."
    shown = [{"name": f.name, "rows": f.rows, "down": f.down, "across": f.across} for f in kept]
    return {"kind": "heat", "title": title, "note": said, "frames": shown, "x": x, "y": y, "unit": unit}


def curves(title: str, note: str, lines: Mapping[str, tuple[Numbers, Numbers]], *, x: str, y: str) -> Panel:
    """Lines: by name, their places and values."""
    series = []
    for name, (places, values) in lines.items():
        pairs = thinned(list(zip(places, values, strict=True)))
        series.append({"label": name, "x": [place for place, _ in pairs], "y": [value for _, value in pairs]})
    return {"kind": "curves", "title": title, "note": note, "series": series, "x": x, "y": y}


def gantt(title: str, note: str, frames: Sequence[Mapping[str, Any]], *, x: str) -> Panel:
    """Bars over time, a row per client; a frame has ``name``, ``end``, ``said`` and ``rows`` with their ``parts``."""
    kept = fewer(frames, [4 * len(frame["rows"]) for frame in frames])
    said = note if len(kept) == len(frames) else f"{note} {len(kept)} of {len(frames)} rounds, evenly spaced."
    return {"kind": "gantt", "title": title, "note": said, "frames": kept, "x": x}


def fewer(frames: Sequence[Any], sizes: Sequence[int]) -> list[Any]:
    """The frames, or some of them evenly spaced, so that a page stays small."""
    largest = max(sizes, default=1) or 1
    return thinned(frames, max(2, min(FRAMES, NUMBERS // largest))) if frames else []


def table_over_rounds(values: Mapping[Any, Mapping[int, float]], label: "Labels") -> Frame:
    """A row per client and a column per round, from the values by client and round; some of them if there are many."""
    clients = thinned(sorted(values, key=lambda key: (isinstance(key, str), key)), ROWS)
    rounds = thinned(sorted({round for row in values.values() for round in row}), COLUMNS)
    rows = [[values[client].get(round) for round in rounds] for client in clients]
    return Frame("", rows, [label(client) for client in clients], [str(round) for round in rounds])


def some(shown: int, all: int) -> str:
    """A sentence if not all clients are shown."""
    return "" if shown == all else f" {shown} of {all} clients, evenly spaced."


class Labels:
    """The names of clients, read once."""

    def __init__(self, run: Run):
        self._names = run.names

    def __call__(self, client: Any) -> str:
        return self._names[client] if self._names and isinstance(client, int) else str(client)


def counted(run: Run, row: Mapping[str, Any]) -> int:
    """The number of a row's round, counted over all episodes."""
    return int(row["episode"] * run.settings["rounds"] + row["round"])


def mean(values: Iterable[float]) -> float:
    found = list(values)
    return sum(found) / len(found)
