"""HAPFL's tables and figures from our runs, beside the paper's numbers.

``python recipes/hapfl/gather.py RUNS_DIR`` reads the runs that docs/hapfl.md makes and writes docs/results/hapfl.md
with pictures: Figs. 22 to 25, the accuracies of Figs. 4 to 21, and how far the agents are from the best allocation.
"""

import sys
from pathlib import Path
from statistics import fmean, stdev
from typing import Any

from agents import BEST, FAMILIES, JUDGED, SCALES, SEEDS, STEPS

from fedtailor.runs import Comparison, Run
from fedtailor.views.curves import COLOURS, FAINT, new_figure
from fedtailor.views.drawings.hapfl import rounds, sizes
from fedtailor.views.publishing import took
from fedtailor.views.rewards import rewards_figure
from fedtailor.views.tables import Grid

PAGES = Path(__file__).parents[2] / "docs" / "results"
DATA = {"cifar10": "CIFAR-10", "mnist": "MNIST", "fashion-mnist": "Fashion-MNIST"}
# The paper's reductions in %, of straggling latency and of overall time; its third data set is ImageNet-10
PAPER = {
    "cifar10": {"fedavg": (23.5, 31.9), "fedprox": (19.0, 28.4), "pfedme": (26.0, 34.1)},
    "mnist": {"fedavg": (35.2, 26.1), "fedprox": (47.6, 40.4), "pfedme": (37.1, 27.7)},
    "fashion-mnist": {"fedavg": (48.0, 38.8), "fedprox": (32.2, 20.9)},
}
# What is measured of a model: the mean over clients of their own, the accuracy on all test samples of the server's
MODELS = {"final": "accuracy", "held": "accuracy", **dict.fromkeys(("global", "small", "medium", "large"), "pooled")}
LONGER = {"twice": ("hapfl", "several, twice the rounds"), "longer": ("hapfl", "several, 12 rounds")}
TIMES = ("time s", "latency s", "HAPFL's time", "HAPFL's latency")
Row = dict[str, list[float]]  # by measure, a number per seed
Found = dict[tuple[str, str], Row]  # by method and model


def main(runs: Path) -> None:
    PAGES.mkdir(parents=True, exist_ok=True)
    parts = [
        "# hapfl",
        "",
        "Written by `python recipes/hapfl/gather.py`; what was run and what follows: [hapfl](../hapfl.md).",
        "Times are virtual, in seconds on the clients' devices; mean ± deviation over seeds. By then: what clients",
        "hold at the first evaluation after the time that HAPFL takes for all its rounds, or at the end.",
        "",
    ]
    rows = {name: methods(runs, name) for name in DATA}
    for name, found in rows.items():
        parts += against_others(name, found)
    parts += [*agents(runs / "hapfl-agents"), *ablation(runs / "hapfl-agents"), *ablation_trained(runs)]
    parts += [*scale(runs / "hapfl-agents"), *scale_trained(runs)]
    draw_bars({name: found for name, found in rows.items() if len(found) > 1})
    draw_runs(runs)
    parts += ["", "## Pictures", ""]
    parts += [f"![{path.stem}]({path.name})" for path in sorted(PAGES.glob("hapfl-*.png"))]
    parts += ["", took(runs.rglob("run.db"), SEEDS), ""]
    (PAGES / "hapfl.md").write_text("\n".join(parts), encoding="utf-8")
    print(PAGES / "hapfl.md")


# What was measured


def methods(runs: Path, data: str) -> Found:
    """HAPFL and the others, by method and model."""
    folders = {("hapfl", "several"): seeds(runs, f"hapfl-{data}")}
    folders |= {key: seeds(runs, f"hapfl-{data}-{name}") for name, key in LONGER.items()}
    for model in ("large", "small"):
        if (runs / f"hapfl-{data}-{model}").exists():
            for label, those in Comparison(runs / f"hapfl-{data}-{model}").runs().items():
                folders[label.split()[0], model] = those
    found = {key: row for key, those in folders.items() if (row := measured(those))["seconds"]}
    if own := found.get(("hapfl", "several")):
        for key, row in found.items():
            row["by then"] = [held_by(folder, fmean(own["seconds"])) for folder in folders[key]]
    return found


def held_by(folder: Path, seconds: float) -> float:
    """What clients hold, in %, at the first evaluation after so many seconds on the devices, or at the end."""
    with Run(folder) as run:
        ends = {row["round"]: row["begin"] + row["seconds"] for row in run.clock()}
        values = [(ends[row["round"]], 100 * row["accuracy"]) for row in run.metrics("held")]
    return next((value for end, value in values if end >= seconds), values[-1][1])


def measured(folders: list[Path]) -> Row:
    row: Row = {name: [] for name in (*MODELS, "seconds", "latency", "ratio")}
    for folder in folders:
        with Run(folder) as run:
            if not run.finished:
                continue
            summary, rewards = run.summary(), run.rewards()
            row["seconds"].append(summary.clock.seconds)
            if summary.clock.latency is not None:  # nobody waits for a client that is alone
                row["latency"].append(summary.clock.latency)
            for model, measure in MODELS.items():
                if model in summary.metrics:
                    row[model].append(100 * getattr(summary.metrics[model], measure))
            if "size" in rewards:
                row["ratio"].append(fmean(run.settings["method"]["md"] - value for value in rewards["size"]))
    return row


# Tables


def against_others(data: str, found: Found) -> list[str]:
    """Figs. 22 and 23 and the accuracies, of one data set."""
    lines = []
    for (method, model), row in found.items():
        paper = PAPER[data].get(method) if model == "large" else None
        said = [f"-{paper[1]} %", f"-{paper[0]} %"] if paper else ["", ""]
        lines.append((*compared(method, model, row, found, ("final", "held", "by then", "global")), *said))
    header = ("method", "model", "final %", "held %", "by then %", "global %", *TIMES, "paper: time", "latency")
    return [
        f"## {DATA[data]}: 10 clients, 6 in a round, devices up to 10 times apart",
        "",
        table(header, lines, {0, 1}),
        "",
        *by_size(found),
    ]


def compared(method: str, model: str, row: Row, found: Found, models: tuple[str, ...]) -> tuple[str, ...]:
    """A row's accuracies and times, and how HAPFL's times differ from them."""
    own = found.get(("hapfl", "several"))
    cells = [spread(row[name]) for name in (*models, "seconds", "latency")]
    less = [change(own, row, name) for name in ("seconds", "latency")] if own and row is not own else ["", ""]
    return (method, model, *cells, *less)


def by_size(found: Found) -> list[str]:
    own = found.get(("hapfl", "several"))
    if own is None:
        return []
    said = [f"{name} {spread(own[name])} %" for name in ("small", "medium", "large") if own[name]]
    return [f"HAPFL's models on all test samples: LiteModel {spread(own['global'])} %, {', '.join(said)}.", ""]


def agents(runs: Path) -> list[str]:
    """What helped the agents to come near the best allocation."""
    best, even = case(runs, "cifar10-search"), case(runs, "cifar10-even")
    lines = []
    for name in ("untrained", *STEPS, "imitation", "search", "even"):
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
                    change(row, best, "latency"),
                    f"{reached:.1f} %",
                )
            )
    header = ("agents", "slowest / fastest", "to best", "time s", "to best", "latency s", "to best", "of the possible")
    return [
        "## The agents against the best allocation",
        "",
        f"CIFAR-10, on the clock alone: {JUDGED} rounds without learning on {len(SEEDS)} seeds that pre-training has",
        "not seen. Each line from `paper` to `more` adds to the one before; `imitation` is the warm start alone,",
        "`search` finds the best allocation for the assessed times, `even` gives all the large model and E epochs. The",
        "ratio is that of the times of an epoch, which PPO1 is rewarded for; the latency is PPO2's. Of the possible:",
        "the reduction of latency from `even`, as a share of that of `search`.",
        "",
        table(header, lines, {0}),
        "",
    ]


def ablation(runs: Path) -> list[str]:
    """Fig. 25."""
    names = {"both": BEST, "sizes alone": "sizes", "intensities alone": "intensities", "neither": "even"}
    both = case(runs, f"cifar10-{BEST}")
    lines = []
    for text, name in names.items():
        row = case(runs, f"cifar10-{name}")
        if row["seconds"] and both["seconds"]:
            less = [change(both, row, key) if text != "both" else "" for key in ("seconds", "latency")]
            lines.append((text, spread(row["seconds"]), less[0], spread(row["latency"]), less[1]))
    header = ("what is decided", "time s", "both against it", "latency s", "both against it")
    return [
        "## Fig. 25: ablation",
        "",
        "CIFAR-10, on the clock alone. The paper's latency: -19.2 % against sizes alone, -17.2 % against intensities",
        "alone.",
        "",
        table(header, lines, {0}),
        "",
    ]


def ablation_trained(runs: Path) -> list[str]:
    """What the variants of Fig. 25 learn."""
    found = {"both": case(runs, "hapfl-mnist")}
    found |= {name: case(runs, f"hapfl-mnist-{name}") for name in ("sizes", "intensities", "neither")}
    models = ("final", "global", "small", "large", "seconds", "latency")
    lines = [(name, *(spread(row[key]) for key in models)) for name, row in found.items() if row["seconds"]]
    header = ("what is decided", "final %", "global %", "small %", "large %", "time s", "latency s")
    return ["MNIST, with training:", "", table(header, lines, {0}), ""]


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


def scale_trained(runs: Path) -> list[str]:
    parts = ["MNIST with training, 3 sizes, 3 rounds and no final pass:", ""]
    for name in ("20", "100"):
        clients, cohort, times, _ = SCALES[name]
        found = methods(runs, f"scale-{name}")
        lines = [compared(*key, row, found, ("held", "global")) for key, row in found.items()]
        parts += [f"### {clients} clients, {cohort} in a round, up to {times} times apart", ""]
        parts += [table(("method", "model", "held %", "global %", *TIMES), lines, {0, 1}), "", *by_size(found)]
    return parts


def case(runs: Path, name: str) -> Row:
    return measured(seeds(runs, name))


def seeds(runs: Path, name: str) -> list[Path]:
    return [folder for seed in SEEDS if (folder := runs / f"{name}-s{seed}").exists()]


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


def draw_bars(rows: dict[str, Found]) -> None:
    """Figs. 22 and 23: time and latency of every method, relative to FedAvg with the large model."""
    if not rows:
        return
    figure = new_figure(10, 6.4)
    for axes, (name, text) in zip(
        figure.subplots(2, 1), {"latency": "straggling latency", "seconds": "time"}.items(), strict=True
    ):
        labels = list(dict.fromkeys(key for found in rows.values() for key in found if key not in LONGER.values()))
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


def share(found: Found, key: tuple[str, str], name: str) -> float:
    usual = found.get(("fedavg", "large"))
    measured = found.get(key, {}).get(name)
    return fmean(measured) / fmean(usual[name]) if usual and measured else 0.0


def draw_runs(runs: Path) -> None:
    """Accuracies of every size, rewards, and what the clients do before and after the agents have learned."""
    for data in DATA:
        if (runs / f"hapfl-{data}-s0").exists():
            with Run(runs / f"hapfl-{data}-s0") as run:
                sizes(run).savefig(PAGES / f"hapfl-{data}-sizes.png")
    for name in ("longer", BEST):
        if (policy := runs / "hapfl-agents" / f"cifar10-{name}-policy").exists():
            with Run(policy) as run:
                rewards_figure(run).savefig(PAGES / f"hapfl-rewards-{name}.png")
    before, after = (runs / "hapfl-agents" / f"cifar10-{name}-s0" for name in ("untrained", BEST))
    if before.exists() and after.exists():
        with Run(before) as first, Run(after) as second:  # the same clients in the same round
            panels = {"untrained agents": first, "pre-trained agents": second}
            latest = {name: run.server_state()["timeline"]["latest"] for name, run in panels.items()}
            rounds(second, latest).savefig(PAGES / "hapfl-timeline.png")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
