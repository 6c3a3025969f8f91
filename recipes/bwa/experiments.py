"""Make the experiments of a recipe of this folder; what is there already is kept, what was interrupted goes on.

``python recipes/bwa/experiments.py PART RECIPE.toml RUNS_DIR``, where PART is

table       policies of the four methods, then Table 1 with FedAvg and, for comparison, FedAvg with other batch sizes
gain        BWA with the paper's reward (eq. 8)
objective   BWA with a term of the objective itself (eq. 7) as reward
myopic      BWA with the discount 0: a decision is paid for its own round alone
textbook    BWA with PPO as it is usually done: an actor that learns at once, centred advantages, the last policy
longer      BWA with more episodes
threshold   BWA's policy with clients left out of the upload (Fig. 3d)
bias        fixed weights that favour the clients with all classes (Fig. 1c, d); needs sigma < 1
seeds       BWA's policy learned two times more, from other seeds
cold        a policy of ten clients on Fashion-MNIST starts with six clients on the recipe's data, against none
"""

import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import torch

from fedtailor.methods import Decide, Method, Server
from fedtailor.methods.bwa import ADJUSTMENT
from fedtailor.runs import Experiment, Run, Workshop, compare, experiment, pretrain, resume, run
from fedtailor.runs.settings import make_method

METHODS = ("bwa", "adaptive-b", "adaptive-aw", "bo-bwa")
BATCHES = (3, 5, 20, 64)  # beside the recipe's 10
MORE = 40  # episodes of ``longer``
THRESHOLDS = (0.05, 0.08, 0.1, 0.12)  # ten clients: equal weights are 0.1
SHARES = (0.1, 0.3, 0.5, 0.7, 0.9)  # of the clients with all classes, together
SEED = 100  # of the agents: none of those they are tested with
RANGE = {"smallest": 2}  # batches of 1 would take twice as long
# Of the three with an agent; docs/bwa.md says why.
CALM = {"critic_first": 2, "critic_updates": 40, "centred": False, "keep": "best"}
OURS = {"network": "per-slot", "reward": "rise", "discount": 0.5, **CALM}
OTHER = "fashion-05"  # the recipe that a policy comes from


def table(settings: Experiment, runs: Path) -> None:
    made = [learned(settings, runs, name) for name in METHODS]
    deploy(settings, runs, ["fedavg", *made])
    for size in BATCHES:
        training = settings.training.model_copy(update={"batch_size": size})
        deploy(settings.model_copy(update={"training": training}), runs, ["fedavg"], f"-batch-{size}")


def gain(settings: Experiment, runs: Path) -> None:
    deploy(settings, runs, [learned(settings, runs, "bwa", "-gain", reward="gain")], "-gain")


def objective(settings: Experiment, runs: Path) -> None:
    deploy(settings, runs, [learned(settings, runs, "bwa", "-objective", reward="objective")], "-objective")


def myopic(settings: Experiment, runs: Path) -> None:
    deploy(settings, runs, [learned(settings, runs, "bwa", "-myopic", discount=0.0)], "-myopic")


def textbook(settings: Experiment, runs: Path) -> None:
    usual = {"critic_first": 0, "critic_updates": None, "centred": True, "keep": "last"}
    deploy(settings, runs, [learned(settings, runs, "bwa", "-textbook", **usual)], "-textbook")


def longer(settings: Experiment, runs: Path) -> None:
    more = settings.model_copy(update={"pretrain": settings.pretrain.model_copy(update={"episodes": MORE})})
    deploy(settings, runs, [learned(more, runs, "bwa", "-longer")], "-longer")


def threshold(settings: Experiment, runs: Path) -> None:
    policy = learned(settings, runs, "bwa")
    deploy(settings, runs, [{**policy, "threshold": value} for value in THRESHOLDS], "-threshold")


def bias(settings: Experiment, runs: Path) -> None:
    method = make_method({"name": "adaptive-aw", "learn": "never"})
    with Workshop() as shop:
        federation = shop.federation(settings.model_copy(update={"method": method}))
        labels = [federation.samples.y[federation.train[k]] for k in range(federation.clients)]
        wide = torch.tensor([len(np.unique(own)) > 2 for own in labels])
        for share in SHARES:
            weights = torch.where(wide, share / wide.sum(), (1 - share) / (~wide).sum())

            def script(_server: Server, _question: Decide, weights: torch.Tensor = weights) -> torch.Tensor:
                return weights

            for seed in settings.compare.seeds:
                changes = {"method": method, "seed": seed, "name": f"{settings.name}-bias-{share}-s{seed}"}
                made = settings.model_copy(update=changes)
                folder = runs / made.name
                if not folder.exists():
                    run(made, folder=folder, workshop=shop, scripts={ADJUSTMENT: script}).close()


def seeds(settings: Experiment, runs: Path) -> None:
    for seed in (SEED + 1, SEED + 2):
        made = learned(settings, runs, "bwa", f"-seed-{seed}", seed=seed)
        deploy(settings, runs, [made], f"-seed-{seed}")


def cold(settings: Experiment, runs: Path) -> None:
    other = experiment(Path(__file__).with_name(f"{OTHER}.toml"))
    data = other.data.model_copy(update={"dir": settings.data.dir})
    start = learned(other.model_copy(update={"data": data}), runs, "bwa")
    few = settings.data.model_copy(update={"clients": 6, "samples": 1_800})
    changes = {"data": few, "pretrain": other.pretrain, "name": f"{settings.name}-six"}
    six = settings.model_copy(update=changes)
    learned(six, runs, "bwa", "-cold")
    learned(six, runs, "bwa", "-warm", policy=start["policy"])


def learned(
    settings: Experiment, runs: Path, name: str, suffix: str = "", seed: int = SEED, **more: Any
) -> dict[str, Any]:
    """A method with the policy that it has learned on the recipe: what a run needs to know of it."""
    method = {**RANGE, **({} if name == "bo-bwa" else OURS), **more, "name": name}
    folder = runs / "policies" / f"{settings.name}-{name}{suffix}"
    changes: dict[str, Any] = {"method": make_method(method), "seed": seed, "name": folder.name}
    if not folder.exists():
        pretrain(settings.model_copy(update=changes), folder=folder).close()
    elif not _finished(folder):
        resume(folder).close()
    print(folder, flush=True)
    return {**RANGE, **({} if name == "bo-bwa" else {"network": OURS["network"]}), "name": name, "policy": str(folder)}


def deploy(settings: Experiment, runs: Path, methods: list[str | Mapping[str, Any] | Method], suffix: str = "") -> None:
    print(compare(settings, methods=methods, folder=runs / f"{settings.name}{suffix}-comparison").folder, flush=True)


def _finished(folder: Path) -> bool:
    with Run(folder) as found:
        return found.finished


if __name__ == "__main__":
    part, recipe, place = sys.argv[1:]
    globals()[part](experiment(recipe), Path(place))
