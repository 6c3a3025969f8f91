"""Is the advice right? ``python benchmarks/advice.py RUNS_DIR [CASE ...]`` writes docs/results/advise.md.

For every case it asks ``fedtailor advise`` for a method, which sees no test sample, and then measures on test data: the
recommended settings, and the methods that they are compared with at their default settings. Where the recipe has
records of all methods, those are the comparison, and no run is repeated. What RUNS_DIR holds is not run again.
"""

import json
import sys
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import fedtailor
from fedtailor.runs import Run, experiment, run
from fedtailor.runs.advice import Advice, advise
from fedtailor.runs.advice.reasons import verdict
from fedtailor.runs.reproduce.records import read_records
from fedtailor.runs.settings import Experiment
from fedtailor.runs.statistics import CRITERION, Difference, difference
from fedtailor.views.comparison import difference_text, outcome_text
from fedtailor.views.numbers import duration
from fedtailor.views.provenance import made_by
from fedtailor.views.search_progress import search_progress
from fedtailor.views.tables import Grid

ROOT = Path(__file__).parents[1]
PAGE = ROOT / "docs" / "results" / "advise.md"


@dataclass(frozen=True)
class Case:
    """An experiment, and the methods with which its advice is compared."""

    title: str
    file: str  # below recipes/
    seeds: tuple[int, ...] = (0, 1, 2)  # of the runs on test data
    changes: dict[str, Any] = field(default_factory=dict)
    rivals: tuple[str, ...] = ()  # run here; empty: the records of the recipe have all methods

    @property
    def settings(self) -> Experiment:
        return experiment(ROOT / "recipes" / self.file, self.changes)


CASES = {
    "digits": Case("Digits: 20 clients, Dirichlet 0.3, half of them in a round", "methods/digits.toml"),
    "heart-disease": Case("Heart disease: four hospitals", "natural/heart-disease.toml", (0, 1, 2, 3, 4)),
    "fashion-mnist": Case(
        "Fashion-MNIST: 20 clients with two classes each, 20 % of them in a round, 20 rounds",
        "methods/fashion-mnist.toml",
        changes={"data.clients": 20, "data.samples": 2000, "participation.ratio": 0.2, "rounds": 20},
        rivals=("local", "fedavg", "fedavg-ft", "fedrep", "fedpac"),
    ),
}


def main(runs: Path, names: list[str]) -> None:
    parts: list[str] = []
    begin, seeds = time.monotonic(), set[int]()
    for name in names or list(CASES):
        case = CASES[name]
        with search_progress() as callback:
            advice = advise(case.settings, folder=runs / f"{name}-advise", callback=callback)
        ours = tested(runs / f"{name}-advised", advice.best, case.seeds)
        theirs = by_method(runs / name, case)
        parts += section(case, advice, ours, theirs)
        seeds.update(case.seeds)
        # after every case, so that a call that is stopped leaves what it has
        write(parts, made_by("python benchmarks/advice.py RUNS_DIR", begin, sorted(seeds)))


def write(parts: list[str], made: str) -> None:
    lines = [
        "# advise",
        "",
        ABOUT,
        "",
        *parts,
        f"{CRITERION} The table's first is the best of many, so its mean is optimistic.",
        "",
        made,
        "",
    ]
    PAGE.write_text("\n".join(lines), encoding="utf-8")
    print(PAGE)


ABOUT = (
    "Does `fedtailor advise` pick a method that is not decidedly worse than the best? The advice sees validation data "
    "of one federation, that of seed 0. The table has test data, over several seeds: the recommended settings against "
    "every method at the default settings of its recipe. How to read an advice: [advise](../advise.md)."
)


def tested(folder: Path, settings: Experiment, seeds: tuple[int, ...]) -> dict[int, float]:
    """The accuracy of the final models on test data, in percent, by seed."""
    found = {}
    for seed in seeds:
        place = folder / f"s{seed}"
        if not place.exists():
            # validation data are carved out for all, as in the records
            run(settings.model_copy(update={"seed": seed, "validation": True}), folder=place).close()
        with Run(place) as done:
            if not done.finished:
                fedtailor.resume(place).close()
        with Run(place) as done:
            found[seed] = 100 * done.last()["final"].main.mean
    return found


def by_method(folder: Path, case: Case) -> dict[str, dict[int, float]]:
    """The same for the methods of the comparison, by method."""
    if case.rivals:
        return {
            name: tested(folder / name, experiment(case.settings, {"method": {"name": name}}), case.seeds)
            for name in case.rivals
        }
    found: dict[str, dict[int, float]] = {}
    for record in read_records(ROOT / "recipes" / case.file.partition("/")[0]).values():
        if record.experiment == Path(case.file).stem:
            found.setdefault(record.method, {})[record.seed] = 100 * record.metrics["final"]["accuracy"][-1]
    return found


def section(case: Case, advice: Advice, ours: dict[int, float], theirs: dict[str, dict[int, float]]) -> list[str]:
    order = sorted(theirs, key=lambda name: -mean(theirs[name]))
    first = order[0]
    found = difference(ours, theirs[first])
    rows = [(f"advised: {advice.method}", f"{mean(ours):.1f}", "–", "–")]
    shown = dict.fromkeys([*order[:3], advice.method, "fedavg", "local"])
    rows += [row(name, ours, theirs[name], order) for name in shown if name in theirs]
    place = order.index(advice.method) + 1 if advice.method in order else None
    source = "runs of this program" if case.rivals else f"records in recipes/{case.file.partition('/')[0]}/records"
    alone = f" At its default settings it is number {place} of {len(order)} by its mean." if place else ""
    spent = sum(reading_seconds(advice))
    grid = Grid(("final, test data", "mean %", "advised minus it", "advised is"), tuple(rows), frozenset({0, 3}))
    return [
        f"## {case.title}",
        "",
        f"Advice: **{advice.method}** with {settings_text(advice)}; {verdict(advice.standings)}. "
        f"{len(advice.standings)} candidates, {len(advice.left_out)} left out by rules; seeds "
        f"{', '.join(map(str, advice.choosing))} chose, seeds {', '.join(map(str, advice.seeds))} measured. The "
        f"rounds of its trials took {duration(spent)}.",
        "",
        *(f"* {sentence}" for sentence in advice.reasons),
        "",
        grid.markdown(),
        f"Of {len(order)} methods, {first} has the best mean; the advised settings against it: "
        f"{difference_text(found)}: **{judged(found)}**.{alone} The table: {source}, seeds "
        f"{', '.join(map(str, case.seeds))}.",
        "",
    ]


def row(name: str, ours: dict[int, float], theirs: dict[int, float], order: list[str]) -> tuple[str, str, str, str]:
    found = difference(ours, theirs)
    return (
        f"{name} (number {order.index(name) + 1})",
        f"{mean(theirs):.1f}",
        difference_text(found),
        outcome_text(found),
    )


def judged(found: Difference) -> str:
    return "decidedly worse" if found.outcome == "behind" else f"not decidedly worse ({found.outcome})"


def settings_text(advice: Advice) -> str:
    changes = advice.standings[0].changes
    return ", ".join(f"{key} = {value:.4g}" for key, value in changes.items()) or "the recipe's settings"


def reading_seconds(advice: Advice) -> list[float]:
    lines = (advice.folder / "readings.jsonl").read_text(encoding="utf-8").splitlines()
    return [json.loads(line)["reading"]["seconds"] for line in lines]


def mean(values: dict[int, float]) -> float:
    return sum(values.values()) / len(values)


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2:])
