"""pFedRLLA with an oracle in the agent's place: weights by the true overlap of labels, sum_c min(p_k(c), p_j(c)).

``python recipes/pfedrlla/oracle.py RECIPE RUNS_DIR [SETTING=VALUE ...]`` runs the recipe's seeds into RUNS_DIR and
prints the final accuracy of each; settings are the method's: gamma=0.5. What is there already is not run again.
"""

import sys
from pathlib import Path
from statistics import mean, stdev

import numpy as np
import torch
from torch import Tensor

import fedtailor
from fedtailor.data import build
from fedtailor.methods import Decide, Server
from fedtailor.methods.pfedrlla import HEAD
from fedtailor.runs import Run, run


def main(recipe: str, runs: Path, changes: list[str]) -> None:
    settings = fedtailor.experiment(recipe)
    method = {"name": "pfedrlla", **{key: float(value) for key, value in (change.split("=") for change in changes)}}
    found = []
    for seed in settings.compare.seeds:
        folder = runs / "-".join([f"{settings.name}-oracle", *changes, f"s{seed}"])
        one = fedtailor.experiment({**settings.as_dict(), "method": method, "seed": seed})
        if not folder.exists():
            run(one, folder=folder, scripts={HEAD: oracle(one)}).close()
        with Run(folder) as done:
            found.append(100 * done.last()["final"]["accuracy"])
            print(f"{folder.name}: {found[-1]:.1f}", flush=True)
    print(f"oracle {' '.join(changes)}: {mean(found):.1f} +- {stdev(found):.1f}")


def oracle(settings: fedtailor.Experiment):  # type: ignore[no-untyped-def]
    federation = build(settings.data, settings.partition_seed)
    labels = [federation.samples.y[federation.train[k]] for k in range(federation.clients)]
    classes = 1 + max(int(y.max()) for y in labels)
    shares = np.stack([np.bincount(y, minlength=classes) / len(y) for y in labels])  # (clients, classes)

    def decide(server: Server, question: Decide) -> Tensor:
        assert question.mask is not None
        assert question.about is not None
        ids = [*(j for j in server.state["peers"] if j != question.about), question.about]
        weights = torch.zeros(len(question.mask))
        overlap = np.minimum(shares[ids], shares[question.about]).sum(1)
        weights[question.mask] = torch.as_tensor(overlap / overlap.sum(), dtype=torch.float)
        return weights

    return decide


if __name__ == "__main__":
    main(sys.argv[1], Path(sys.argv[2]), sys.argv[3:])
