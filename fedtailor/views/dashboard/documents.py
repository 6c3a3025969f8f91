"""What the dashboard's pages show, as JSON documents read from runs."""

import threading
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

from fedtailor.data import Federation
from fedtailor.data.statistics import label_counts, table
from fedtailor.errors import UserError
from fedtailor.runs import Run, toml
from fedtailor.views import panels, timing
from fedtailor.views.dashboard.changes import Stamp, stamp
from fedtailor.views.html.facts import run_facts, thinned
from fedtailor.views.numbers import duration, measured, size
from fedtailor.views.panels import decisions
from fedtailor.views.panels.groups import groups
from fedtailor.views.report import cost, evaluation_grid, failure_grid, lead, method_text, remarks
from fedtailor.views.tables import Grid

Document = dict[str, Any]
EVENTS = 200  # latest failures on a page
COLUMNS = 300  # most clients in the picture of the data


class DocumentCache:
    """Documents that are made again only if their run changed."""

    def __init__(self) -> None:
        self._kept: dict[tuple[str, str], tuple[Stamp, Document]] = {}
        self._lock = threading.Lock()

    def line(self, name: str, folder: Path) -> Document:
        """A run in a line of the list; a damaged one with its error."""
        return self._fresh("line", name, folder, lambda: _line(name, folder))

    def run(self, name: str, folder: Path) -> Document:
        return self._fresh("run", name, folder, lambda: run_document(folder))

    def method(self, name: str, folder: Path) -> Document:
        return self._fresh("method", name, folder, lambda: method_document(folder))

    def _fresh(self, kind: str, name: str, folder: Path, make: Any) -> Document:
        now = stamp(folder)
        with self._lock:
            kept = self._kept.get((kind, name))
        if kept is not None and kept[0] == now:
            return kept[1]
        made: Document = make()
        with self._lock:
            self._kept[kind, name] = (now, made)
        return made


def _line(name: str, folder: Path) -> Document:
    try:
        with Run(folder) as run:
            facts = run.summary()
            model = next((m for m in ("final", "held", "global", "received") if m in facts.metrics), None)
            value = facts.metrics[model].main.mean if model else None
            curve = [row for row in run.curve() if row["model"] in ("held", "global")]
            kind = "held" if any(row["model"] == "held" for row in curve) else "global"
            return {
                "id": name,
                "method": method_text(facts.method),
                "seed": facts.seed,
                "status": facts.status,
                "done": facts.rounds_done,
                "rounds": facts.rounds,
                "clients": facts.clients,
                "model": model,
                "value": value,
                "shown": measured(value, run.shows_percent) + (" %" if run.shows_percent and value is not None else ""),
                "spark": [row["mean"] for row in thinned([row for row in curve if row["model"] == kind], 40)],
                "megabytes": (facts.bytes_down + facts.bytes_up) / 1e6,
                "seconds": facts.seconds,
                "cost": f"{size(facts.bytes_down + facts.bytes_up)}, {duration(facts.seconds)}",
                "failed": facts.failed_tasks,
            }
    except UserError as error:
        return {"id": name, "status": "damaged", "error": str(error)}


def run_document(folder: Path) -> Document:
    """A run with everything that its page shows."""
    with Run(folder) as run:
        facts, events = run.summary(), run.events()
        return {
            **run_facts(run),
            "lead": lead(facts),
            "done": facts.rounds_done,
            "rounds": facts.rounds,
            "warnings": list(facts.warnings),
            "privacy": [promise.sentence for promise in facts.privacy],
            "remarks": remarks(facts.metrics),
            "cost": cost(facts),
            "evaluation": _grid(evaluation_grid(facts.metrics)) if facts.metrics else None,
            "failures": _grid(failure_grid(events)),
            "events": [_event(event) for event in events[-EVENTS:]][::-1],
            "event_count": len(events),
            "phases": _phases(run),
            "settings": toml.dumps(run.settings),
            "environment": run.environment,
            "count": facts.clients,
            "nodes": len(run.nodes),
        }


def client_document(folder: Path, which: str) -> Document:
    """A client: its curve, its work, its failures and what was decided about it."""
    with Run(folder) as run:
        client = run.client(which)
        curves: dict[str, Document] = {}
        for row in run.history(client):
            one = curves.setdefault(row["model"], {"x": [], "y": []})
            one["x"].append(row["round"])
            one["y"].append(row["value"])
        tasks = [row for row in run.tasks() if row["client"] == client]
        return {
            "client": client,
            "label": run.label(client),
            "percent": run.shows_percent,
            "measure": run.headline,
            "curves": curves,
            "tasks": [{k: row[k] for k in ("round", "steps", "samples", "loss", "seconds")} for row in tasks[-EVENTS:]],
            "events": [_event(row) for row in run.events() if row["client"] == client],
            "about": panels.about(run, client),
            "decisions": decisions.about(run, client, EVENTS),
            "has_model": run.finished and run.has_model(client),
        }


def method_document(folder: Path) -> Document:
    """What the method is doing: its panels, and the groups of the clients."""
    with Run(folder) as run:
        return {"panels": panels.panels(run), "groups": groups(run)}


def data_document(folder: Path, client: str | None = None) -> Document:
    """The classes of every client, or of one client; a sentence if the data cannot be read here."""
    try:
        with Run(folder) as run:
            if client is None:
                return data_picture(run.federation(), run.names)
            return _client_data(_counted(str(folder), run.data_digest), run.client(client))
    except UserError as error:
        return {"error": str(error)}


@dataclass(frozen=True)
class _Data:
    """The numbers of samples in a run's data, without the data."""

    classes: tuple[str, ...]
    counts: Any  # (clients, classes)
    rows: list[Document]


@lru_cache(maxsize=4)
def _counted(folder: str, digest: str) -> _Data:
    """Count the samples of a run's data, which have this digest; building them may take seconds."""
    with Run(folder) as run:
        federation = run.federation()
        return _Data(tuple(federation.samples.classes), label_counts(federation), table(federation))


def _client_data(found: _Data, client: int) -> Document:
    return {
        "sizes": {key: found.rows[client][key] for key in ("train", "val", "test")},
        "classes": list(found.classes),
        "counts": found.counts[client].tolist() if found.classes else [],
        "mean": found.counts.mean(0).tolist() if found.classes else [],
    }


def data_picture(federation: Federation, labels: Sequence[str]) -> Document:
    """Samples of each class on every client, or on clients that are evenly spaced."""
    shown = thinned(range(federation.everyone), COLUMNS)
    counts = label_counts(federation)[shown]
    rows = table(federation)
    return {
        "clients": [labels[client] if labels else str(client) for client in shown],
        "all": federation.everyone,
        "classes": list(federation.samples.classes),
        "counts": counts.T.tolist(),
        "sizes": [{key: rows[client][key] for key in ("train", "val", "test", "classes")} for client in shown],
    }


def _phases(run: Run) -> Document | None:
    try:
        return _grid(timing.profile_grid(timing.profile_document(run)))
    except UserError:  # no complete round yet
        return None


def _grid(grid: Grid) -> Document:
    return {"title": grid.title, "header": grid.header, "rows": grid.rows, "words": sorted(grid.words)}


def _event(row: Document) -> Document:
    client = row.get("name", row["client"])
    return {"round": row["round"], "client": client, "kind": row["kind"], "detail": row["detail"]}
