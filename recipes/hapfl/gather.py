"""HAPFL's tables and figures from our runs, beside the paper's numbers.

``python recipes/hapfl/gather.py RUNS_DIR`` reads the runs that docs/hapfl.md makes and writes docs/results/hapfl.md
with pictures: Figs. 22 to 25, the accuracies of Figs. 4 to 21, and how far the agents are from the best allocation.
"""

import sys
from pathlib import Path
from statistics import fmean, stdev
from typing import Any

from agents import FAMILIES, JUDGED, SCALES, SEEDS, STEPS

from fedtailor.runs import Comparison, Run
from fedtailor.views.curves import COLOURS, FAINT, new_figure
from fedtailor.views.drawings.hapfl import sizes, timeline
from fedtailor.views.tables import Grid

PAGES = Path(__file__).parents[2] / "docs" / "results"
DATA = {"cifar10": "CIFAR-10", "mnist": "MNIST", "fashion-mnist": "Fashion-MNIST"}
# The paper's reductions in %, of straggling latency and of overall time; its third data set is ImageNet-10
PAPER = {
    "cifar10": {"fedavg": (23.5, 31.9), "fedprox": (19.0, 28.4), "pfedme": (26.0, 34.1)},
    "mnist": {"fedavg": (35.2, 26.1), "fedprox": (47.6, 40.4), "pfedme": (37.1, 27.7)},
    "fashion-mnist": {"fedavg": (48.0, 38.8), "fedprox": (32.2, 20.9)},
}
Row = dict[str, list[float]]  # by measure, a number per seed


def main(runs: Path) -> None:
    PAGES.mkdir(parents=True, exist_ok=True)
    parts = [
        "# hapfl",
        "",
        "Written by `python recipes/hapfl/gather.py`; what was run and what follows: [hapfl](../hapfl.md).",
        "Times are virtual, in seconds on the clients' devices; mean ± deviation over seeds.",
        "",
    ]
    rows = {name: methods(runs, name) for name in DATA}
    for name, found in rows.items():
        parts += against_others(name, found)
    parts += [*agents(runs / "hapfl-agents"), *ablation(runs / "hapfl-agents"), *scale(runs / "hapfl-agents")]
    (PAGES / "hapfl.md").write_text("\n".join(parts), encoding="utf-8")
    draw_bars({name: found for name, found in rows.items() if len(found) > 1})
    draw_runs(runs)
    print(PAGES / "hapfl.md")


# What was measured


def methods(runs: Path, data: str) -> dict[tuple[str, str], Row]:
    """HAPFL and the others, by method and model."""
    found = {}
    own = [folder for seed in SEEDS if (folder := runs / f"hapfl-{data}-s{seed}").exists()]
    if own:
        found["hapfl", "lite, small, large"] = measured(own)
    for model in ("large", "small"):
        if (runs / f"hapfl-{data}-{model}").exists():
            for label, folders in Comparison(runs / f"hapfl-{data}-{model}").runs().items():
                found[label.split()[0], model] = measured(folders)
    return {key: row for key, row in found.items() if row["seconds"]}


def measured(folders: list[Path]) -> Row:
    row: Row = {name: [] for name in ("final", "global", "small", "large", "seconds", "latency", "ratio")}
    for folder in folders:
        with Run(folder) as run:
            if not run.finished:
                continue
            summary, rewards = run.summary(), run.rewards()
            row["seconds"].append(summary["clock"]["seconds"])
            row["latency"].append(summary["clock"]["latency"])
            for model in ("final", "global", "small", "large"):
                if model in summary["metrics"]:
                    row[model].append(100 * summary["metrics"][model]["accuracy" if model == "final" else "pooled"])
            if "size" in rewards:
                row["ratio"].append(fmean(run.settings["method"]["md"] - value for value in rewards["size"]))
    return row


# Tables


def against_others(data: str, found: dict[tuple[str, str], Row]) -> list[str]:
    """Figs. 22 and 23 and the accuracies, of one data set."""
    own = found.get(("hapfl", "lite, small, large"))
    lines = []
    for (method, model), row in found.items():
        paper = PAPER[data].get(method) if model == "large" else None
        cells = [spread(row[name]) for name in ("final", "global", "seconds", "latency")]
        less = [change(own, row, name) for name in ("seconds", "latency")] if own and row is not own else ["", ""]
        said = [f"-{paper[1]} %", f"-{paper[0]} %"] if paper else ["", ""]
        lines.append((method, model, *cells, *less, *said))
    header = ("method", "model", "final %", "global %", "time s", "latency s", "HAPFL's time", "latency")
    text = [f"## {DATA[data]}: 10 clients, 6 in a round, devices up to 10 times apart", ""]
    text += [table((*header, "paper: time", "latency"), lines, {0, 1}), ""]
    if own and own["small"]:
        text += [
            f"HAPFL's models on all test samples: LiteModel {spread(own['global'])} %, small {spread(own['small'])} %, "
            f"large {spread(own['large'])} %.",
            "",
        ]
    return text


def agents(runs: Path) -> list[str]:
    """What helped the agents to come near the best allocation."""
    best, even = case(runs, "cifar10-search"), case(runs, "cifar10-even")
    lines = []
    for name in (*STEPS, "search", "even"):
        row = case(runs, f"cifar10-{name}")
        if row["seconds"] and best["seconds"] and even["seconds"]:
            possible = fmean(even["latency"]) - fmean(best["latency"])
            reached = 100 * (fmean(even["latency"]) - fmean(row["latency"])) / possible
            ratio = change(row, best, "ratio") if row["ratio"] else ""
            lines.append(
                (
                    name,
                    spread(row["ratio"]),
                    ratio,
                    spread(row["seconds"]),
                    change(row, best, "seconds"),
                    spread(row["latency"]),
                    f"{reached:.1f} %",
                )
            )
    header = ("agents", "slowest / fastest", "to best", "time s", "to best", "latency s", "of what is possible")
    return [
        "## The agents against the best allocation",
        "",
        f"CIFAR-10, on the clock alone: {JUDGED} rounds without learning on {len(SEEDS)} seeds that pre-training has",
        "not seen. Each line adds to the one before; `search` knows the speeds, `even` gives all the large model and E",
        "epochs. The ratio is of the time of an epoch, which PPO1 is rewarded for; the latency is PPO2's. Of what is",
        "possible: the reduction of latency from `even`, as a share of that of `search`.",
        "",
        table(header, lines, {0}),
        "",
    ]


def ablation(runs: Path) -> list[str]:
    """Fig. 25."""
    names = {"both": "warm", "sizes alone": "sizes", "intensities alone": "intensities", "neither": "even"}
    both = case(runs, "cifar10-warm")
    lines = []
    for text, name in names.items():
        row = case(runs, f"cifar10-{name}")
        if row["seconds"] and both["seconds"]:
            less = [change(both, row, key) if row is not both else "" for key in ("seconds", "latency")]
            lines.append((text, spread(row["seconds"]), less[0], spread(row["latency"]), less[1]))
    header = ("what is decided", "time s", "both against it", "latency s", "both against it")
    return ["## Fig. 25: ablation", "", table(header, lines, {0}), ""]


def scale(runs: Path) -> list[str]:
    """Fig. 24."""
    lines = []
    for name, (clients, cohort, times, _) in SCALES.items():
        even = case(runs, f"scale-{name}-even")
        for count in FAMILIES:
            row, best = case(runs, f"scale-{name}-{count}-agents"), case(runs, f"scale-{name}-{count}-search")
            if row["seconds"] and even["seconds"] and best["seconds"]:
                less = [change(row, even, key) for key in ("seconds", "latency")]
                cells = [spread(row["ratio"]), change(row, best, "ratio"), *less]
                lines.append((f"{clients}, {cohort} in a round, {times}x", str(count), *cells))
    header = ("clients", "sizes", "slowest / fastest", "to best", "time against even", "latency")
    return [
        "## Fig. 24: more clients, more sizes",
        "",
        "MNIST on the clock alone. The paper's latency: -32.3 % with 10 clients and 2 sizes, -41.1 % with 20 and 3,",
        "-37.8 % with 100 and 3, against FedAvg.",
        "",
        table(header, lines, {0}),
        "",
    ]


def case(runs: Path, name: str) -> Row:
    return measured([folder for seed in SEEDS if (folder := runs / f"{name}-s{seed}").exists()])


def table(header: tuple[str, ...], rows: list[tuple[str, ...]], words: set[int]) -> str:
    return Grid(header, tuple(rows), words=frozenset(words)).markdown().rstrip("\n") if rows else "Not run."


def spread(values: list[float]) -> str:
    if not values:
        return "–"
    digits = 0 if fmean(values) >= 1000 else 1 if fmean(values) >= 10 else 2
    return f"{fmean(values):.{digits}f}" + (f" ± {stdev(values):.{digits}f}" if len(values) > 1 else "")


def change(row: Row, other: Row, name: str) -> str:
    return f"{100 * (fmean(row[name]) / fmean(other[name]) - 1):+.1f} %" if row[name] and other[name] else "–"


# Pictures


def draw_bars(rows: dict[str, dict[tuple[str, str], Row]]) -> None:
    """Figs. 22 and 23: time and latency of every method, relative to FedAvg with the large model."""
    if not rows:
        return
    figure = new_figure(10, 6.4)
    for axes, (name, text) in zip(
        figure.subplots(2, 1), {"latency": "straggling latency", "seconds": "time"}.items(), strict=True
    ):
        labels = list(dict.fromkeys(key for found in rows.values() for key in found))
        for place, key in enumerate(labels):
            heights = [share(found, key, name) for found in rows.values()]
            places = [x + 0.8 * (place + 0.5) / len(labels) - 0.4 for x in range(len(rows))]
            look: dict[str, Any] = {"alpha": 0.5} if key[1] == "small" else {}
            method = list(dict.fromkeys(label[0] for label in labels)).index(key[0])
            shown = key[0] if key[0] == "hapfl" else f"{key[0]}, {key[1]}"
            axes.bar(places, heights, 0.75 / len(labels), color=COLOURS[method], label=shown, zorder=3, **look)
        axes.set_xticks(range(len(rows)), [DATA[name] for name in rows])
        axes.set_ylabel(f"{text}, FedAvg = 1")
        axes.grid(axis="y", color=FAINT)
        axes.set_axisbelow(True)
        axes.spines[["top", "right"]].set_visible(False)
    handles, names = figure.axes[0].get_legend_handles_labels()
    figure.legend(handles, names, loc="outside right center", frameon=False)
    figure.savefig(PAGES / "hapfl-times.png")


def share(found: dict[tuple[str, str], Row], key: tuple[str, str], name: str) -> float:
    usual = found.get(("fedavg", "large"))
    return fmean(found[key][name]) / fmean(usual[name]) if usual and key in found else 0.0


def draw_runs(runs: Path) -> None:
    """Accuracies of every size, and what the clients do before and after the agents have learned."""
    for data in DATA:
        if (runs / f"hapfl-{data}-s0").exists():
            with Run(runs / f"hapfl-{data}-s0") as run:
                sizes(run).savefig(PAGES / f"hapfl-{data}-sizes.png")
    for name in ("buffer", "warm"):
        policy = runs / "hapfl-agents" / f"cifar10-{name}-policy"
        if policy.exists():
            with Run(policy) as run:
                timeline(run).savefig(PAGES / f"hapfl-timeline-{name}.png")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
