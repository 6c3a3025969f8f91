"""What the commands print about runs: a run, a list of runs, a comparison."""

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rich.console import Group, RenderableType
from rich.text import Text

from fedtailor.errors import UserError
from fedtailor.views.numbers import NOTHING, measured, percent
from fedtailor.views.tables import Grid

if TYPE_CHECKING:
    from fedtailor.runs import ComparisonSummary, Run

HEADLINES = ("final", "held", "global", "received")


def run_page(run: "Run", clients: bool = False) -> RenderableType:
    """A run: its evaluations, costs and failures, and optionally each client."""
    from fedtailor.views.report import WORDS, cost, evaluation_grid, failure_grid, further_grid, headline, remarks

    facts = run.summary()
    failures = failure_grid(run.events())
    parts: list[RenderableType] = [Text(run.name, style="bold"), Text(headline(facts))]
    parts += [Text(f"warning: {sentence}", style="yellow") for sentence in facts.warnings]
    if facts.metrics:
        parts.append(evaluation_grid(facts.metrics).rich())
        parts += [further.rich()] if (further := further_grid(facts.metrics)).rows else []
        parts += [Text(line, style="yellow") for line in remarks(facts.metrics)]
        parts.append(Text(WORDS, style="dim"))
    parts.append(Text(cost(facts)))
    if failures.rows:
        parts.append(failures.rich())
    if clients:
        parts.append(client_grid(client_scores(run), run.headline, run.shows_percent).rich())
    return Group(*parts)


def look(folder: Path) -> str:
    """Where the page of a run or comparison is, or the command that writes it."""
    page = folder / "report.html"
    return f"look: {page} (open it in a browser)" if page.is_file() else f"look: fedtailor report {folder}"


def run_document(run: "Run", clients: bool = False) -> dict[str, Any]:
    """A run as one JSON document."""
    document = {**run.summary().as_dict(), "events": run.events()}
    return {**document, "scores": client_scores(run)} if clients else document


def client_scores(run: "Run") -> dict[str, list[dict[str, Any]]]:
    """Every client's latest score, by model."""
    return {model: run.scores(model) for model in run.last()}


def client_grid(
    scores: Mapping[str, Sequence[Mapping[str, Any]]], measure: str = "accuracy", percents: bool = True
) -> Grid:
    """Every client's value of a measure, by model."""
    from fedtailor.runs.reading import value_of

    models = [m for m in ("received", "held", "global", "final", "new") if m in scores]
    models += [m for m in scores if m not in models]
    by_client: dict[int, dict[str, Mapping[str, Any]]] = {}
    for model in models:
        for row in scores[model]:
            by_client.setdefault(row["client"], {})[model] = row
    rows = []
    for client, found in sorted(by_client.items()):
        samples = max((row["samples"] for model, row in found.items() if model != "validation"), default=0)
        values = [measured(value_of(found[m], measure), percents) if m in found else NOTHING for m in models]
        name = next((row["name"] for row in found.values() if "name" in row), str(client))
        rows.append((name, str(samples), *values))
    header = ("client", "test samples", *models)
    named = any("name" in row for found in scores.values() for row in found)
    words = frozenset({0} if named else ())
    return Grid(header, tuple(rows), words=words, title=f"{measure} of each client{' in %' * percents}")


def comparison_page(summary: "ComparisonSummary", width: int) -> RenderableType:
    """The table of a comparison, with the columns that fit a terminal of this width."""
    from fedtailor.views.comparison import comparison_grid

    grid = comparison_grid(summary)
    shown = grid.fitting(width)
    left_out = grid.header[len(shown.header) :]
    note = [Text(f"a wider terminal also shows: {', '.join(left_out)}", style="dim")] if left_out else []
    return Group(shown.page(), *note)


def run_lines(folder: Path, places: Iterable[Path]) -> list[dict[str, Any]]:
    """The summary of every run below a folder; for a damaged run, the error."""
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
        result = f"{model} {_result(line['metrics'][model])}" if model else NOTHING
        rounds = f"{line['rounds_done']}/{line['rounds']}"
        method = method_text(line["method"])
        rows.append((line["run"], method, str(line["seed"]), rounds, line["status"], result))
    header = ("run", "method", "seed", "rounds", "status", "result")
    return Group(Grid(header, tuple(rows), words=frozenset({0, 1, 4})).rich(), *errors)


def _result(found: Mapping[str, Any]) -> str:
    """The headline of a model in a summary, with its interval if only some clients were tested."""
    headline, width = found.get("headline", "accuracy"), found.get("interval")
    if headline == "accuracy":
        return f"{percent(found['accuracy'])}{'' if width is None else f' ± {percent(width)}'} %"
    shown = found["measures"][headline]
    around = "" if width is None else f" ± {measured(width, shown['percent'])}"
    return f"{headline} {measured(shown['mean'], shown['percent'])}{around}{' %' * shown['percent']}"
