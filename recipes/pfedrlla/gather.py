"""Gather the comparisons of this folder into the paper's Table 1 and its Fig. 4.

``python recipes/pfedrlla/gather.py RUNS_DIR`` writes docs/results/pfedrlla.md. What has not been made is left out.
"""

import sys
from pathlib import Path
from statistics import fmean, stdev

from fedtailor.runs import Comparison, Run
from fedtailor.views.publishing import took

RESULTS = Path(__file__).parents[2] / "docs" / "results"
TITLES = {
    "fashion-s2": "Fashion-MNIST, s = 2",
    "fashion-s5": "Fashion-MNIST, s = 5",
    "fashion-dir": "Fashion-MNIST, Dir 0.1",
    "cifar10-s2": "CIFAR-10, s = 2",
    "cifar10-s5": "CIFAR-10, s = 5",
    "cifar10-dir": "CIFAR-10, Dir 0.1",
}
EPOCHS = {"fashion-s5-one-epoch": "1 epoch", "fashion-s5": "5 epochs"}
PAPER = "pfedrlla warmup=5 every=2 updates=10"
PAPER_SHOWN = "the paper's form"
OURS = ("ours", "ours, with a policy")
FEWER = 24  # rounds: a fifth less
SEEDS = (0, 1, 2)  # of the recipes
Found = dict[str, list[Path]]  # the finished runs of a method


def main(runs: Path) -> None:
    found = {name: made for name in TITLES if (made := read(runs, name))}
    lines = [
        "# pfedrlla",
        "",
        "Written by `python recipes/pfedrlla/gather.py RUNS_DIR` from the comparisons of recipes/pfedrlla; what they "
        "mean: [pfedrlla](../pfedrlla.md). 100 clients, 10 in a round, 30 rounds; mean ± deviation over seeds.",
        "",
        *table_1(found),
        *leads(found),
        *figure_4(found, runs),
        *table_3({title: made for name, title in EPOCHS.items() if (made := read(runs, name))}),
        *ablation(runs),
        took(runs.glob("pfedrlla-*/*/run.db"), SEEDS),
        "",
    ]
    (RESULTS / "pfedrlla.md").write_text("\n".join(lines), encoding="utf-8")
    print(RESULTS / "pfedrlla.md")


def read(runs: Path, name: str) -> Found:
    return finished_runs(runs / f"pfedrlla-{name}-comparison")


def finished_runs(folder: Path) -> Found:
    if not (folder / "comparison.toml").is_file():
        return {}
    made = {label: [one for one in folders if finished(one)] for label, folders in Comparison(folder).runs().items()}
    return {label: folders for label, folders in made.items() if folders}


def finished(folder: Path) -> bool:
    with Run(folder) as run:
        return run.finished


def seed_of(folder: Path) -> int:
    return int(folder.name.rpartition("-s")[2])


def final(folder: Path) -> float:
    """The headline, in %."""
    with Run(folder) as run:
        return 100 * float(run.last()["final"].accuracy)


def held(folder: Path) -> list[tuple[int, float]]:
    with Run(folder) as run:
        return [(row["round"], 100 * row["accuracy"]) for row in run.metrics("held")]


def rows_of(found: dict[str, Found]) -> list[str]:
    """The methods that all settings have: the paper's baselines, the paper's form, ours."""
    everywhere = [label for label in next(iter(found.values()), {}) if all(label in made for made in found.values())]
    return [label for label in everywhere if label.split()[0] != "pfedrlla" or label == PAPER]


def baselines(made: Found) -> list[str]:
    return [label for label in made if label.split()[0].rstrip(",") not in ("pfedrlla", "ours", "after", "freer")]


def table_1(found: dict[str, Found]) -> list[str]:
    lines = [
        "## Table 1: accuracy after the last round, when everyone has received and trained once more (%)",
        "",
        *header(["method", *(TITLES[name] for name in found)]),
    ]
    for label in rows_of(found):
        cells = [spread([final(one) for one in made[label]]) for made in found.values()]
        lines.append(f"| {shown(label)} | {' | '.join(cells)} |")
    return [*lines, ""]


def leads(found: dict[str, Found]) -> list[str]:
    lines = [
        "The lead over the best baseline of a column (points, seed by seed, which have the same clients and start):",
        "",
        *header(["setting", "best baseline", PAPER_SHOWN, *OURS]),
    ]
    for name, made in found.items():
        best = max(baselines(made), key=lambda label: fmean(final(one) for one in made[label]))
        of_best = {seed_of(one): final(one) for one in made[best]}
        cells = []
        for label in (PAPER, *OURS):
            own = {seed_of(one): final(one) for one in made.get(label, [])}
            cells.append(spread([value - of_best[seed] for seed, value in own.items() if seed in of_best], sign="+"))
        lines.append(f"| {TITLES[name]} | {best.split()[0]} | {' | '.join(cells)} |")
    return [*lines, ""]


def figure_4(found: dict[str, Found], runs: Path) -> list[str]:
    lines = [
        "## Fig. 4: rounds to the accuracy of the best baseline after the last round",
        "",
        "What clients hold, evaluated every five rounds and read off between them on straight lines; a client that was "
        "not selected holds an older model. *target*: the best baseline's mean at round 30. *rounds*: where the mean "
        f"over the seeds reaches it. Last columns: the headline of Table 1, when ours has only {FEWER} rounds.",
        "",
        *header(["setting", "target (%)", "best baseline", PAPER_SHOWN, *OURS, "best, 30 rounds", f"ours, {FEWER}"]),
    ]
    for name, made in found.items():
        curves = {label: mean_curve(folders) for label, folders in made.items()}
        best = max(baselines(made), key=lambda label: curves[label][-1][1])
        target = curves[best][-1][1]
        cells = [reached(curves.get(label, []), target) for label in (best, PAPER, *OURS)]
        cells[0] = f"{best.split()[0]}: {cells[0]}"
        cells.append(spread(max(([final(one) for one in made[label]] for label in baselines(made)), key=fmean)))
        cells.append(spread([final(one) for one in finished_runs(runs / f"pfedrlla-{name}-{FEWER}").get("ours", [])]))
        lines.append(f"| {TITLES[name]} | {target:.1f} | {' | '.join(cells)} |")
    return [*lines, ""]


def mean_curve(folders: list[Path]) -> list[tuple[int, float]]:
    curves = [held(one) for one in folders]
    return [(at[0][0], fmean(value for _, value in at)) for at in zip(*curves, strict=True)]


def reached(curve: list[tuple[int, float]], target: float) -> str:
    before = (0, 0.0)
    for place, (round, value) in enumerate(curve):
        if value >= target:
            if place == 0:
                return f"≤ {round}"
            share = (target - before[1]) / (value - before[1])
            return f"{before[0] + share * (round - before[0]):.1f}"
        before = (round, value)
    return "never" if curve else "–"


def table_3(found: dict[str, Found]) -> list[str]:
    if len(found) < 2:
        return []
    lines = ["## Table 3: local epochs, Fashion-MNIST, s = 5 (%)", "", *header(["method", *found])]
    for label in rows_of(found):
        cells = [spread([final(one) for one in made[label]]) for made in found.values()]
        lines.append(f"| {shown(label)} | {' | '.join(cells)} |")
    return [*lines, ""]


def ablation(runs: Path) -> list[str]:
    made = read(runs, "fashion-s5")
    rows = [label for label in made if label not in baselines(made)]
    if not rows:
        return []
    lines = [
        "## Without the agent, and with other rewards: Fashion-MNIST, s = 5 (%)",
        "",
        "`after`: models are mixed after the local training, but not by the agent; `freer`: the agent begins with less "
        "for the own models (0.8 instead of 0.9) and its penalty for leaving what it begins with is a quarter of ours. "
        "*reward* b1 b2 b3 are the weights of eq. 1 (the paper's Table 5); all others have 0 1 0.",
        "",
        *header(["form", "final", "held"]),
    ]
    for label in rows:
        cells = [spread([final(one) for one in made[label]]), spread([held(one)[-1][1] for one in made[label]])]
        lines.append(f"| {shown(label)} | {' | '.join(cells)} |")
    return [*lines, ""]


def shown(label: str) -> str:
    return PAPER_SHOWN if label == PAPER else label


def header(titles: list[str]) -> list[str]:
    return [f"| {' | '.join(titles)} |", "| --- |" + " ---: |" * (len(titles) - 1)]


def spread(values: list[float], sign: str = "") -> str:
    if not values:
        return "–"
    return f"{fmean(values):{sign}.1f}" + (f" ± {stdev(values):.1f}" if len(values) > 1 else "")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
