"""pFedRLLA with an oracle in the agent's place: weights by the true overlap of labels, sum_c min(p_k(c), p_j(c)).

``python recipes/pfedrlla/oracle.py RECIPE RUNS_DIR`` runs FedAvg and the forms below with the recipe's seeds into
RUNS_DIR and writes docs/results/RECIPE's name-oracle.md: what a client receives and what it has in the end. What is
there already is kept, what was interrupted goes on.
"""

import sys
from collections.abc import Callable
from pathlib import Path
from statistics import mean, stdev
from typing import Any

import numpy as np
import torch
from torch import Tensor

import fedtailor
from fedtailor.data import build
from fedtailor.methods import Decide, Server
from fedtailor.methods.pfedrlla import HEAD
from fedtailor.runs import Resources, Run, resume, run
from fedtailor.views.publishing import took

RESULTS = Path(__file__).parents[2] / "docs" / "results"
OWN = 0.8  # share of a client's own models if they are mixed after the training
PRIOR = {
    "name": "pfedrlla",
    "prior": "own",
    "own": OWN,
    "warmup": 0,
    "every": 1,
    "updates": 0,
    "noise": 0.0,
}  # and no agent
FORMS: dict[str, dict[str, Any]] = {
    "fedavg": {"name": "fedavg"},
    "oracle, before the training": {"name": "pfedrlla"},
    "oracle, before, bodies of the cohort alone": {"name": "pfedrlla", "body": "none"},
    "oracle, after": {"name": "pfedrlla", "body": "agent", "mixes": "after", "gamma": 0.9},
    "eq. 2, after": {**PRIOR, "body": "agent", "mixes": "after", "gamma": 0.9},
}


def main(recipe: str, runs: Path) -> None:
    settings = fedtailor.experiment(recipe)
    lines = [
        f"# {settings.name}-oracle",
        "",
        "Written by `python recipes/pfedrlla/oracle.py`: head weights by the true overlap of labels, mixed before or "
        f"after the local training; after it, a client's own models have {OWN:.0%}, and the last form has weights by "
        "eq. 2 instead. Received: before the training, in the last round; final: everyone has trained once more. "
        f"Accuracy (%), mean ± deviation over seeds {', '.join(map(str, settings.compare.seeds))}.",
        "",
        "| form | received | final |",
        "| --- | ---: | ---: |",
    ]
    with Resources() as resources:
        for form, method in FORMS.items():
            found: dict[str, list[float]] = {"received": [], "final": []}
            for seed in settings.compare.seeds:
                name = "-".join([settings.name, "oracle", *form.replace(",", "").split(), f"s{seed}"])
                one = fedtailor.experiment({**settings.as_dict(), "method": method, "seed": seed})
                deciders = {} if method.get("prior") else {HEAD: oracle(one)}
                if not (runs / name).exists():
                    run(one, folder=runs / name, resources=resources, deciders=deciders).close()
                elif not finished(runs / name):
                    resume(runs / name, resources=resources, deciders=deciders).close()
                with Run(runs / name) as done:
                    for model, values in found.items():
                        values.append(100 * done.last()[model].accuracy)
            lines.append(f"| {form} | {' | '.join(f'{mean(v):.1f} ± {stdev(v):.1f}' for v in found.values())} |")
            print(lines[-1], flush=True)
    lines += ["", took(runs.glob(f"{settings.name}-oracle-*/run.db"), settings.compare.seeds), ""]
    (RESULTS / f"{settings.name}-oracle.md").write_text("\n".join(lines), encoding="utf-8")


def finished(folder: Path) -> bool:
    with Run(folder) as one:
        return one.finished


def oracle(settings: fedtailor.Experiment) -> Callable[[Server, Decide], Tensor]:
    federation = build(settings.data, settings.partition_seed)
    labels = [federation.samples.y[federation.train[k]] for k in range(federation.clients)]
    classes = 1 + max(int(y.max()) for y in labels)
    shares = np.stack([np.bincount(y, minlength=classes) / len(y) for y in labels])  # (clients, classes)

    def decide(server: Server, question: Decide) -> Tensor:
        assert question.mask is not None
        assert question.about is not None
        others = [j for j in server.state["peers"] if j != question.about]
        overlap = np.minimum(shares[others], shares[question.about]).sum(1)
        mine = int(question.mask.sum()) - len(others)  # the client's own models, in the last slots
        own = 1.0 if settings.method.mixes == "before" else OWN / (1 - OWN) * max(overlap.sum(), 1e-9) / mine
        rows = np.array([*overlap, *[own] * mine])
        weights = torch.zeros(len(question.mask))
        weights[question.mask] = torch.as_tensor(rows / rows.sum(), dtype=torch.float)
        return weights

    return decide


if __name__ == "__main__":
    main(sys.argv[1], Path(sys.argv[2]))
