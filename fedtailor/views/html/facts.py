"""The numbers behind the figures of a page, as documents for its scripts."""

import math
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from itertools import accumulate
from typing import Any

from fedtailor.runs import Comparison, ComparisonSummary, Run
from fedtailor.runs.reading import value_of
from fedtailor.views.curves import comparison_curves
from fedtailor.views.timing import phases_by_round, profile

ORDER = ("held", "global", "received")
FEW = 6  # most further models, such as groups, whose curves have names
BARS = 120  # most rounds in the picture of the time
POINTS = 400  # most points of a curve
VALUES = 150_000  # most values of clients in a page
QUANTILES = 100

Document = dict[str, Any]


def run_facts(run: Run) -> Document:
    """A run: curves, each client's latest value by model, and the last cohort."""
    rounds = run.rounds()
    curves = _run_curves(run, rounds)
    ids, values = client_values(run)
    last = run.last()
    final = last["final"].main.mean if "final" in last else None
    return {
        "kind": "run",
        "name": run.name,
        "status": run.status,
        "measure": run.headline,
        "percent": run.shows_percent,
        "less": run.less_is_better,
        "axes": sorted({name for curve in curves for name in curve["x"]}),
        "curves": curves,
        "final": final,
        "clients": {"names": list(run.names) or None, "ids": ids, "values": values},
        "distribution": [
            {"label": model, "quantiles": found} for model, row in values.items() if (found := quantiles(row))
        ],
        "cohort": rounds[-1]["cohort"] if rounds else [],
        "profile": _profile(run, rounds),
    }


def _profile(run: Run, rounds: Sequence[Mapping[str, Any]]) -> Document | None:
    """Where the time of the rounds went, at most `BARS` of them; None if nothing was measured."""
    phases = run.phases()
    if not phases:
        return None
    found = phases_by_round(phases, rounds)
    kept = thinned(range(len(rounds)), BARS)

    def some(values: Sequence[Any]) -> list[Any]:
        return [values[place] for place in kept]

    parts = {kind: {name: some(row) for name, row in found[kind].items()} for kind in ("phases", "workers")}
    each = profile(phases, [row["seconds"] for row in rounds], run.name).get("each_worker", [])
    return {"round": some(found["round"]), **parts, "every": len(kept) == len(rounds), "each_worker": each}


def client_values(run: Run) -> tuple[list[int] | None, dict[str, list[float | None]]]:
    """By model, the latest headline of every client; None where it is not known.

    With very many clients, it has only clients with a score, as many as a page can hold, and their ids.
    """
    count = run.client_count + run.new_clients
    known = {
        model: {score["client"]: value_of(score, run.headline) for score in run.scores(model)} for model in run.last()
    }
    found = {model: row for model, row in known.items() if any(value is not None for value in row.values())}
    ids = None
    if count * len(found) > VALUES:
        ids = thinned(sorted(set().union(*found.values())), VALUES // len(found))
    shown = range(count) if ids is None else ids
    return ids, {model: [row.get(client) for client in shown] for model, row in found.items()}


def _run_curves(run: Run, rounds: Sequence[Mapping[str, Any]]) -> list[Document]:
    by_model: dict[str, list[dict[str, Any]]] = defaultdict(list)
    for row in run.curve():
        if row["model"] not in ("final", "new"):
            by_model[row["model"]].append(row)
    models = [m for m in ORDER if m in by_model] + [m for m in by_model if m not in ORDER]
    many = len(models) - len([m for m in models if m in ORDER]) > FEW
    places = _places(run, rounds)
    episode_rounds = run.settings["rounds"]
    curves = []
    for model in models:
        rows = thinned(by_model[model])
        count = [row["episode"] * episode_rounds + row["round"] for row in rows]
        axes = {name: [found.get(n) for n in count] for name, found in places.items()}
        curves.append(
            {
                "model": model,
                "x": {"round": count, **axes},
                "mean": [row["mean"] for row in rows],
                "worst_tenth": [row["worst_tenth"] for row in rows],
                "faint": many and model not in ORDER,
            }
        )
    return curves


def _places(run: Run, rounds: Sequence[Mapping[str, Any]]) -> dict[str, dict[int, float]]:
    """What a run had cost after every round, counted over all episodes: megabytes, seconds, seconds on devices."""
    each = run.settings["rounds"]
    count = [row["episode"] * each + row["round"] for row in rounds]
    sent = accumulate((row["bytes_down"] + row["bytes_up"]) / 1e6 for row in rounds)
    spent = accumulate(row["seconds"] for row in rounds)
    found = {
        "megabytes": dict(zip(count, sent, strict=True)),
        "seconds": dict(zip(count, spent, strict=True)),
        "device_seconds": {row["episode"] * each + row["round"]: row["begin"] + row["seconds"] for row in run.clock()},
    }
    return {name: places for name, places in found.items() if any(places.values())}


def comparison_facts(comparison: Comparison, summary: ComparisonSummary) -> Document:
    """A comparison: curves over seeds, each client's value by method and seed, and their distribution."""
    curves = comparison_curves(comparison)
    scale = 0.01 if summary.percent else 1.0
    table = comparison.clients()
    clients = table.values
    every, seeds = _budget(clients)
    return {
        "kind": "comparison",
        "name": summary.name,
        "measure": summary.measure,
        "percent": summary.percent,
        "less": table.less_is_better,
        "baseline": summary.baseline,
        "axes": sorted({name for curve in curves for name in curve.costs}),
        "curves": [
            {
                "label": curve.label,
                "x": {"round": list(curve.rounds), **{name: list(found) for name, found in curve.costs.items()}},
                "mean": [scale * value for value in curve.means],
                "spread": [scale * value for value in curve.spreads],
            }
            for curve in curves
        ],
        "every": every,
        "clients": [
            {
                "label": label,
                "seeds": {seed: _row(found, every) for seed, found in rows.items() if seed in seeds},
            }
            for label, rows in clients.items()
            if rows
        ],
        "names": {seed: names[::every] for seed, names in table.names.items() if seed in seeds},
        "distribution": [
            {"label": label, "quantiles": found}
            for label, rows in clients.items()
            if (found := quantiles(value for row in rows.values() for value in row.values()))
        ],
    }


def _budget(clients: Mapping[str, Mapping[int, Mapping[int, float]]]) -> tuple[int, list[int]]:
    """Every how many clients, and which seeds, so that a page stays small."""
    seeds = sorted({seed for rows in clients.values() for seed in rows})
    most = max((max(row, default=0) + 1 for rows in clients.values() for row in rows.values()), default=1)
    room = VALUES // max(1, most * len(clients))
    return max(1, math.ceil(most * len(clients) / VALUES)), seeds[: max(1, room)]


def _row(found: Mapping[int, float], every: int) -> list[float | None]:
    return [found.get(client) for client in range(0, max(found, default=-1) + 1, every)]


def quantiles(values: Iterable[float | None]) -> list[float]:
    """101 quantiles of the values that are known, from the lowest to the highest; fewer for fewer values.

    >>> quantiles([3.0, 1.0, None, 2.0])
    [1.0, 2.0, 3.0]
    """
    known = sorted(value for value in values if value is not None and not math.isnan(value))
    if len(known) < 2:
        return []
    parts = min(QUANTILES, len(known) - 1)
    return [known[round(k * (len(known) - 1) / parts)] for k in range(parts + 1)]


def thinned(rows: Sequence[Any], most: int = POINTS) -> list[Any]:
    """At most this many rows, evenly spaced, with the first and the last.

    >>> thinned([1, 2, 3, 4, 5], 3)
    [1, 3, 5]
    """
    if len(rows) <= most:
        return list(rows)
    return [rows[round(k * (len(rows) - 1) / (most - 1))] for k in range(most)]
