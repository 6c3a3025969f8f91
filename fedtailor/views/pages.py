"""What the commands print: a run, a list of runs, a comparison, and the catalogues."""

import inspect
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rich.console import Group, RenderableType
from rich.padding import Padding
from rich.text import Text

from fedtailor.errors import UserError
from fedtailor.views.numbers import NOTHING, figures, percent, quantity, size
from fedtailor.views.tables import Grid, comparison_grid

if TYPE_CHECKING:
    from fedtailor.data.sources import Source
    from fedtailor.methods import Method
    from fedtailor.models import Card
    from fedtailor.runs import ComparisonSummary, Run

HEADLINES = ("final", "held", "global", "received")
MANY = 100  # lines of a table that are still read
BAR = 20  # characters of the longest bar


def run_page(run: "Run", clients: bool = False) -> RenderableType:
    """A run: what was evaluated, what it cost, who failed, and each client if wanted."""
    from fedtailor.views.report import WORDS, cost, evaluation_grid, failure_grid, headline, remarks

    facts = run.summary()
    failures = failure_grid(run.events())
    parts: list[RenderableType] = [Text(run.name, style="bold"), Text(headline(facts))]
    if facts.metrics:
        parts.append(evaluation_grid(facts.metrics).rich())
        parts += [Text(line, style="yellow") for line in remarks(facts.metrics)]
        parts.append(Text(WORDS, style="dim"))
    parts.append(Text(cost(facts)))
    if failures.rows:
        parts.append(failures.rich())
    if clients:
        parts.append(client_grid(client_scores(run)).rich())
    return Group(*parts)


def run_document(run: "Run", clients: bool = False) -> dict[str, Any]:
    """A run as one JSON document."""
    document = {**run.summary().as_dict(), "events": run.events()}
    return {**document, "scores": client_scores(run)} if clients else document


def client_scores(run: "Run") -> dict[str, list[dict[str, Any]]]:
    """Every client's latest score, by model."""
    return {model: run.scores(model) for model in run.last()}


def client_grid(scores: Mapping[str, Sequence[Mapping[str, Any]]]) -> Grid:
    models = [m for m in ("received", "held", "global", "final") if m in scores]
    models += [m for m in scores if m not in models]
    by_client: dict[int, dict[str, Mapping[str, Any]]] = {}
    for model in models:
        for row in scores[model]:
            by_client.setdefault(row["client"], {})[model] = row
    rows = []
    for client, found in sorted(by_client.items()):
        samples = max(row["samples"] for row in found.values())
        accuracies = [percent(found[m]["accuracy"]) if m in found else NOTHING for m in models]
        rows.append((str(client), str(samples), *accuracies))
    header = ("client", "test samples", *models)
    return Grid(header, tuple(rows), words=frozenset(), title="accuracy of each client in %")


def comparison_page(summary: "ComparisonSummary", width: int) -> RenderableType:
    """The table of a comparison, as much of it as a terminal of this width shows well."""
    grid = comparison_grid(summary)
    shown = grid.fitting(width)
    left_out = grid.header[len(shown.header) :]
    note = [Text(f"a wider terminal also shows: {', '.join(left_out)}", style="dim")] if left_out else []
    return Group(shown.rich(), *note)


def run_lines(folder: Path, places: Iterable[Path]) -> list[dict[str, Any]]:
    """The summary of every run below a folder; of a damaged one, what is wrong."""
    from fedtailor.runs import Run

    lines: list[dict[str, Any]] = []
    for place in places:
        line: dict[str, Any] = {"run": str(place.relative_to(folder)), "folder": str(place)}
        try:
            with Run(place) as run:
                lines.append({**line, **run.summary().as_dict()})
        except UserError as error:
            lines.append({**line, "status": "damaged", "error": str(error)})
    return lines


def list_page(lines: Sequence[Mapping[str, Any]]) -> RenderableType:
    from fedtailor.views.report import method_text

    rows, errors = [], []
    for line in lines:
        if "error" in line:
            errors.append(Text(line["error"], style="red"))
            rows.append((line["run"], NOTHING, NOTHING, NOTHING, "damaged", NOTHING))
            continue
        model = next((m for m in HEADLINES if m in line["metrics"]), None)
        accuracy = f"{model} {percent(line['metrics'][model]['accuracy'])} %" if model else NOTHING
        rounds = f"{line['rounds_done']}/{line['rounds']}"
        method = method_text(line["method"])
        rows.append((line["run"], method, str(line["seed"]), rounds, line["status"], accuracy))
    header = ("run", "method", "seed", "rounds", "status", "accuracy")
    return Group(Grid(header, tuple(rows), words=frozenset({0, 1, 4})).rich(), *errors)


# Methods


def method_facts(kind: "type[Method]") -> dict[str, Any]:
    """A method as plain values: its settings with defaults, ranges and descriptions."""
    properties = kind.model_json_schema().get("properties", {})
    settings = {
        name: {"default": field.get("default"), "allowed": _allowed(field), "about": field.get("description", "")}
        for name, field in properties.items()
    }
    return {
        "name": kind.name or f"{kind.__module__}:{kind.__qualname__}",
        "shares": kind.shares,
        "about": inspect.getdoc(kind) or "",
        **asdict(kind.card),
        "needs_validation": kind.needs_validation,
        "settings": settings,
        "inert": _inert(kind, properties),
    }


def methods_page(facts: Sequence[Mapping[str, Any]]) -> RenderableType:
    header = ("method", "what it does", "year", "exchanged", "client keeps", "server keeps", "cost of a round")
    rows = [
        (
            f["name"],
            _first_sentence(f["about"]),
            str(f["year"] or NOTHING),
            f["exchanged"],
            f["client_state"],
            f["server_state"],
            f["cost"],
        )
        for f in facts
    ]
    return Grid(header, tuple(rows), words=frozenset(range(7)) - {2}).rich()


def method_card(facts: Mapping[str, Any]) -> RenderableType:
    """Everything about one method."""
    parts: list[RenderableType] = [Text(facts["name"], style="bold"), Padding(Text(facts["about"]), (0, 0, 1, 2))]
    parts += [Text(line) for line in card_lines(facts)]
    if facts["settings"]:
        rows = [(n, str(s["default"]), s["allowed"], s["about"]) for n, s in facts["settings"].items()]
        parts.append(Grid(("setting", "default", "allowed", "about"), tuple(rows), words=frozenset({0, 2, 3})).rich())
    else:
        parts.append(Text("settings: none"))
    parts += [Text(f"note: {sentence}", style="yellow") for sentence in facts["inert"]]
    return Group(*parts)


def card_lines(facts: Mapping[str, Any]) -> list[str]:
    """The fidelity card in sentences, for the terminal and the documentation."""
    year = f", {facts['year']}" if facts["year"] else ""
    lines = [
        f"paper: {facts['paper']}{year}",
        f"exchanged: {facts['exchanged']}",
        f"a client keeps: {facts['client_state']}",
        f"the server keeps: {facts['server_state']}",
        f"cost of a round: {facts['cost']}",
        "secure aggregation: "
        + (
            "fits, the server needs only sums" if facts["only_sums"] else "does not fit, the server looks at each reply"
        ),
        "peers: "
        + ("clients receive other clients' models" if facts["shows_peers"] else "no client sees another's model"),
    ]
    if facts["needs_validation"]:
        lines.append("needs validation data, which are carved out of train where there are none")
    lines += [f"limit: {limit}" for limit in facts["limits"]]
    return lines + [f"deviation: {deviation}" for deviation in facts["deviations"]]


def _allowed(field: Mapping[str, Any]) -> str:
    """What a setting may be, from its JSON schema."""
    if "anyOf" in field:
        return " or ".join(_allowed(branch) for branch in field["anyOf"])
    if "enum" in field or "const" in field:
        return ", ".join(map(str, field.get("enum", [field.get("const")])))
    kinds = {"number": "number", "integer": "whole number", "boolean": "true or false", "string": "text"}
    kind = field.get("type", "value")
    signs = {"minimum": "≥", "exclusiveMinimum": ">", "maximum": "≤", "exclusiveMaximum": "<"}
    bounds = " and ".join(f"{sign} {field[key]:g}" for key, sign in signs.items() if key in field)
    name = "none" if kind == "null" else kinds.get(kind, "list" if kind == "array" else "table")
    return f"{name} {bounds}".strip()


def _inert(kind: "type[Method]", properties: Mapping[str, Mapping[str, Any]]) -> list[str]:
    """What the method says when a setting switches its own idea off: each setting is tried at its limits."""
    from pydantic import ValidationError

    said: dict[str, None] = {}
    tries: list[dict[str, Any]] = [{}]
    for name, field in properties.items():
        limits = {field[key] for key in ("minimum", "maximum") if key in field}
        tries += [
            {name: value}
            for value in (*sorted(limits), *field.get("enum", ()), *_SWITCHES.get(field.get("type", ""), ()))
        ]
    for settings in tries:
        try:
            sentence = kind(**settings).inert()
        except ValidationError:
            continue  # this value needs others beside it
        if sentence:
            said[sentence] = None
    return list(said)


_SWITCHES: dict[str, tuple[Any, ...]] = {"boolean": (False, True), "number": (0, 1), "integer": (0, 1)}


def _first_sentence(text: str) -> str:
    return text.partition("\n\n")[0].replace("\n", " ")


# Models and data


def models_page(cards: Sequence["Card"]) -> RenderableType:
    rows = [
        (
            card.name,
            "x".join(map(str, card.inputs.shape)),
            quantity(card.parameters),
            quantity(card.flops),
            card.description,
        )
        for card in cards
    ]
    header = ("model", "input", "parameters", "multiply-adds", "about")
    return Grid(header, tuple(rows), words=frozenset({0, 1, 4})).rich()


def models_document(cards: Sequence["Card"]) -> list[dict[str, Any]]:
    return [{**vars(card), "inputs": vars(card.inputs)} for card in cards]


def source_lines(sources: Mapping[str, "Source"], directory: Path) -> list[dict[str, Any]]:
    """The known data sets, and whether their files are in a directory."""
    return [
        {
            "name": source.name,
            "title": source.title,
            "licence": source.licence,
            "homepage": source.homepage,
            "note": source.note,
            "found": _found(source, sources, directory),
        }
        for source in sources.values()
    ]


def sources_page(lines: Sequence[Mapping[str, Any]], directory: Path) -> RenderableType:
    rows = [(s["name"], s["title"], s["licence"], s["found"], s["note"]) for s in lines]
    header = ("source", "title", "licence", "found", "note")
    grid = Grid(header, tuple(rows), words=frozenset(range(5)))
    return Group(Text(f"data directory: {directory}"), grid.rich())


def federation_page(summary: Mapping[str, Any], rows: Sequence[Mapping[str, Any]]) -> RenderableType:
    """Who has what: a line per client, the first ones if there are many."""
    lines = [
        (
            str(row["client"]),
            *(str(row[part]) for part in ("train", "val", "test", "classes")),
            ", ".join(f"{name} ({count})" for name, count in row["top"].items()),
        )
        for row in rows[:MANY]
    ]
    grid = Grid(("client", "train", "val", "test", "classes", "largest classes"), tuple(lines), words=frozenset({5}))
    title = f"{summary['clients']} clients, {summary['samples']:,} samples, {summary['classes']} classes"
    more = [Text(f"... and {len(rows) - MANY} more clients (--json has all)")] if len(rows) > MANY else []
    return Group(Text(f"{title}, label skew {summary['skew']:.2f}", style="bold"), grid.rich(), *more)


def devices_page(document: Mapping[str, Any]) -> RenderableType:
    """What every client's device can do: a line per client, the first ones if there are many."""
    rows = document["devices"]
    longest = max(row["epoch_seconds"] for row in rows) or 1.0
    lines = [
        (
            str(row["client"]),
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
    header = ("client", "samples", "G/s", "Mbit/s down", "up", "latency s", "failure %", "there %", "exchange s")
    grid = Grid((*header, "epoch s", ""), tuple(lines), words=frozenset({10}))
    title = (
        f"{len(rows)} clients; {document['model']}: {quantity(document['flops'])} multiply-adds a sample, "
        f"{size(document['bytes_down'])} down"
    )
    more = [Text(f"... and {len(rows) - MANY} more clients (--json has all)")] if len(rows) > MANY else []
    spread = f"the slowest epoch takes {figures(document['spread'])} times as long as the fastest"
    return Group(Text(title, style="bold"), grid.rich(), *more, Text(spread))


def _found(source: "Source", sources: Mapping[str, "Source"], directory: Path) -> str:
    from fedtailor.data.files import Shelf

    if not (source.canonical or source.compact or source.parts):
        return "bundled"
    if any(_found(sources[part], sources, directory) == "no" for part in source.parts):
        return "no"
    shelf = Shelf(directory, source.name, source.folders, source.compact)
    for files in (source.canonical, source.compact):
        if files and all(shelf.find(file.name) for file in files):
            return "yes"
    return "no" if source.canonical or source.compact else "yes"
