"""The report of a run or a comparison: one file of HTML that opens anywhere, to send to a colleague."""

from base64 import b64encode
from collections.abc import Iterable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from fedtailor.errors import UserError
from fedtailor.runs import Comparison, ComparisonSummary, Run, RunSummary, toml
from fedtailor.version import __version__
from fedtailor.views import timing
from fedtailor.views.activity import as_document
from fedtailor.views.comparison import comparison_grid
from fedtailor.views.html.facts import comparison_facts, run_facts
from fedtailor.views.html.markup import Html, data_block, details, element, joined, section, table, whole_page
from fedtailor.views.numbers import NOTHING, duration, measured, size
from fedtailor.views.pages import client_grid, client_scores
from fedtailor.views.panels import panels
from fedtailor.views.panels.groups import groups
from fedtailor.views.report import (
    WORDS,
    cost,
    evaluation_grid,
    failure_grid,
    further_grid,
    lead,
    remarks,
)
from fedtailor.views.tables import Grid

PAGE = "report.html"
SCRIPTS = ("base.js", "charts.js", "maps.js", "sorting.js", "views.js", "panels.js", "report.js")
MOST_ROWS = 1000  # of a table of clients


def write_page(of: Run | Comparison, path: Path | None = None) -> Path:
    """Write the report of a run or comparison, by default into its folder; a reader sees the old page or the new."""
    place = path or of.folder / PAGE
    fresh = place.with_name(f".{place.name}.part")
    fresh.write_text(run_report(of) if isinstance(of, Run) else comparison_report(of), encoding="utf-8")
    return fresh.replace(place)


def run_report(run: Run) -> str:
    """The page of a run."""
    facts, numbers = run.summary(), {**run_facts(run), "panels": panels(run), "groups": groups(run)}
    body = joined(
        element("header", element("h1", run.name), element("p", lead(facts), class_="lead")),
        tiles(run_tiles(facts)),
        *(element("p", f"Warning: {sentence}", class_="warning") for sentence in facts.warnings),
        *(element("p", promise.sentence, class_="note") for promise in facts.privacy),
        section(
            f"{run.headline.capitalize()} over rounds",
            figure("curves"),
            element("p", "Band of the first model: mean to worst tenth of the clients.", class_="note"),
            details("Every evaluation as a table", table(curve_grid(run))),
        ),
        section("Result", *_result(facts)),
        _clients(run, numbers),
        section("What the method is doing", figure("method")) if numbers["panels"] else None,
        section("Cost", element("p", f"{cost(facts)}."), _profile(run), figure("profile")),
        section("Failures", _failures(run)),
        section("Settings", _settings("experiment.toml", run.settings)),
        repeat("fedtailor run experiment.toml", "experiment.toml", [str(run.settings["method"]["name"])]),
        section("Versions", table(versions_grid([run.environment]), sortable=False)),
        footer(),
        data_block(numbers),
    )
    return whole_page(f"{run.name} · FedTailor", element("main", body), SCRIPTS)


def _activities(comparison: Comparison) -> Html | None:
    """What each system did, with the command that draws it."""
    found = as_document(comparison)
    items = (element("li", f"{one['did']}: ", element("code", one["draw"])) for one in found)
    return section("What each system did", element("ul", *items)) if found else None


def comparison_report(comparison: Comparison) -> str:
    """The page of a comparison."""
    summary = comparison.summary()
    numbers = comparison_facts(comparison, summary)
    grid = comparison_grid(summary)
    environments = _environments(comparison)
    body = joined(
        element("header", element("h1", summary.name), element("p", grid.title, class_="lead")),
        tiles(
            {
                "methods": str(len(summary.table)),
                "seeds": ", ".join(map(str, summary.seeds)),
                "finished runs": str(sum(row.seeds for row in summary.table)),
                "rounds": str(comparison.experiment.rounds),
                "compared with": summary.baseline,
            }
        ),
        section("Result", table(replace(grid, title=""), badges=3), element("p", WORDS, class_="note")),
        section(
            f"{summary.measure.capitalize()} over rounds",
            figure("curves"),
            element("p", "Mean over seeds; the bands are one deviation.", class_="note"),
        ),
        _activities(comparison),
        section(
            "Who wins, who loses",
            element("p", "A point is a client in one seed: one method against the other.", class_="note"),
            figure("scatter"),
            _left_out(numbers),
        ),
        section(
            "Fairness",
            element("p", "The share of clients that have at most this value, over all seeds.", class_="note"),
            figure("distribution"),
            table(fairness_grid(summary)),
        ),
        section("Settings", _settings("comparison.toml", comparison.experiment.as_dict())),
        repeat("fedtailor compare comparison.toml", "comparison.toml", _method_names(comparison)),
        section("Versions", table(versions_grid(environments), sortable=False)),
        footer(),
        data_block(numbers),
    )
    return whole_page(f"{summary.name} · FedTailor", element("main", body), SCRIPTS)


def run_tiles(facts: RunSummary) -> dict[str, str]:
    """The numbers at the top of a run."""
    found = {}
    for model in ("final", "held", "global"):
        if model in facts.metrics:
            one = facts.metrics[model].main
            unit = " %" if one.percent and one.mean is not None else ""
            found[f"{model}, mean over clients"] = measured(one.mean, one.percent) + unit
            found.setdefault("worst tenth of clients", measured(one.worst_tenth, one.percent) + unit)
            break
    if "new" in facts.metrics:
        one = facts.metrics["new"].main
        found["new clients, mean"] = measured(one.mean, one.percent) + " %" * (one.percent and one.mean is not None)
    return {
        **found,
        "status": facts.status,
        "rounds": f"{facts.rounds_done} of {facts.rounds}",
        "clients": f"{facts.clients:,}",
        "sent and received": size(facts.bytes_down + facts.bytes_up),
        "time of the rounds": duration(facts.seconds),
    }


def tiles(values: Mapping[str, str]) -> Html:
    return element(
        "dl",
        *(element("div", element("dt", name), element("dd", value)) for name, value in values.items()),
        class_="tiles",
    )


def figure(id: str) -> Html:
    """A place that the scripts fill."""
    words = "This figure needs JavaScript; the tables do not."
    return element("figure", element("noscript", element("p", words, class_="note")), id=id)


def curve_grid(run: Run) -> Grid:
    """The headline of every evaluated round, a column per model."""
    rows: dict[tuple[int, int], dict[str, Any]] = {}
    for row in run.curve():
        rows.setdefault((row["episode"], row["round"]), {})[row["model"]] = row["mean"]
    models = list(dict.fromkeys(model for found in rows.values() for model in found))
    each = run.settings["rounds"]
    cells = tuple(
        (str(episode * each + round), *(measured(found.get(model), run.shows_percent) for model in models))
        for (episode, round), found in sorted(rows.items())
    )
    title = f"{run.headline}{' in %' * run.shows_percent}, mean over clients"
    return Grid(("round", *models), cells, words=frozenset(), title=title)


def fairness_grid(summary: ComparisonSummary) -> Grid:
    """How the headline differs between clients, over the seeds."""
    rows = []
    for row in summary.table:
        spreads = (row.headline[summary.model], row.worst, row.worst_tenth, row.deviation)
        rows.append((row.method, *(_plus_minus(one.mean, one.std, summary.percent) for one in spreads)))
    title = f"{summary.model} {summary.measure}{' in %' * summary.percent}, mean ± deviation over seeds"
    return Grid(("method", "mean", "worst client", "worst 10 % of clients", "std of clients"), tuple(rows), title=title)


def versions_grid(environments: Iterable[Mapping[str, Any]]) -> Grid:
    """The versions that runs began with; several where they differ."""
    found: dict[str, dict[str, None]] = {}
    for environment in environments:
        for name, value in environment.items():
            found.setdefault(name, {})[str(value)] = None
    rows = tuple((name, " / ".join(values)) for name, values in found.items())
    return Grid(("part", "version"), rows, words=frozenset({0, 1}))


def repeat(command: str, file: str, methods: Iterable[str]) -> Html:
    """The command that makes the result again."""
    own = [name for name in methods if ":" in name]
    needs = f" The code of {', '.join(own)} must be importable." if own else ""
    return section(
        "Repeat it",
        element(
            "p", f"With FedTailor {__version__}: save the settings above as ", element("code", file), f", then:{needs}"
        ),
        element("pre", element("code", command)),
        element(
            "p",
            "On the same kind of CPU and with the versions below, the result is the same to the bit.",
            class_="note",
        ),
    )


def footer() -> Html:
    return element("footer", f"Written by FedTailor {__version__}. This page loads nothing from the network.")


def _result(facts: RunSummary) -> list[Html]:
    if not facts.metrics:
        return [element("p", "No round has been evaluated yet.")]
    further = further_grid(facts.metrics)
    return [
        table(evaluation_grid(facts.metrics)),
        *([table(further)] if further.rows else []),
        *(element("p", line, class_="note") for line in remarks(facts.metrics)),
        element("p", WORDS, class_="note"),
    ]


def _clients(run: Run, numbers: Mapping[str, Any]) -> Html | None:
    if not numbers["clients"]["values"]:
        return None
    grid = client_grid(client_scores(run), run.headline, run.shows_percent)
    note = None
    if len(grid.rows) > MOST_ROWS:
        note = element("p", f"The first {MOST_ROWS:,} of {len(grid.rows):,} clients; the map has all.", class_="note")
        grid = replace(grid, rows=grid.rows[:MOST_ROWS])
    return section(
        "Clients",
        element(
            "div",
            element("div", element("h3", "A cell per client"), figure("map")),
            element("div", element("h3", "Share of clients with at most this value"), figure("distribution")),
            class_="two",
        ),
        details("Every client as a table", table(grid), note),
    )


def _profile(run: Run) -> Html:
    try:
        return table(timing.profile_grid(timing.profile_document(run)), sortable=False)
    except UserError as error:
        return element("p", str(error), class_="note")


def _failures(run: Run) -> Html:
    grid = failure_grid(run.events())
    return table(grid) if grid.rows else element("p", "None.")


def _settings(name: str, settings: Mapping[str, Any]) -> Html:
    text = toml.dumps(dict(settings))
    address = f"data:text/plain;charset=utf-8;base64,{b64encode(text.encode()).decode()}"
    return joined(
        element("p", element("a", f"Save as {name}", href=address, download=name)),
        details("All settings", element("pre", element("code", text), tabindex="0")),
    )


def _left_out(numbers: Mapping[str, Any]) -> Html | None:
    shown = sorted({seed for row in numbers["clients"] for seed in row["seeds"]})
    said = []
    if numbers["every"] > 1:
        said.append(f"Every {numbers['every']}th client is drawn.")
    if shown:
        said.append(f"Seeds drawn: {', '.join(map(str, shown))}.")
    return element("p", " ".join(said), class_="note") if said else None


def _environments(comparison: Comparison) -> list[Mapping[str, Any]]:
    found: list[Mapping[str, Any]] = []
    for folder in (folder for folders in comparison.runs().values() for folder in folders):
        try:
            with Run(folder) as run:
                found.append(run.environment)
        except UserError:  # a damaged run is not part of the table either
            continue
    return found


def _method_names(comparison: Comparison) -> list[str]:
    tables = comparison.experiment.compare.methods
    return [str(one if isinstance(one, str) else one["name"]) for one in tables]


def _plus_minus(mean: float | None, deviation: float | None, percents: bool) -> str:
    if mean is None:
        return NOTHING
    return measured(mean, percents) + ("" if deviation is None else f" ± {measured(deviation, percents)}")
