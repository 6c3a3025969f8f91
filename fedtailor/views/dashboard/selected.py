"""Compares the runs that a user selected in the dashboard."""

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean, stdev
from typing import Any

from fedtailor.errors import UserError
from fedtailor.runs import Run
from fedtailor.runs.reading import value_of
from fedtailor.runs.statistics import CRITERION, comparisons_text, difference, wins
from fedtailor.views.comparison import difference_text, outcome_text
from fedtailor.views.html.facts import quantiles, run_facts
from fedtailor.views.numbers import NOTHING, measured
from fedtailor.views.report import method_text

MODELS = ("final", "held", "global", "received")


# Settings in which the runs of one group may differ: they are its seeds, or change no result.
FREE = ("name", "seed", "engine", "compare", "pretrain", "track")


@dataclass(frozen=True)
class _Selected:
    name: str
    label: str
    kind: str  # all settings that matter, as a text
    seed: int
    data: str
    measure: tuple[str, bool, bool]  # name, percent, less is better
    curves: list[dict[str, Any]]
    model: str
    mean: float | None
    values: Mapping[int, float]


def selected_document(folders: Sequence[Path]) -> dict[str, Any]:
    """Runs side by side, grouped by all settings but the seed; the first group is the baseline.

    A difference is decided only over seeds in which both runs had the same data.
    """
    runs = [_read(folder) for folder in folders]
    if len({run.measure for run in runs}) > 1:
        raise UserError("these runs have different headline measures: tick runs that can be compared")
    groups, notes = _groups(runs)
    name, percent, less = runs[0].measure
    baseline = next(iter(groups))
    rows = [_row(label, those, groups[baseline], percent, less) for label, those in groups.items()]
    compared = len(groups) - 1
    axes = sorted({axis for run in runs for curve in run.curves for axis in curve["x"]})
    return {
        "measure": name,
        "percent": percent,
        "less": less,
        "baseline": baseline,
        "axes": axes,
        "curves": [_curve(label, those) for label, those in groups.items()],
        "every": 1,
        "names": {},
        "clients": [
            {"label": label, "seeds": {_pair(run, runs): _list(run.values) for run in those}}
            for label, those in groups.items()
        ],
        "distribution": [
            {"label": label, "quantiles": found}
            for label, those in groups.items()
            if (found := quantiles(value for run in those for value in run.values.values()))
        ],
        "table": {
            "title": f"{name}, mean ± deviation over seeds",
            "header": [
                "method",
                "model",
                "mean",
                f"against {baseline}",
                "decided",
                "clients won / tied / lost",
                "seeds",
            ],
            "rows": rows,
            "words": [0, 1, 4],
        },
        "notes": [*notes, *([f"{CRITERION} {comparisons_text(compared)}"] if compared else [])],
    }


def _groups(runs: Sequence[_Selected]) -> tuple[dict[str, list[_Selected]], list[str]]:
    """The runs by label. Runs that differ in more than the seed are never averaged; a seed counts once."""
    kinds: dict[str, list[_Selected]] = {}
    notes = []
    for run in runs:
        those = kinds.setdefault(run.kind, [])
        if any(other.seed == run.seed for other in those):
            notes.append(f"{run.name} is left out: a ticked run has the same settings and seed.")
        else:
            those.append(run)
    labels = [those[0].label for those in kinds.values()]
    found = {}
    for those in kinds.values():
        label = those[0].label
        found[label if labels.count(label) == 1 else f"{label}: {those[0].name}"] = those
    return found, notes


def _pair(run: _Selected, runs: Sequence[_Selected]) -> str:
    """The seed; with a mark if other runs of this seed have other data or another model, so that they are no pair."""
    alike = list(dict.fromkeys((one.data, one.model) for one in runs if one.seed == run.seed))
    place = alike.index((run.data, run.model))
    return f"{run.seed}{f' (other data, {place + 1})' if place else ''}"


def _read(folder: Path) -> _Selected:
    with Run(folder) as run:
        last = run.last()
        model = next((m for m in MODELS if m in last), "")
        scores = run.scores(model) if model else []
        values = {row["client"]: v for row in scores if (v := value_of(row, run.headline)) is not None}
        curves = [curve for curve in run_facts(run)["curves"] if curve["model"] in ("held", "global")]
        measure = (run.headline, run.shows_percent, run.less_is_better)
        mean = last[model].main.mean if model else None
        label = method_text(run.settings["method"])
        kind = json.dumps({k: v for k, v in run.settings.items() if k not in FREE}, sort_keys=True, default=str)
        seed = run.settings["seed"]
        return _Selected(folder.name, label, kind, seed, run.data_digest, measure, curves[:1], model, mean, values)


def _row(label: str, ours: list[_Selected], base: list[_Selected], percent: bool, less: bool) -> list[str]:
    means = [run.mean for run in ours if run.mean is not None]
    deviation = f" ± {measured(stdev(means), percent)}" if len(means) > 1 else ""
    shown = measured(fmean(means), percent) + deviation if means else NOTHING
    start = [label, "/".join(sorted({run.model for run in ours})) or NOTHING, shown]
    seeds = ", ".join(str(run.seed) for run in ours)
    if ours is base:
        return [*start, "baseline", NOTHING, NOTHING, seeds]
    of_seed = {run.seed: run for run in base}
    fair = [run for run in ours if run.seed in of_seed and _comparable(run, of_seed[run.seed])]
    scale, better = (100 if percent else 1), (-1 if less else 1)
    one = {run.seed: None if run.mean is None else scale * run.mean for run in fair}
    other = {seed: None if r.mean is None else scale * r.mean for seed, r in of_seed.items()}
    found = difference(one, other, percent, better)
    counts = wins({run.seed: run.values for run in fair}, {seed: r.values for seed, r in of_seed.items()}, better)
    said = NOTHING if counts is None else f"{counts.won} / {counts.tied} / {counts.lost}"
    return [*start, difference_text(found), outcome_text(found), said, seeds]


def _comparable(one: _Selected, other: _Selected) -> bool:
    return one.data == other.data and one.model == other.model


def _curve(label: str, runs: list[_Selected]) -> dict[str, Any]:
    """The mean over seeds with its deviation, at the rounds that every run of the group has."""
    curves = [curve for run in runs for curve in run.curves]
    if not curves:
        return {"label": label, "x": {"round": []}, "mean": [], "spread": []}
    rounds = sorted(set.intersection(*(set(curve["x"]["round"]) for curve in curves)))
    at = [{n: k for k, n in enumerate(curve["x"]["round"])} for curve in curves]

    def over_seeds(of: Any) -> list[list[float]]:
        table = [[of(curve)[places[n]] for curve, places in zip(curves, at, strict=True)] for n in rounds]
        return [[value for value in row if value is not None and not math.isnan(value)] for row in table]

    values = over_seeds(lambda curve: curve["mean"])
    axes = set.intersection(*(set(curve["x"]) for curve in curves))
    places = {axis: over_seeds(lambda curve, axis=axis: curve["x"][axis]) for axis in axes}
    return {
        "label": label,
        "x": {axis: [fmean(row) if row else None for row in found] for axis, found in places.items()},
        "mean": [fmean(row) if row else None for row in values],
        "spread": [stdev(row) if len(row) > 1 else 0.0 for row in values],
    }


def _list(values: Mapping[int, float]) -> list[float | None]:
    return [values.get(client) for client in range(max(values, default=-1) + 1)]
