"""Why FedPAC is at chance on CIFAR-10 with two classes per client: its features collapse.

``python recipes/pfedrlla/fedpac.py`` runs recipes/pfedrlla/cifar10-s2.toml with FedPAC, seed 0, at several strengths of
the alignment and learning rates, and writes docs/results/pfedrlla-fedpac.md: how far the class centroids are from their
mean, round by round, and the accuracy at the end.
"""

import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import torch

import fedtailor
from fedtailor.messages.trees import unpack
from fedtailor.runs import Callback, RoundReport, experiment
from fedtailor.runs.store import Store
from fedtailor.views.provenance import made_by

RESULTS = Path(__file__).parents[2] / "docs" / "results"
RECIPE = Path(__file__).with_name("cifar10-s2.toml")
SHOWN = (1, 2, 3, 5, 10, 30, 120)  # rounds
FORMS = ((1.0, 0.05, 30), (0.1, 0.05, 30), (0.0, 0.05, 30), (1.0, 0.01, 30), (1.0, 0.01, 120))  # lam, rate, rounds


class Centroids(Callback):
    """The mean distance of the class centroids from their mean, by round."""

    def __init__(self, folder: Path):
        self.folder = folder
        self.apart: dict[int, float] = {}

    def round_done(self, report: RoundReport) -> None:
        if report.round in SHOWN:
            with Store(self.folder) as store:
                known = unpack(store.state("server", "prototypes") or b"")["value"]
            means = known["means"][known["counts"] > 0].double()  # (classes, features)
            self.apart[report.round] = float((means - means.mean(0)).norm(dim=1).mean())


def form(lam: float, lr: float, rounds: int) -> list[str]:
    """A line of the table."""
    settings: dict[str, Any] = experiment(RECIPE).as_dict()
    settings |= {"rounds": rounds, "method": {"name": "fedpac", "lam": lam}, "engine": {"kind": "inline"}}
    settings["training"] |= {"lr": lr}
    with tempfile.TemporaryDirectory() as place:
        seen = Centroids(Path(place) / "run")
        with fedtailor.run(settings, folder=seen.folder, callbacks=seen) as done:
            final = done.summary().final
    assert final is not None
    apart = [f"{seen.apart[round]:.2f}" if round in seen.apart else "–" for round in SHOWN]
    return [f"{lam:g}", f"{lr:g}", str(rounds), *apart, f"{100 * final.accuracy:.1f}", f"{100 * final.deviation:.1f}"]


def main(folder: Path) -> None:
    torch.set_num_threads(1)
    begin = time.monotonic()
    columns = ["lam", "rate", "rounds", *(f"round {round}" for round in SHOWN), "final %", "deviation of clients"]
    lines = [
        "# pfedrlla-fedpac",
        "",
        "FedPAC on CIFAR-10 with two classes per client, seed 0. The "
        "mean distance of the class centroids from their mean after a round, and the accuracy in the final pass.",
        "",
        f"| {' | '.join(columns)} |",
        "| ---: " * len(columns) + "|",
    ]
    for lam, lr, rounds in FORMS:
        lines.append(f"| {' | '.join(form(lam, lr, rounds))} |")
        print(lines[-1], flush=True)
    lines += ["", made_by("python recipes/pfedrlla/fedpac.py", begin, [0])]
    (folder / "pfedrlla-fedpac.md").write_text("\n".join([*lines, ""]), encoding="utf-8")


if __name__ == "__main__":
    main(Path(sys.argv[1]) if sys.argv[1:] else RESULTS)
