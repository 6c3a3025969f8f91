"""Gather what experiments.py made into the forms of the paper's table and figures.

``python recipes/bwa/tables.py RUNS_DIR`` writes docs/results/bwa.md, bwa.png and, for the paper's Fig. 1,
bwa-motivation.png. What has not been made is left out.
"""

import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import accumulate
from pathlib import Path
from statistics import fmean, stdev

from experiments import BATCHES, PLANS, SHARES, THRESHOLDS
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure

from fedtailor.runs import Comparison, Run
from fedtailor.views.curves import COLOURS, FAINT, STROKES
from fedtailor.views.drawings.bwa import Episode, episodes
from fedtailor.views.publishing import took
from fedtailor.views.rewards import moving_mean

RESULTS = Path(__file__).parents[2] / "docs" / "results"
TITLES = {
    "mnist-05": "MNIST 0.5",
    "mnist-1": "MNIST 1",
    "fashion-05": "Fashion 0.5",
    "fashion-1": "Fashion 1",
    "cifar10-05": "CIFAR-10 0.5",
    "cifar10-1": "CIFAR-10 1",
}
PAPER = {  # Table 1, in the order of TITLES
    "fedavg": (99.09, 98.56, 86.09, 76.81, 66.28, 60.49),
    "adaptive-b": (99.14, 98.57, 86.51, 77.35, 66.91, 60.96),
    "adaptive-aw": (99.16, 98.56, 86.67, 77.69, 66.69, 60.90),
    "bo-bwa": (99.19, 98.63, 87.02, 77.88, 66.72, 62.51),
    "bwa": (99.24, 98.76, 87.05, 78.05, 67.37, 63.83),
}
MAIN = "cifar10-1"
VARIANTS = ("gain", "objective", "myopic", "textbook", "longer")
SEEDS = (0, 1, 2)  # of the recipes
WINDOW = 3  # episodes of a moving mean


@dataclass(frozen=True)
class Curve:
    """A run of a seed, round by round."""

    accuracy: list[float]  # of the global model, in %, on all test samples
    steps: list[int]  # gradient steps of all clients so far
    seconds: list[float]  # of all clients' work so far, in one core's time
    megabytes_up: float
    uploads: float  # models in a round

    def at(self, taken: Sequence[float], limit: float) -> float | None:
        """The accuracy after the last round within so many steps or seconds; None where the first takes more."""
        within = [accuracy for accuracy, so_far in zip(self.accuracy, taken, strict=True) if so_far <= limit]
        return within[-1] if within else None

    def rounds_to(self, target: float) -> int | None:
        return next((i + 1 for i, accuracy in enumerate(self.accuracy) if accuracy >= target), None)


Curves = dict[str, list[Curve]]  # by method


def main(runs: Path) -> None:
    found = {name: curves for name in TITLES if (curves := read(runs, name))}
    lines = [
        "# bwa",
        "",
        "Written by `python recipes/bwa/tables.py RUNS_DIR` from what `recipes/bwa/experiments.py` made. Accuracy is "
        "that of the global model on all test samples after the last round (%), mean ± deviation over the seeds. "
        "Policies were learned with another seed and deployed greedily. *FedAvg, batch B* has B chosen among "
        f"{', '.join(map(str, sorted((10, *BATCHES))))} by the very numbers in its row, which flatters it a little.",
        "",
    ]
    RESULTS.mkdir(parents=True, exist_ok=True)
    biased = {name: made for name in TITLES if (made := read_biases(runs, name))}
    lines += table(found) + work(found) + thresholds(runs) + batches(found) + biases(biased)
    if found:
        draw_motivation(found, biased, RESULTS / "bwa-motivation.png")
        lines += ["![The paper's Fig. 1](bwa-motivation.png)", ""]
    lines += plans(runs) + learning(runs) + decisions(runs) + cold(runs)
    if MAIN in found:
        draw(found[MAIN], runs, RESULTS / "bwa.png")
        lines += ["![CIFAR-10, sigma = 1](bwa.png)", ""]
    lines += [took(runs.rglob("run.db"), SEEDS), ""]
    (RESULTS / "bwa.md").write_text("\n".join(lines), encoding="utf-8")
    print(RESULTS / "bwa.md")


def read(runs: Path, name: str) -> Curves:
    """The methods of a recipe; FedAvg also with its other batch sizes."""
    found = curves(runs / f"bwa-{name}-comparison")
    for size in BATCHES:
        for made in curves(runs / f"bwa-{name}-batch-{size}-comparison").values():
            found[f"fedavg, batch {size}"] = made
    for variant in VARIANTS:
        for made in curves(runs / f"bwa-{name}-{variant}-comparison").values():
            found[f"bwa, {variant}"] = made
    for folder in sorted(runs.glob(f"bwa-{name}-seed-*-comparison")):
        for made in curves(folder).values():
            found[f"bwa, agent {folder.name.split('-')[-2]}"] = made
    return found


def curves(folder: Path) -> Curves:
    """The finished runs of a comparison by the first word of their label."""
    found: Curves = {}
    if (folder / "comparison.toml").is_file():
        for label, folders in Comparison(folder).runs().items():
            found[label.split()[0]] = [curve for one in folders if (curve := read_curve(one))]
    return {label: made for label, made in found.items() if made}


def read_curve(folder: Path) -> Curve | None:
    with Run(folder) as run:
        if not run.finished:
            return None
        rounds = [row["round"] for row in run.rounds()]
        steps, seconds = dict.fromkeys(rounds, 0), dict.fromkeys(rounds, 0.0)
        for task in run.tasks():
            steps[task["round"]] += task["steps"]
            seconds[task["round"]] += task["seconds"]
        sent = sum(row["bytes_up"] for row in run.rounds())
        size = sum(tensor.numel() * 4 for tensor in run.server_state()["model"].values())
        return Curve(
            [100 * row["pooled"] for row in run.metrics("global")],
            list(accumulate(steps.values())),
            list(accumulate(seconds.values())),
            sent / 1e6,
            sent // size / len(rounds),
        )


def table(found: Mapping[str, Curves]) -> list[str]:
    lines = [
        "## Table 1: accuracy after the last round",
        "",
        "| method | " + " | ".join(TITLES[name] for name in found) + " |",
        "| --- |" + " ---: |" * len(found),
    ]
    rows = list(dict.fromkeys(method for curves in found.values() for method in curves))
    rows = [method for method in rows if not method.startswith("fedavg, batch")]
    for method in sorted(rows, key=lambda method: [*PAPER, method].index(method)):
        cells = [
            spread([c.accuracy[-1] for c in curves[method]]) if method in curves else "–" for curves in found.values()
        ]
        lines.append(f"| {method} | {' | '.join(cells)} |")
        if method == "fedavg":
            best = [best_batch(curves) for curves in found.values()]
            cells = [f"{spread([c.accuracy[-1] for c in made])} ({size})" for size, made in best]
            lines.append(f"| fedavg, batch B | {' | '.join(cells)} |")
    for method, values in PAPER.items():
        known = dict(zip(TITLES, values, strict=True))
        lines.append(f"| *paper: {method}* | {' | '.join(f'{known[name]:.2f}' for name in found)} |")
    return [*lines, ""]


def by_batch(curves: Curves) -> dict[int, list[Curve]]:
    """FedAvg's runs by their batch size."""
    others = {b: curves[f"fedavg, batch {b}"] for b in BATCHES if f"fedavg, batch {b}" in curves}
    return {10: curves["fedavg"], **others}


def best_batch(curves: Curves) -> tuple[int, list[Curve]]:
    sizes = by_batch(curves)
    size = max(sizes, key=lambda b: fmean(c.accuracy[-1] for c in sizes[b]))
    return size, sizes[size]


def work(found: Mapping[str, Curves]) -> list[str]:
    lines = [
        "## What it took, and Fig. 3c",
        "",
        "A smaller batch means more steps and so more work in a round. *at equal steps*: the accuracy after the last "
        "round that ends within the gradient steps of FedAvg with batches of 10; *at equal seconds* within its time, "
        "for the seeds whose first round does. *rounds*: until FedAvg's last accuracy (mean of its seeds); in brackets "
        "the seeds that came there. Seconds are those of all clients' tasks, on cores that others used too.",
        "",
    ]
    for name, curves in found.items():
        budget, time = (
            fmean(values) for values in zip(*((c.steps[-1], c.seconds[-1]) for c in curves["fedavg"]), strict=True)
        )
        target = fmean(c.accuracy[-1] for c in curves["fedavg"])
        lines += [
            f"### {TITLES[name]}: {target:.1f} %",
            "",
            "| method | accuracy | highest | rounds | steps | at equal steps | seconds | at equal seconds | MB up |",
            "| --- | ---: | ---: | ---: | ---: | ---: | ---: | ---: | ---: |",
        ]
        for method, made in sorted(curves.items(), key=lambda item: -fmean(c.accuracy[-1] for c in item[1])):
            reached = [rounds for c in made if (rounds := c.rounds_to(target)) is not None]
            rounds = f"{fmean(reached):.1f} ({len(reached)})" if reached else "never"
            cells = [
                spread([c.accuracy[-1] for c in made]),
                spread([max(c.accuracy) for c in made]),
                rounds,
                f"{fmean(c.steps[-1] for c in made):,.0f}",
                spread([c.at(c.steps, budget) for c in made]),
                f"{fmean(c.seconds[-1] for c in made):.1f}",
                spread([c.at(c.seconds, time) for c in made]),
                f"{fmean(c.megabytes_up for c in made):.2f}",
            ]
            lines.append(f"| {method} | {' | '.join(cells)} |")
        lines.append("")
    return lines


def thresholds(runs: Path) -> list[str]:
    lines = []
    for name, title in TITLES.items():
        folder = runs / f"bwa-{name}-threshold-comparison"
        if not (folder / "comparison.toml").is_file():
            continue
        lines += [
            f"## Fig. 3d: who is below the threshold does not upload, {title}",
            "",
            "| threshold | accuracy | uploads in a round | MB up |",
            "| ---: | ---: | ---: | ---: |",
        ]
        by_threshold = {0.0: curves(runs / f"bwa-{name}-comparison").get("bwa", [])}
        for label, folders in Comparison(folder).runs().items():
            value = float(label.rpartition("threshold=")[2])
            by_threshold[value] = [curve for one in folders if (curve := read_curve(one))]
        for value in (0.0, *THRESHOLDS):
            if made := by_threshold.get(value):
                uploads, sent = fmean(c.uploads for c in made), fmean(c.megabytes_up for c in made)
                lines.append(f"| {value:g} | {spread([c.accuracy[-1] for c in made])} | {uploads:.1f} | {sent:.2f} |")
        lines.append("")
    return lines


def batches(found: Mapping[str, Curves]) -> list[str]:
    if not found:
        return []
    lines = [
        "## Fig. 1a, b: FedAvg with fixed batch sizes",
        "",
        "| batch size | " + " | ".join(TITLES[name] for name in found) + " |",
        "| ---: |" + " ---: |" * len(found),
    ]
    sizes = {name: by_batch(curves) for name, curves in found.items()}
    for size in sorted((10, *BATCHES)):
        cells = [spread([c.accuracy[-1] for c in made.get(size, [])]) for made in sizes.values()]
        lines.append(f"| {size} | {' | '.join(cells)} |")
    return [*lines, ""]


def read_biases(runs: Path, name: str) -> dict[float, list[Curve]]:
    """The runs with fixed weights by the share of the clients with all classes."""
    folders = {share: sorted(runs.glob(f"bwa-{name}-bias-{share}-s*")) for share in SHARES}
    made = {share: [curve for one in those if (curve := read_curve(one))] for share, those in folders.items()}
    return {share: curves for share, curves in made.items() if curves}


def biases(found: Mapping[str, dict[float, list[Curve]]]) -> list[str]:
    lines = []
    for name, made in found.items():
        target = fmean(c.accuracy[-1] for c in made[0.5]) if 0.5 in made else 0.0
        lines += [
            f"## Fig. 1c, d: fixed weights in favour of the clients with all classes, {TITLES[name]}",
            "",
            f"*rounds*: until {target:.1f} %, the last accuracy with equal weights.",
            "",
            "| their share | accuracy | highest | rounds |",
            "| ---: | ---: | ---: | ---: |",
        ]
        for share, of in made.items():
            reached = [rounds for c in of if (rounds := c.rounds_to(target)) is not None]
            rounds = f"{fmean(reached):.1f} ({len(reached)})" if reached else "never"
            last, highest = spread([c.accuracy[-1] for c in of]), spread([max(c.accuracy) for c in of])
            lines.append(f"| {share:g} | {last} | {highest} | {rounds} |")
        lines.append("")
    return lines


def plans(runs: Path) -> list[str]:
    """Small batches and then large ones, round by round."""
    lines = []
    for name, title in TITLES.items():
        for plan, changes in PLANS.items():
            made = [c for one in sorted(runs.glob(f"bwa-{name}-plan-{plan}-s*")) if (c := read_curve(one))]
            if made:
                told = ", then ".join(f"{size} in {many} rounds" for size, many in changes)
                after = [f"{spread([c.accuracy[i] for c in made])}" for i in (4, 5, 8, 9)]
                lines.append(f"| {title} | {told} | {' | '.join(after)} |")
    if not lines:
        return []
    header = ["| data | batches | after round 5 | 6 | 9 | 10 |", "| --- | --- | ---: | ---: | ---: | ---: |"]
    return ["## What pays at once, and what later: given batch sizes", "", *header, *lines, ""]


def learning(runs: Path) -> list[str]:
    """The training curves of the agents, in numbers."""
    made = {folder.name: trained for folder in policies(runs) if (trained := read_episodes(folder))}
    if not made:
        return []
    lines = [
        "## What the agents learned",
        "",
        f"The mean of the first and of the last {WINDOW} episodes (they explore), and *rank*, the rank correlation of "
        "an episode's reward with its number: near 0 where nothing is learned. Batch size and evenness of weights (1: "
        "equal) are means over rounds. *kept*: the episode whose policy is deployed, where it is not the last.",
        "",
        "| policy | episodes | kept | reward, first | last | rank | val. accuracy, first | last | batch | evenness |",
        "| --- | ---: | ---: | ---: | ---: | ---: | ---: | ---: | ---: | ---: |",
    ]
    from scipy.stats import spearmanr

    for name, of in made.items():
        part = min(WINDOW, len(of))
        trend = spearmanr([one.gained for one in of], range(len(of))).statistic if len(of) > 2 else float("nan")
        cells = [
            *(f"{fmean(one.gained for one in rows):.2f}" for rows in (of[:part], of[-part:])),
            f"{trend:+.2f}",
            *(f"{100 * fmean(one.accuracy for one in rows):.1f}" for rows in (of[:part], of[-part:])),
            change([one.batch for one in of], part, 1),
            change([one.evenness for one in of], part, 2),
        ]
        with Run(runs / "policies" / name) as run:
            kept = run.server_state().get("kept")
        number = "–" if kept is None else kept["episode"] + 1
        lines.append(f"| {name.removeprefix('bwa-')} | {len(of)} | {number} | {' | '.join(cells)} |")
    return [*lines, ""]


def decisions(runs: Path) -> list[str]:
    """The batch sizes of the deployed policies, round by round."""
    lines = []
    for name, title in TITLES.items():
        for suffix in ("", *(f"-{variant}" for variant in VARIANTS)):
            for folder in sorted((runs / f"bwa-{name}{suffix}-comparison").glob("*_policy=*-s0")):
                method = folder.name.split("_")[0]
                with Run(folder) as run:
                    if method not in ("bwa", "adaptive-b", "bo-bwa") or not run.finished:
                        continue
                    sizes = [f"{float(row['action'][0]):.0f}" for row in run.decisions()]
                    weights = run.decisions()[-1]["action"][1:].tolist()
                last = ", ".join(f"{weight:.2f}" for weight in weights) or "by data size"
                lines.append(f"| {title} | {method}{suffix.replace('-', ', ')} | {', '.join(sizes)} | {last} |")
    if not lines:
        return []
    header = ["| data | method | batch size, round by round | weights in the last round |", "| --- | --- | --- | --- |"]
    return ["## What the policies decide (seed 0)", "", *header, *lines, ""]


def cold(runs: Path) -> list[str]:
    """How many episodes a policy from elsewhere saves."""
    made = {kind: read_episodes(runs / "policies" / f"bwa-{MAIN}-six-bwa-{kind}") for kind in ("cold", "warm")}
    if not all(made.values()):
        return []
    level = fmean(one.gained for one in made["cold"][-WINDOW:])
    lines = [
        "## Cold start",
        "",
        f"Six clients on CIFAR-10, sigma = 1; *warm* starts with a policy of ten clients on Fashion-MNIST, sigma 0.5. "
        f"*episodes*: until the mean reward of {WINDOW} in a row is that of the last {WINDOW} of *cold*, {level:.2f}.",
        "",
        f"| start | reward, first {WINDOW} | last {WINDOW} | validation accuracy, first | last | episodes |",
        "| --- | ---: | ---: | ---: | ---: | ---: |",
    ]
    for kind, of in made.items():
        gained = [one.gained for one in of]
        first = next((i + WINDOW for i, mean in enumerate(moving_mean(gained, WINDOW)) if mean >= level), None)
        ends = [f"{fmean(rows):.2f}" for rows in (gained[:WINDOW], gained[-WINDOW:])]
        ends += [f"{100 * fmean(one.accuracy for one in rows):.1f}" for rows in (of[:WINDOW], of[-WINDOW:])]
        lines.append(f"| {kind} | {' | '.join(ends)} | {first or 'never'} |")
    return [*lines, ""]


def draw(found: Curves, runs: Path, path: Path) -> None:
    """Accuracy over rounds, steps and seconds; the training curves of the agents; the batch sizes."""
    figure = Figure(figsize=(13, 7), dpi=130, layout="constrained")
    FigureCanvasAgg(figure)
    panels = figure.subplots(2, 3)
    looks = {
        method: {"color": COLOURS[place % len(COLOURS)], "linestyle": STROKES[place // len(COLOURS) % len(STROKES)]}
        for place, method in enumerate(found)
    }
    for method, made in found.items():
        accuracy = [fmean(c.accuracy[i] for c in made) for i in range(len(made[0].accuracy))]
        rounds = range(1, len(accuracy) + 1)
        steps = [fmean(c.steps[i] for c in made) for i in range(len(accuracy))]
        seconds = [fmean(c.seconds[i] for c in made) for i in range(len(accuracy))]
        for axes, x in zip(panels[0], (rounds, steps, seconds), strict=True):
            axes.plot(x, accuracy, label=method, linewidth=2.5 if method == "bwa" else 1.3, **looks[method])
    for axes, name in zip(panels[0], ("round", "gradient steps of all clients", "seconds of all clients"), strict=True):
        dress(axes, name, "test accuracy (%)")
        if name != "round":
            axes.set_xscale("log")
    named = {"bwa": "bwa", "adaptive-b": "adaptive-b", "adaptive-aw": "adaptive-aw"}
    named |= {f"bwa-{variant}": f"bwa, {variant}" for variant in VARIANTS}
    for suffix, label in named.items():
        of = read_episodes(runs / "policies" / f"bwa-{MAIN}-{suffix}")
        panels_values = [
            [one.gained for one in of] if suffix != "bwa-objective" else [],
            [100 * one.accuracy for one in of],
            [one.batch for one in of if one.batch is not None],
        ]
        for axes, values in zip(panels[1], panels_values, strict=True):
            if len(values) >= WINDOW:
                smooth = moving_mean(values, WINDOW)
                axes.plot(range(WINDOW, WINDOW + len(smooth)), smooth, label=label, **looks.get(label, {}))
    what = ("sum of rewards", "validation accuracy (%)", "mean batch size")
    for axes, name in zip(panels[1], what, strict=True):
        dress(axes, f"episode (mean of {WINDOW})", name)
    panels[1][1].legend(frameon=False, fontsize=8)
    figure.legend(*panels[0][0].get_legend_handles_labels(), loc="outside right upper", frameon=False, fontsize=8)
    figure.savefig(path)


def draw_motivation(found: Mapping[str, Curves], biased: Mapping[str, dict[float, list[Curve]]], path: Path) -> None:
    """Accuracy over fixed batch sizes, and over a bias toward the clients with all classes."""
    figure = Figure(figsize=(10, 3.6), dpi=130, layout="constrained")
    FigureCanvasAgg(figure)
    left, right = figure.subplots(1, 2)
    lines = {name: by_batch(curves) for name, curves in found.items()}
    for axes, kinds in ((left, lines), (right, biased)):
        for name, made in kinds.items():
            values = {x: fmean(c.accuracy[-1] for c in of) for x, of in sorted(made.items())}
            colour = COLOURS[list(TITLES).index(name)]
            axes.plot(list(values), list(values.values()), marker="o", label=TITLES[name], color=colour)
    left.set_xscale("log", base=2)
    dress(left, "batch size of FedAvg", "test accuracy (%)")
    dress(right, "weight of the clients with all classes", "test accuracy (%)")
    left.legend(frameon=False, fontsize=8)
    figure.savefig(path)


def dress(axes: Axes, x: str, y: str) -> None:
    axes.set_xlabel(x)
    axes.set_ylabel(y)
    axes.grid(color=FAINT)


def policies(runs: Path) -> list[Path]:
    return sorted(path for path in (runs / "policies").glob("bwa-*") if (path / "policy.json").is_file())


def read_episodes(folder: Path) -> list[Episode]:
    if not (folder / "run.db").is_file():
        return []
    with Run(folder) as run:
        return episodes(run)


def change(values: Sequence[float | None], part: int, digits: int) -> str:
    known = [value for value in values if value is not None]
    return f"{fmean(known[:part]):.{digits}f} → {fmean(known[-part:]):.{digits}f}" if known else "–"


def spread(values: Sequence[float | None]) -> str:
    known = [value for value in values if value is not None]
    deviation = f" ± {stdev(known):.1f}" if len(known) > 1 else ""
    return f"{fmean(known):.1f}{deviation}" if known else "–"


if __name__ == "__main__":
    main(Path(sys.argv[1]))
