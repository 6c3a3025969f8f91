"""The paper's Fig. 6: the heads of clients of five groups, embedded by the auto-encoder and by plain PCA.

``python recipes/pfedrlla/embeddings.py`` trains 30 clients on digits, each alone from one initial model, and writes
docs/results/pfedrlla-embeddings.md and .png: the embeddings in their first two principal directions, and how well they
keep the groups apart (mean silhouette with the distance 1 - cosine, since eq. 2 compares by the cosine; 1 is best), and
whether they rank clients of a group that shares a class above those of a group that shares none.
"""

import sys
import tempfile
import time
from pathlib import Path

import matplotlib.pyplot as plt
import torch
import torch.nn.functional as F
from torch import Tensor

import fedtailor
from fedtailor.agents.embedding import MHAE, Matrices, PCAEmbedding, matrices
from fedtailor.seeding import torch_stream
from fedtailor.views.provenance import made_by

RESULTS = Path(__file__).parents[2] / "docs" / "results"
GROUPS = [[0, 1], [1, 2], [3, 4], [4, 5], [6, 7]]  # the first two share a class, so do the next two
EACH = 6  # clients of a group
SEEDS = (0, 1, 2)
STEPS = (0, 30, 100, 300, 1000)  # of the auto-encoder's learning
SIZE = 128


def trained(seed: int) -> list[Matrices]:
    """The heads of the clients after they have trained alone."""
    settings = {
        "seed": seed,
        "rounds": 1,
        "data": {"clients": EACH * len(GROUPS), "partition": {"kind": "groups", "labels": GROUPS}},
        "model": {"name": "digits-cnn", "head": "linear"},
        "training": {"epochs": 3, "batch_size": 10, "lr": 0.05},
        "evaluation": {"every": 0, "final": False},
        "engine": {"kind": "inline"},
        # its rehearsal, in which bodies stay with their clients
        "method": {"name": "fedtailor.methods.pfedrlla:PFedRLLARehearsal", "head": "size", "peers": "uploaded"},
    }
    with tempfile.TemporaryDirectory() as folder, fedtailor.run(settings, folder=Path(folder) / "run") as run:
        peers = run.server_state()["previous"]["peers"]  # as they were sent: trained alone, not yet averaged
    return [matrices(peer["model"]) for _, peer in sorted(peers.items())]  # local bodies do not travel


def embeddings(heads: list[Matrices], seed: int) -> tuple[dict[str, Tensor], dict[str, float]]:
    """The embeddings, and the error of reconstruction of those that have one."""
    plain = PCAEmbedding(SIZE)
    plain.fit(heads)
    found, errors = {"PCA": plain(heads)}, {}
    for side in (16, 32):
        made, done = MHAE(torch_stream(seed, "weights"), SIZE, side), 0
        made.fit(heads)
        found[f"what MHAE {side} x {side} reads"] = made.uniform(heads).flatten(1)
        for steps in STEPS:
            made.train(heads, steps - done, torch_stream(seed, steps))
            done = steps
            name = f"MHAE {side} x {side}, {steps} steps"
            found[name], errors[name] = made(heads), float(made.error(made.uniform(heads)).detach())
    return found, errors


def cosines(embedded: Tensor) -> list[float]:
    """The mean cosine of two clients with the same classes, with one class in common, with none."""
    rows = F.normalize(embedded, dim=1)
    labels = torch.tensor([[len({*a} & {*b}) for b in GROUPS] for a in GROUPS])  # in common
    common = labels.repeat_interleave(EACH, 0).repeat_interleave(EACH, 1)
    others = ~torch.eye(len(rows), dtype=torch.bool)
    return [float((rows @ rows.T)[others & (common == count)].mean()) for count in (2, 1, 0)]


def between(embedded: Tensor) -> float:
    """The share of the variance that lies between groups."""
    rows = embedded - embedded.mean(0)
    means = rows.reshape(len(GROUPS), EACH, -1).mean(1)
    return float(EACH * means.square().sum() / rows.square().sum())


def silhouette(embedded: Tensor) -> float:
    """The mean over clients of (b - a) / max(a, b): a is the mean distance within, b to the nearest other group."""
    rows = F.normalize(embedded, dim=1)
    distance = 1 - rows @ rows.T
    group = torch.arange(len(rows)) // EACH
    own = F.one_hot(group).float()
    to_groups = distance @ own / EACH  # (clients, groups)
    within = to_groups[range(len(rows)), group] * EACH / (EACH - 1)
    nearest = to_groups.masked_fill(own.bool(), torch.inf).amin(1)
    return float(((nearest - within) / torch.maximum(nearest, within)).mean())


def picture(embedded: dict[str, Tensor], file: Path) -> None:
    figure, axes = plt.subplots(1, len(embedded), figsize=(4 * len(embedded), 4), layout="constrained")
    for axis, (name, rows) in zip(axes, embedded.items(), strict=True):
        rows = rows - rows.mean(0)
        flat = rows @ torch.linalg.svd(rows, full_matrices=False).Vh[:2].T  # (clients, 2)
        for i, labels in enumerate(GROUPS):
            mine = flat[i * EACH : (i + 1) * EACH]
            axis.scatter(mine[:, 0], mine[:, 1], label=f"digits {labels[0]} and {labels[1]}")
        axis.set(title=f"{name}\nsilhouette {silhouette(rows):.2f}", xticks=[], yticks=[])
    axes[0].legend(fontsize="small")
    figure.savefig(file, dpi=100)


def main(folder: Path) -> None:
    begin = time.monotonic()
    scores: dict[str, list[float]] = {}
    facts: dict[str, list[list[float]]] = {}  # by embedding and seed: all but the silhouette
    for seed in SEEDS:
        embedded, errors = embeddings(trained(seed), seed)
        for name, rows in embedded.items():
            scores.setdefault(name, []).append(silhouette(rows))
            error = [errors[name]] if name in errors else []
            beyond = float((rows.abs() > 0.7).float().mean())
            facts.setdefault(name, []).append([*cosines(rows), between(rows), beyond, *error])
        if seed == SEEDS[0]:
            shown = ("PCA", f"MHAE 16 x 16, {STEPS[0]} steps", f"MHAE 16 x 16, {STEPS[-1]} steps")
            picture({name: embedded[name] for name in shown}, folder / "pfedrlla-embeddings.png")
    about = (__doc__ or "").partition("``python")[0].strip()
    lines = ["# pfedrlla-embeddings", "", about, ""]
    lines += ["![embeddings](pfedrlla-embeddings.png)", "", f"Mean silhouette, seeds {SEEDS}:", ""]
    columns = ["embedding", "silhouette", "of each seed", "cosine: same classes", "one class", "none"]
    columns += ["variance between groups", "components beyond 0.7", "error"]
    lines += [f"| {' | '.join(columns)} |", "| --- " * len(columns) + "|"]
    for name, values in scores.items():
        each = ", ".join(f"{value:.3f}" for value in values)
        means = [f"{sum(column) / len(column):.3f}" for column in zip(*facts[name], strict=True)]
        cells = " | ".join([*means, *["–"] * (6 - len(means))])
        lines.append(f"| {name} | {sum(values) / len(values):.3f} | {each} | {cells} |")
    lines += ["", made_by("python recipes/pfedrlla/embeddings.py", begin, SEEDS)]
    page = folder / "pfedrlla-embeddings.md"
    page.write_text("\n".join([*lines, ""]), encoding="utf-8")
    print(page.read_text(encoding="utf-8"))


if __name__ == "__main__":
    main(Path(sys.argv[1]) if sys.argv[1:] else RESULTS)
