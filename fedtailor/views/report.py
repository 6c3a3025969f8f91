"""The report of a run: its result, settings, versions and failures on one page of Markdown."""

from collections import defaultdict
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from fedtailor.records import cause
from fedtailor.runs import Measures, Run, RunSummary, toml
from fedtailor.runs.measures import MeasureSummary
from fedtailor.runs.stopping import VALIDATION
from fedtailor.views.curves import draw_run
from fedtailor.views.numbers import NOTHING, duration, figures, measured, percent, size
from fedtailor.views.tables import Grid

MODELS = ("received", "held", "global", "final", "new")
WORDS = (
    "received: what a client holds before it trains; held: after its last training, the model it would deploy; "
    "global: the server's; final: every client has received and trained once more."
)
CURVES, REPORT = "curves.png", "report.md"


def write_report(run: Run) -> list[Path]:
    """Write the curves and the report into the run's folder."""
    curves = draw_run(run, run.folder / CURVES)
    page = run.folder / REPORT
    page.write_text(report(run), encoding="utf-8")
    return [curves, page]


def report(run: Run) -> str:
    """The page as Markdown."""
    facts = run.summary()
    versions = "\n".join(f"- {name}: {value}" for name, value in run.environment.items())
    failures = failure_grid(run.events())
    further = further_grid(facts.metrics)
    return "\n".join(
        [
            f"# {run.name}",
            "",
            headline(facts),
            "",
            *(f"Warning: {sentence}\n" for sentence in facts.warnings),
            evaluation_grid(facts.metrics).markdown(),
            *([further.markdown()] if further.rows else []),
            *(f"{line}\n" for line in remarks(facts.metrics)),
            WORDS,
            "",
            f"![{run.headline} over rounds]({CURVES})",
            "",
            f"{cost(facts)}.",
            "",
            "## Failures",
            "",
            failures.markdown() if failures.rows else "None.\n",
            "## Settings",
            "",
            f"```toml\n{toml.dumps(run.settings)}```",
            "",
            "## Versions",
            "",
            versions,
            "",
        ]
    )


def headline(facts: RunSummary) -> str:
    """The run in one line."""
    done = f"{what_runs(facts)}, {facts.rounds_done} of {facts.rounds} rounds, {facts.status}"
    return "; ".join([done, *facts.notes])


def lead(facts: RunSummary) -> str:
    """The run in one line below its name, where a page shows rounds and status elsewhere."""
    return "; ".join([what_runs(facts), *facts.notes])


def what_runs(facts: RunSummary) -> str:
    """Method, seed and number of clients of a run."""
    return f"{method_text(facts.method)}, seed {facts.seed}, {facts.clients} clients"


def method_text(method: Mapping[str, Any]) -> str:
    """A method with its settings, without tables of its agents, which a line cannot hold.

    >>> method_text({"name": "fedprox", "mu": 0.1, "agents": {"size": {"lr": 0.1}}})
    'fedprox (mu=0.1)'
    """
    own = {key: value for key, value in method.items() if key != "name" and not isinstance(value, Mapping)}
    settings = ", ".join(f"{key}={value}" for key, value in own.items())
    return f"{method['name']} ({settings})" if settings else str(method["name"])


def evaluation_grid(metrics: Mapping[str, Measures]) -> Grid:
    """The latest evaluation: the headline measure, a row per model."""
    rows = [
        (
            model,
            *_spread(found.main),
            NOTHING if found.loss is None else f"{found.loss:.3f}",
            str(found.round),
        )
        for model, found in _ordered(metrics)
    ]
    header = ("model", "mean over clients", "over samples", "std", "worst client", "worst 10 %", "loss", "round")
    headline, percents = next(((f.headline, f.main.percent) for f in metrics.values()), ("accuracy", True))
    return Grid(header, tuple(rows), title=f"{headline} in %" if percents else headline)


def further_grid(metrics: Mapping[str, Measures]) -> Grid:
    """The measures beside the headline, and accuracy if it is not the headline: a row per measure and model."""
    rows = []
    for model, found in _ordered(metrics):
        others = [name for name in ("accuracy", *found.more) if name != found.headline and found.of(name).clients]
        for name in others if found.more else ():
            values = found.of(name)
            label = f"{name} %" if values.percent else name
            rows.append((label, model, *_spread(values), f"{values.clients} of {values.clients + values.undefined}"))
    rows.sort(key=lambda row: row[0])
    header = ("measure", "model", "mean over clients", "over samples", "std", "worst client", "worst 10 %", "clients")
    return Grid(header, tuple(rows), words=frozenset({0, 1}), title="further measures")


def _ordered(metrics: Mapping[str, Measures]) -> list[tuple[str, Measures]]:
    models = [m for m in MODELS if m in metrics] + [m for m in metrics if m not in MODELS]
    return [(model, metrics[model]) for model in models]


def _spread(found: MeasureSummary) -> list[str]:
    values = (found.mean, found.pooled, found.deviation, found.worst, found.worst_tenth)
    return [measured(value, found.percent) for value in values]


def remarks(metrics: Mapping[str, Measures]) -> list[str]:
    """Remarks that explain the numbers."""
    untrained = metrics["held"].untrained if "held" in metrics else 0
    which = "tested clients" if "held" in metrics and metrics["held"].population else "clients"
    said = [f"{untrained} of the {which} never trained: the model they would receive counts as held."]
    newcomers = metrics["new"].clients if "new" in metrics else 0
    those = "1 client" if newcomers == 1 else f"{newcomers} clients"
    new = [f"new: {those} that took no part received and adapted the model at the end."]
    checked = ["validation: the held models on validation data, which choose the best round; final is that round's."]
    return [
        *_drawn(metrics),
        *(said if untrained else []),
        *(new if newcomers else []),
        *(checked if VALIDATION in metrics else []),
        *_undefined(metrics),
    ]


def _drawn(metrics: Mapping[str, Measures]) -> list[str]:
    """That a sample of the clients was tested, and how near each mean is to that over all clients."""
    sampled = [(model, found) for model, found in _ordered(metrics) if found.population]
    if not sampled:
        return []
    widths = ", ".join(
        f"{model} ± {measured(found.interval, found.main.percent)}"
        for model, found in sampled
        if found.interval is not None
    )
    first = sampled[0][1]
    said = f"over {first.clients:,} of {first.population:,} clients; the worst are those of the tested clients"
    return [f"{said}; 95 % interval of the mean over all clients: {widths}." if widths else f"{said}."]


def _undefined(metrics: Mapping[str, Measures]) -> list[str]:
    """For how many clients the headline is undefined, as AUROC is for a client with one class."""
    for found in (metrics[model] for model in ("final", "held", "received") if model in metrics):
        left_out = found.main.undefined
        if left_out and found.main.clients:
            return [f"{found.headline} is undefined for {left_out} of {found.clients} clients, which are left out."]
    return []


def cost(facts: RunSummary) -> str:
    """Bytes and time, and the time on the clients' devices."""
    spent = (
        f"{size(facts.bytes_down)} down and {size(facts.bytes_up)} up in {facts.rounds_done} rounds, "
        f"{duration(facts.seconds)}"
    )
    clock = facts.clock
    if clock is None:
        return spent
    return (
        f"{spent}; on the clients' devices {duration(clock.seconds)}: straggling latency "
        f"{figures(clock.latency)} s a round, {percent(clock.idle)} % idle, {clock.late} late, "
        f"{clock.dropped} dropped out"
    )


def failure_grid(events: Iterable[Mapping[str, Any]]) -> Grid:
    """The clients left out of rounds, grouped by reason, the most frequent first."""
    groups: dict[str, list[Mapping[str, Any]]] = defaultdict(list)
    for event in events:
        groups[cause(event["detail"])].append(event)
    rows = [
        (
            str(len(group)),
            _some({e.get("name", e["client"]) for e in group}),
            _some({e["round"] for e in group}),
            reason,
        )
        for reason, group in sorted(groups.items(), key=lambda item: -len(item[1]))
    ]
    header = ("times", "clients", "rounds", "reason")
    return Grid(header, tuple(rows), words=frozenset({1, 2, 3}), title="left out of a round")


def _some(things: set[Any], most: int = 6) -> str:
    shown = ", ".join(map(str, sorted(things)[:most]))
    return shown if len(things) <= most else f"{shown}, ... ({len(things)})"
