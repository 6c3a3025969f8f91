"""FedALP's tables and figures from our runs, beside the paper's numbers.

``python recipes/fedalp/gather.py RUNS_DIR`` reads the comparisons that docs/fedalp.md makes and writes
docs/results/fedalp.md with pictures: Table 2 and Fig. 2, Table 3 and Fig. 3, Fig. 4, and the groups that were found.
All figures are accuracies over samples in the last round, in percent: of the global model on all test samples, and
"local" of what each client receives on its own.
"""

import sys
from pathlib import Path
from statistics import fmean, stdev
from typing import Any

from fedtailor.methods.clustering import choose, cut, ward
from fedtailor.methods.fedalp import FedALP
from fedtailor.runs import Comparison, Run
from fedtailor.views.curves import COLOURS, GREY, dress, new_figure
from fedtailor.views.drawings.fedalp import agreement, true_labels
from fedtailor.views.numbers import duration
from fedtailor.views.publishing import took
from fedtailor.views.tables import Grid

PAGES = Path(__file__).parents[2] / "docs" / "results"

# The paper's Table 2: FedAvg, FedALP_global, FedALP on non-IID data, FedAvg on IID data
TABLE_2 = {
    "fedalp-mnist-nn": ("MNIST", "MNIST-NN", (87.25, 86.65, 94.46, 94.37)),
    "fedalp-mnist-cnn": ("MNIST", "MNIST-CNN", (92.55, 91.86, 96.67, 96.04)),
    "fedalp-fashion-nn": ("Fashion-MNIST", "MNIST-NN", (73.48, 72.81, 96.64, 81.05)),
    "fedalp-fashion-cnn": ("Fashion-MNIST", "MNIST-CNN", (68.86, 65.01, 79.67, 80.99)),
    "fedalp-cifar10-0.001": ("CIFAR-10", "CIFAR10-CNN", (54.86, 51.39, 67.79, 65.82)),
}
# Table 3 for CIFAR10-CNN: FedAvg, FedALP_global, FedALP
TABLE_3 = {
    "fedalp-cifar10-0.1": ("0.1", (62.81, 63.51, 64.88)),
    "fedalp-cifar10-0.01": ("0.01", (57.03, 56.58, 68.14)),
    "fedalp-cifar10-0.001": ("0.001", (54.86, 51.39, 67.79)),
}
SWEEP = "fedalp-cifar10-0.001"  # the comparison with several beta
BETAS = {
    "0 (FedAvg)": "fedavg",
    "0.3": "fedalp beta=0.3",
    "0.6": "fedalp",
    "0.9": "fedalp beta=0.9",
    "1": "fedalp beta=1",
}
SEEDS = (0, 1, 2)  # of the recipes
LINES = {  # of Figs. 2 and 3, in the paper's colours
    "FedAvg, IID": ("iid", "fedavg", "global", COLOURS[2]),
    "FedAvg, non-IID": ("", "fedavg", "global", COLOURS[4]),
    "FedALP, global": ("", "fedalp", "global", COLOURS[3]),
    "FedALP, local": ("", "fedalp", "received", COLOURS[0]),
}


def main(runs: Path) -> None:
    PAGES.mkdir(parents=True, exist_ok=True)
    parts = [
        "# fedalp",
        "",
        "Written by `python recipes/fedalp/gather.py`; what was run and what follows: [fedalp](../fedalp.md).",
        "Accuracy in % over samples in the last round, mean ± deviation over seeds; in brackets the change relative",
        "to FedAvg on the same data. `local`: what each client receives, on its own test samples; all others: one",
        "model on all test samples.",
        "",
        *table_2(runs),
        *table_3(runs),
        *beta_sweep(runs),
        *warm_up(runs),
        *found_groups(runs),
        *cost(runs),
        took(runs.rglob("run.db"), SEEDS),
        "",
    ]
    (PAGES / "fedalp.md").write_text("\n".join(parts), encoding="utf-8")
    draw_panels(runs, {name: f"{data}, {model}" for name, (data, model, _) in TABLE_2.items()}, "fedalp-rounds.png")
    draw_panels(runs, {name: f"alpha = {alpha}" for name, (alpha, _) in TABLE_3.items()}, "fedalp-alpha.png")
    draw_sweep(runs)
    print(PAGES / "fedalp.md")


# Tables


def table_2(runs: Path) -> list[str]:
    rows = []
    for name, (data, model, paper) in TABLE_2.items():
        if (runs / name).exists():
            plain, general, local = three(runs / name)
            iid = ends(runs / f"{name}-iid", "fedavg", "global")
            ratio = f"{100 * fmean(local) / fmean(iid):.0f} %" if local and iid else "–"
            rows.append(
                (data, model, spread(plain), against(general, plain), against(local, plain), spread(iid), ratio)
            )
            rows.append(("", "paper", *beside(paper[:3]), f"{paper[3]:.2f}", f"{100 * paper[2] / paper[3]:.0f} %"))
    header = ("data", "model", "FedAvg", "FedALP global", "FedALP local", "FedAvg, IID", "local / IID")
    picture = "![accuracy over rounds](fedalp-rounds.png)"
    return ["## Table 2 and Fig. 2: beta = 0.6", "", table(header, rows, {0, 1}), "", picture, ""]


def table_3(runs: Path) -> list[str]:
    rows = []
    for name, (alpha, paper) in TABLE_3.items():
        if (runs / name).exists():
            plain, general, local = three(runs / name)
            rows.append((alpha, spread(plain), against(general, plain), against(local, plain)))
            rows.append(("paper", *beside(paper)))
    header = ("alpha", "FedAvg", "FedALP global", "FedALP local")
    picture = "![accuracy over rounds by alpha](fedalp-alpha.png)"
    return ["## Table 3 and Fig. 3: CIFAR10-CNN, beta = 0.6", "", table(header, rows, {0}), "", picture, ""]


def beta_sweep(runs: Path) -> list[str]:
    return [
        "## Fig. 4: CIFAR10-CNN, alpha = 0.001",
        "",
        "beta = 0 is FedAvg, whose `local` is the global model before the last round.",
        "",
        sweep(runs / SWEEP, "beta", BETAS),
        "",
        "![accuracy over rounds by beta](fedalp-beta.png)",
        "",
    ]


def warm_up(runs: Path) -> list[str]:
    folder = runs / "fedalp-mnist-cnn"
    return [
        "## A later T_pre: MNIST, MNIST-CNN, beta = 0.6",
        "",
        "From T_pre on the global model hardly moves; FedAvg's goes on learning if it had not finished.",
        "",
        sweep(folder, "T_pre / T", {"1 (FedAvg)": "fedavg", "0.5": "fedalp", "0.9": "fedalp warmup=0.9"}),
        "",
    ]


def sweep(folder: Path, what: str, labels: dict[str, str]) -> str:
    """Local and global accuracy by the values of a setting, relative to FedAvg's global model."""
    plain = ends(folder, "fedavg", "global")
    rows = [
        (value, against(ends(folder, label, "received"), plain), against(ends(folder, label, "global"), plain))
        for value, label in labels.items()
    ]
    return table((what, "local", "global"), rows, {0})


def found_groups(runs: Path) -> list[str]:
    """How well the groups agree with the clients' most frequent labels, also as other settings would cut."""
    rows = []
    for name in dict.fromkeys((*TABLE_2, *TABLE_3)):
        for number, path in enumerate(folders(runs / name, "fedalp")):
            with Run(path) as run:
                state, labels, seed = run.server_state(), true_labels(run), run.settings["seed"]
            if labels is not None and state["groups"]["member"]:
                found = state["clustering"]
                kinds = len(set(labels))
                used = f"{len(found['psi'])}, {agreement(state['groups']['member'], labels):.2f}"
                rows.append(("" if number else name, str(seed), str(kinds), used, *others(found, labels, kinds)))
    header = ("comparison", "seed", "labels", "used: M, ARI", "rows, gap", "condensed", "condensed, gap", "M = labels")
    return [
        "## Groups",
        "",
        "The number M of groups and the adjusted Rand index (1: the groups are the labels) against each client's most",
        "frequent label; `used` is Ward on rows with M by silhouette. The other columns cut the same similarities in",
        "other ways: M by the largest gap, Ward on condensed distances, and M given as the number of labels.",
        "",
        table(header, rows, {0}),
        "",
    ]


def others(found: dict[str, Any], labels: list[int], kinds: int) -> list[str]:
    cells = []
    for on, by in (("rows", "gap"), ("condensed", "silhouette"), ("condensed", "gap"), ("rows", None)):
        tree = ward(found["similarity"], on)  # type: ignore[arg-type]
        count = kinds if by is None else choose(found["similarity"], tree, by)[0]  # type: ignore[arg-type]
        groups = dict(zip(found["clients"], cut(tree, count), strict=True))
        cells.append(f"{count}, {agreement(groups, labels):.2f}")
    return cells


def cost(runs: Path) -> list[str]:
    seconds, count = 0.0, 0
    for name in dict.fromkeys((*TABLE_2, *TABLE_3)):
        for folder in (runs / name, runs / f"{name}-iid"):
            if folder.exists():
                for row in Comparison(folder).table():
                    seconds, count = seconds + (row.seconds or 0) * row.seeds, count + row.seeds
    return [f"The rounds of {count} runs took {duration(seconds)} in all.", ""]


def table(header: tuple[str, ...], rows: list[tuple[str, ...]], words: set[int]) -> str:
    return Grid(header, tuple(rows), words=frozenset(words)).markdown().rstrip("\n") if rows else "Not run."


def spread(values: list[float]) -> str:
    if not values:
        return "–"
    return f"{fmean(values):.1f}" + (f" ± {stdev(values):.1f}" if len(values) > 1 else "")


def against(values: list[float], plain: list[float]) -> str:
    return f"{spread(values)} ({relative(fmean(values), fmean(plain))})" if values and plain else spread(values)


def beside(paper: tuple[float, ...]) -> list[str]:
    return [f"{paper[0]:.2f}", *(f"{value:.2f} ({relative(value, paper[0])})" for value in paper[1:])]


def relative(value: float, plain: float) -> str:
    return f"{100 * (value / plain - 1):+.1f} %"


# What the runs say


def three(folder: Path) -> tuple[list[float], list[float], list[float]]:
    """FedAvg's model, FedALP's global one and what FedALP's clients receive, a figure per seed."""
    return ends(folder, "fedavg", "global"), ends(folder, "fedalp", "global"), ends(folder, "fedalp", "received")


def folders(folder: Path, label: str) -> list[Path]:
    return Comparison(folder).runs().get(label, []) if folder.exists() else []


def values(folder: Path, label: str, model: str) -> list[dict[int, float]]:
    """Accuracy by round, for each seed."""
    found = []
    for path in folders(folder, label):
        with Run(path) as run:
            found.append({row["round"]: 100 * row["pooled"] for row in run.metrics(model) if row["pooled"] is not None})
    return [curve for curve in found if curve]


def ends(folder: Path, label: str, model: str) -> list[float]:
    return [curve[max(curve)] for curve in values(folder, label, model)]


# Pictures


def draw_panels(runs: Path, titles: dict[str, str], file: str) -> None:
    """Figs. 2 and 3: a panel for each comparison."""
    present = {name: text for name, text in titles.items() if (runs / name).exists()}
    if not present:
        return
    columns = min(3, len(present))
    rows = -(-len(present) // columns)
    figure = new_figure(4.2 * columns, 3.3 * rows + 0.4)
    grid = figure.subplots(rows, columns, squeeze=False).ravel()
    for axes, (name, text) in zip(grid, present.items(), strict=False):
        # FedAvg on IID data does not depend on alpha: one run serves all of CIFAR-10.
        iid = f"{SWEEP}-iid" if "cifar10" in name else f"{name}-iid"
        for line, (kind, label, model, colour) in LINES.items():
            draw_line(axes, runs / (iid if kind else name), label, model, label=line, color=colour)
        rounds = Comparison(runs / name).experiment.rounds
        axes.axvline(FedALP().t_pre(rounds), color=GREY, linewidth=1, linestyle="--", label="end of the warm-up")
        dress(axes, rounds)
        axes.set_title(text, loc="left", fontsize=10)
    for axes in grid[len(present) :]:
        axes.set_axis_off()
    handles, labels = grid[0].get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside lower center", ncols=5, frameon=False)
    figure.savefig(PAGES / file)


def draw_sweep(runs: Path) -> None:
    """Fig. 4: local accuracy in solid lines, global in dash-dotted ones."""
    folder = runs / SWEEP
    if not folder.exists():
        return
    figure = new_figure(8.5, 4.6)
    axes = figure.subplots()
    for (beta, label), colour in zip(BETAS.items(), COLOURS, strict=False):
        draw_line(axes, folder, label, "received", label=f"beta = {beta}", color=colour)
        draw_line(axes, folder, label, "global", color=colour, linestyle="-.", linewidth=1.3)
    dress(axes, Comparison(folder).experiment.rounds)
    axes.set_title("solid: local, dash-dotted: global; mean over seeds", loc="left", fontsize=9, color=GREY)
    figure.legend(loc="outside right center", frameon=False)
    figure.savefig(PAGES / "fedalp-beta.png")


def draw_line(axes: Any, folder: Path, method: str, model: str, **look: Any) -> None:
    curves = values(folder, method, model)
    if curves:
        rounds = sorted(set.intersection(*(set(curve) for curve in curves)))
        axes.plot(rounds, [fmean(curve[r] for curve in curves) for r in rounds], zorder=3, **{"linewidth": 2, **look})


if __name__ == "__main__":
    main(Path(sys.argv[1]))
