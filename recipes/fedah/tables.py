"""Gather the comparisons made from the recipes of this folder into the forms of the paper's tables.

``python recipes/fedah/tables.py RUNS_DIR`` writes docs/results/fedah.md and fedah.png. A comparison that has not been
made is left out.
"""

import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean, stdev

from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure

from fedtailor.methods import catalogue
from fedtailor.runs import Comparison, Run
from fedtailor.views.curves import COLOURS, STROKES
from fedtailor.views.publishing import took

RESULTS = Path(__file__).parents[2] / "docs" / "results"
LOCALLY = "fedavg, trained locally"
GLOBAL = ("fedavg", "fedprox")  # the paper scores their one global model, of all others the clients' own models
NEAR = 0.01  # a run has converged in the first round that is this near its best

# Accuracies of the paper in %: FedAH, and the best of the other methods
TABLES = {
    "Table I: the data sets, 20 clients": {
        "fedah-mnist-pathological": ("MNIST, 2 classes", 99.90, 99.88),
        "fedah-cifar10-pathological": ("CIFAR-10, 2 classes", 92.57, 92.44),
        "fedah-cifar100-pathological": ("CIFAR-100, 10 classes", 69.70, 67.83),
        "fedah-mnist-dirichlet": ("MNIST, Dir 0.1", 99.66, 99.71),
        "fedah-cifar10-dirichlet": ("CIFAR-10, Dir 0.1", 91.11, 90.67),
        "fedah-cifar100-dirichlet": ("CIFAR-100, Dir 0.1", 58.79, 55.92),
        "fedah-ag-news": ("AG News, Dir 0.1", 96.65, 96.52),
        "fedah-resnet18": ("CIFAR-10, ResNet-18", None, None),
        "fedah-cifar100-long": ("CIFAR-100, Dir 0.1, longer", 58.79, 55.92),
    },
    "Table II: the number of clients, CIFAR-100, Dir 0.1": {
        "fedah-clients-10": ("10 clients", 58.44, 56.31),
        "fedah-clients-50": ("50 clients", 57.53, 55.61),
        "fedah-clients-100": ("100 clients", 56.05, 54.68),
        "fedah-clients-200": ("200 clients", 48.37, 45.78),
    },
    "Table IV: clients that come and go, CIFAR-100, 50 clients, Dir 0.1": {
        "fedah-clients-50": ("ratio 1", 57.53, 55.61),
        "fedah-joining-0.5": ("0.5 to 1", 57.35, 55.14),
        "fedah-joining-0.1": ("0.1 to 1", 56.92, 54.78),
    },
    "Table V: local epochs, CIFAR-10, 20 clients, Dir 0.1": {
        "fedah-epochs-5": ("5 epochs", 91.03, 90.79),
        "fedah-epochs-10": ("10 epochs", 90.87, 90.59),
        "fedah-epochs-20": ("20 epochs", 90.72, 90.35),
    },
}
SEEDS = (0, 1, 2)  # of the recipes
CONVERGENCE = "fedah-cifar100-dirichlet"
ABLATION = "fedah-ablation"


@dataclass(frozen=True)
class Column:
    """A comparison: its title, the paper's two figures, and every method's accuracy in % by seed."""

    title: str
    paper: tuple[float | None, float | None]
    values: Mapping[str, Mapping[int, float]]

    @property
    def rival(self) -> str:
        """The best of the paper's other methods."""
        others = [name for name in self.values if name not in ("fedah", LOCALLY)]
        return max(others, key=lambda name: fmean(self.values[name].values()))

    def lead(self) -> list[float]:
        """FedAH's lead over its best rival, seed by seed: both have the same clients and the same start."""
        ours, theirs = self.values["fedah"], self.values[self.rival]
        return [ours[seed] - theirs[seed] for seed in ours if seed in theirs]


def main(runs: Path) -> None:
    lines = [
        "# fedah",
        "",
        "Written by `python recipes/fedah/tables.py RUNS_DIR`. Accuracy pooled over all test samples (%), mean ± "
        "deviation over the seeds: of the global model for FedAvg and FedProx, of the clients' own models for all "
        "others, as in the paper; FedAvg's clients' own models stand below, *trained locally*. `lead` is FedAH's over "
        "the best of the paper's other methods, mean ± deviation of the differences seed by seed; `paper` is that "
        "difference there.",
        "",
    ]
    panels = {}
    for title, names in TABLES.items():
        columns = [column for name, spec in names.items() if (column := read(runs, name, spec))]
        if columns:
            lines += [f"## {title}", "", *table(columns), ""]
            panels[title] = columns
    lines += convergence(runs) + ablation(runs)
    if panels:
        draw(panels, RESULTS / "fedah.png")
        lines += ["![FedAH and the others](fedah.png)", ""]
    lines += [took(runs.rglob("run.db"), SEEDS), ""]
    RESULTS.mkdir(parents=True, exist_ok=True)
    (RESULTS / "fedah.md").write_text("\n".join(lines), encoding="utf-8")
    print(RESULTS / "fedah.md")


def read(runs: Path, name: str, spec: tuple[str, float | None, float | None]) -> Column | None:
    comparison = find(runs, name)
    if comparison is None:
        return None
    model = comparison.experiment.compare.metric
    values: dict[str, dict[int, float]] = {}
    for label, folders in comparison.runs().items():
        method = label.split()[0]
        for folder in folders:
            with Run(folder) as run:
                if not run.finished:
                    continue
                last, seed = run.last(), run.settings["seed"]
            if method in GLOBAL and "global" in last:
                values.setdefault(method, {})[seed] = 100 * last["global"].pooled
            if method == "fedavg":
                values.setdefault(LOCALLY, {})[seed] = 100 * last[model].pooled
            if method not in GLOBAL:
                values.setdefault(method, {})[seed] = 100 * last[model].pooled
    return Column(spec[0], spec[1:], values) if "fedah" in values and len(values) > 1 else None


def table(columns: Sequence[Column]) -> list[str]:
    rows = list(dict.fromkeys(name for column in columns for name in column.values))
    rows.sort(key=lambda name: (name == LOCALLY, name == "fedah"))
    best = [max(fmean(seeds.values()) for seeds in column.values.values()) for column in columns]
    lines = ["| method | " + " | ".join(c.title for c in columns) + " |", "| --- |" + " ---: |" * len(columns)]
    for name in rows:
        cells = []
        for column, most in zip(columns, best, strict=True):
            known = list(column.values.get(name, {}).values())
            cells.append(_bold(spread(known), fmean(known) == most) if known else "–")
        lines.append(f"| {name} | " + " | ".join(cells) + " |")
    leads = [f"{spread(column.lead(), sign=True)} ({column.rival})" for column in columns]
    papers = [
        "–" if one is None or other is None else f"{one - other:+.2f}" for one, other in (c.paper for c in columns)
    ]
    lines.append("| lead | " + " | ".join(leads) + " |")
    lines.append("| paper | " + " | ".join(papers) + " |")
    return lines


def convergence(runs: Path) -> list[str]:
    """Rounds until a run is near its best, and what they cost, by counting and not by a stopwatch."""
    comparison = find(runs, CONVERGENCE)
    if comparison is None:
        return []
    lines = [
        "## Table III: work and communication until convergence, CIFAR-100, Dir 0.1",
        "",
        f"A run has converged in the first round whose accuracy is within {100 * NEAR:g} point of its best. Work is in "
        "forward and backward passes over the data, FedAvg's round being 1; parameters are per client, in models (Σ). "
        "What a round takes in measured time: [fedah-speed](fedah-speed.md).",
        "",
        "| method | rounds | work of a round | work in all | parameters in a round | parameters in all |",
        "| --- | ---: | ---: | ---: | ---: | ---: |",
    ]
    epochs = comparison.experiment.training.epochs
    for label, folders in comparison.runs().items():
        method = label.split()[0]
        rounds, sent = [], []
        for folder in folders:
            with Run(folder) as run:
                if not run.finished:
                    continue
                model = "global" if method in GLOBAL else "held"
                scores = {row["round"]: row["pooled"] for row in run.metrics(model)}
                rounds.append(next(r for r, score in scores.items() if score >= max(scores.values()) - NEAR))
                per_round = [row["bytes_up"] + row["bytes_down"] for row in run.rounds()]
                sent.append(fmean(per_round) / len(run.rounds()[0]["cohort"]))
        if rounds:
            made = next(m for m in comparison.experiment.compare.methods if _name(m) == method)
            settings = {} if isinstance(made, str) else {k: v for k, v in made.items() if k != "name"}
            work = catalogue()[method](**settings).passes(epochs) / epochs
            models = fmean(sent) / _model_bytes(comparison)
            cells = [spread(rounds), f"{work:.2f}", f"{fmean(rounds) * work:.1f}", f"{models:.2f}"]
            lines.append(f"| {method} | {' | '.join(cells)} | {fmean(rounds) * models:.1f} |")
    return [*lines, ""]


def ablation(runs: Path) -> list[str]:
    comparison = find(runs, ABLATION)
    if comparison is None:
        return []
    lines = [
        "## What the learned mix does, CIFAR-10, Dir 0.1",
        "",
        "| variant | received | held |",
        "| --- | ---: | ---: |",
    ]
    for label, folders in comparison.runs().items():
        found: dict[str, list[float]] = {"received": [], "held": []}
        for folder in folders:
            with Run(folder) as run:
                if run.finished:
                    for model, values in found.items():
                        values.append(100 * run.last()[model].pooled)
        if found["held"]:
            lines.append(f"| {label} | {spread(found['received'])} | {spread(found['held'])} |")
    return [*lines, ""]


def draw(panels: Mapping[str, Sequence[Column]], path: Path) -> None:
    """Every method's accuracy over the columns of the tables that vary one thing."""
    shown = {title: columns for title, columns in panels.items() if not title.startswith("Table I:")} or dict(panels)
    figure = Figure(figsize=(4.2 * len(shown), 4.2), dpi=140, layout="constrained")
    FigureCanvasAgg(figure)
    names = list(dict.fromkeys(name for columns in shown.values() for column in columns for name in column.values))
    for axes, (title, columns) in zip(figure.subplots(1, len(shown), squeeze=False)[0], shown.items(), strict=True):
        for place, name in enumerate(names):
            points = [(c.title, list(c.values[name].values())) for c in columns if name in c.values]
            axes.errorbar(
                [x for x, _ in points],
                [fmean(values) for _, values in points],
                [stdev(values) if len(values) > 1 else 0.0 for _, values in points],
                label=name,
                color=COLOURS[place % len(COLOURS)],
                linestyle=STROKES[place // len(COLOURS) % len(STROKES)],
                linewidth=3 if name == "fedah" else 1.5,
                capsize=3,
            )
        axes.set_title(title.replace(": ", ":\n", 1).replace(", C", ",\nC", 1), fontsize=9, loc="left")
        axes.set_ylabel("accuracy (%)")
        axes.grid(color="#e6e9ed")
    figure.legend(*axes.get_legend_handles_labels(), loc="outside right center", frameon=False, fontsize=9)
    figure.savefig(path)


def find(runs: Path, name: str) -> Comparison | None:
    """A comparison by its name, wherever below the folder it is."""
    folders = sorted(runs.rglob(f"{name}-comparison")) + sorted(runs.rglob(name))
    return next((Comparison(folder) for folder in folders if (folder / "comparison.toml").is_file()), None)


def spread(values: Sequence[float], sign: bool = False) -> str:
    mean = f"{fmean(values):+.1f}" if sign else f"{fmean(values):.1f}"
    return f"{mean} ± {stdev(values):.1f}" if len(values) > 1 else mean


def _model_bytes(comparison: Comparison) -> float:
    """The bytes of the whole model: half of what FedAvg moves for a client in a round."""
    for label, folders in comparison.runs().items():
        if label == "fedavg":
            with Run(folders[0]) as run:
                first = run.rounds()[0]
                return float(first["bytes_up"] + first["bytes_down"]) / 2 / len(first["cohort"])
    raise SystemExit(f"{comparison.folder} has no run of fedavg to measure the others by")


def _name(method: object) -> str:
    return method if isinstance(method, str) else str(method["name"])  # type: ignore[index]


def _bold(text: str, bold: bool) -> str:
    return f"**{text}**" if bold else text


if __name__ == "__main__":
    main(Path(sys.argv[1]))
