"""The devices of the clients."""

from collections.abc import Mapping
from typing import Any

from rich.console import Group, RenderableType
from rich.text import Text

from fedtailor.views.numbers import figures, percent, quantity, size
from fedtailor.views.tables import Grid

MANY = 100  # clients that the table shows
BAR = 20  # characters of the longest bar


def devices_page(document: Mapping[str, Any]) -> RenderableType:
    """The clients' devices: a line per client, up to 100 clients."""
    rows = document["devices"]
    longest = max(row["epoch_seconds"] for row in rows) or 1.0
    lines = [
        (
            str(row.get("name", row["client"])),
            str(row["samples"]),
            *(figures(row[key]) for key in ("speed", "down", "up", "latency")),
            percent(row["failure"]),
            percent(row["available"]),
            figures(row["transfer_seconds"]),
            figures(row["epoch_seconds"]),
            "▇" * max(1, round(BAR * row["epoch_seconds"] / longest)),
        )
        for row in rows[:MANY]
    ]
    header = ("client", "samples", "G/s", "Mbit/s down", "up", "latency s", "failure %", "available %", "exchange s")
    grid = Grid((*header, "epoch s", ""), tuple(lines), words=frozenset({10}))
    title = (
        f"{len(rows)} clients; {document['model']}: {quantity(document['flops'])} multiply-adds a sample, "
        f"{size(document['bytes_down'])} down"
    )
    more = [Text(f"... and {len(rows) - MANY} more clients (--json has all)")] if len(rows) > MANY else []
    spread = f"the slowest epoch takes {figures(document['spread'])} times as long as the fastest"
    return Group(Text(title, style="bold"), grid.rich(), *more, Text(spread))
