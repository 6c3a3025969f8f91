"""Compare the order of the methods in our tables with their order in the papers' tables.

``python recipes/methods/ordering.py RUNS_DIR`` reads the comparisons made from the recipes of this folder and writes
docs/results/ordering.md: Spearman's rank correlation, and who is out of place.
"""

import sys
from pathlib import Path

from scipy.stats import spearmanr

from fedtailor.runs import Comparison, ComparisonRow

PAGE = Path(__file__).parents[2] / "docs" / "results" / "ordering.md"

# pFedRLLA, Table 1 (accuracy in %, 100 clients, 10 % per round, 500 rounds)
PFEDRLLA_S2 = {
    "local": 82.88, "fedavg": 86.26, "fedavg-ft": 89.61, "ditto": 89.40, "apfl": 89.43, "fedrep": 88.44,
    "fedbabu": 89.80, "fedamp": 83.47, "fedfomo": 88.34, "fedphp": 88.28, "fedpac": 74.97, "fedala": 89.38,
}  # fmt: skip
PFEDRLLA_D01 = {
    "local": 84.58, "fedavg": 84.31, "fedavg-ft": 89.24, "ditto": 86.81, "apfl": 89.38, "fedrep": 86.94,
    "fedbabu": 89.54, "fedamp": 84.73, "fedfomo": 84.93, "fedphp": 88.22, "fedpac": 82.82, "fedala": 87.94,
}  # fmt: skip
# FedAH, Table I (accuracy in %, 20 clients); its FedAvg and FedProx are global models: compared with ours
FEDAH_PATHOLOGICAL = {
    "fedavg": 55.09, "fedprox": 55.06, "per-fedavg": 89.63, "pfedme": 90.11, "fedamp": 90.79, "ditto": 92.39,
    "fedper": 91.15, "fedrep": 91.93, "fedfomo": 91.85, "fedala": 92.44,
}  # fmt: skip
FEDAH_D01 = {
    "fedavg": 59.16, "fedprox": 59.21, "per-fedavg": 87.74, "pfedme": 88.09, "fedamp": 88.70, "ditto": 90.59,
    "fedper": 89.22, "fedrep": 90.40, "fedfomo": 88.06, "fedala": 90.67,
}  # fmt: skip

TABLES = {
    "methods-fashion-mnist": {
        "pFedRLLA, CIFAR-10 s = 2": PFEDRLLA_S2,
        "FedAH, CIFAR-10 pathological": FEDAH_PATHOLOGICAL,
    },
    "methods-cifar10": {
        "pFedRLLA, CIFAR-10 alpha = 0.1": PFEDRLLA_D01,
        "FedAH, CIFAR-10 alpha = 0.1": FEDAH_D01,
    },
}


def main(runs: Path) -> None:
    lines = ["# ordering", "", "Written by `python recipes/methods/ordering.py`; ranks from best to worst.", ""]
    for name, papers in TABLES.items():
        folder = runs / f"{name}-comparison"
        if not folder.exists():
            continue
        rows = {row.method: row for row in Comparison(folder).table() if row.accuracy["final"].mean is not None}
        for title, paper in papers.items():
            lines += section(name, title, paper, rows)
    PAGE.parent.mkdir(parents=True, exist_ok=True)
    PAGE.write_text("\n".join(lines), encoding="utf-8")
    print(PAGE)


def section(name: str, title: str, paper: dict[str, float], rows: dict[str, ComparisonRow]) -> list[str]:
    common = [method for method in paper if method in rows]
    ours = {m: _ours(m, title, rows[m]) for m in common}
    correlation = spearmanr([paper[m] for m in common], [ours[m] for m in common])
    order = sorted(common, key=lambda m: -paper[m])
    place = {m: i + 1 for i, m in enumerate(sorted(common, key=lambda m: -ours[m]))}
    lines = [
        f"## {name} against {title}",
        "",
        f"Spearman's rank correlation {correlation.statistic:.2f} over {len(common)} methods.",
        "",
        "| method | paper | rank | here | rank |",
        "| --- | ---: | ---: | ---: | ---: |",
    ]
    for rank, method in enumerate(order, 1):
        lines.append(f"| {method} | {paper[method]:.2f} | {rank} | {100 * ours[method]:.1f} | {place[method]} |")
    return [*lines, ""]


def _ours(method: str, title: str, row: ComparisonRow) -> float:
    """The final accuracy; for FedAH's table the global model's where the paper's figure can only be that."""
    model = "global" if title.startswith("FedAH") and method in ("fedavg", "fedprox") else "final"
    return row.accuracy[model].mean


if __name__ == "__main__":
    main(Path(sys.argv[1]))
