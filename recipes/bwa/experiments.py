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
plans       given batch sizes, small ones and then large ones: what pays at once and what later
seeds       BWA's policy learned two times more, from other seeds
cold        a policy of ten clients on Fashion-MNIST starts with six clients on the recipe's data, against none
"""

import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch

from fedtailor.methods import Method, Question, Server
from fedtailor.methods.adjustment import ADJUSTMENT
from fedtailor.runs import Experiment, Resources, Run, compare, experiment, pretrain, resume, run
from fedtailor.runs.settings import make_method

METHODS = ("bwa", "adaptive-b", "adaptive-aw", "bo-bwa")
BATCHES = (2, 3, 5, 20, 64)  # beside the recipe's 10
MORE = 40  # episodes of ``longer``
THRESHOLDS = (0.05, 0.08, 0.1, 0.12)  # ten clients: equal weights are 0.1
SHARES = (0.1, 0.3, 0.5, 0.7, 0.9)  # of the clients with all classes, together
PLANS = {"2": [(2, 10)], "2-then-64": [(2, 9), (64, 1)], "2-half-64": [(2, 5), (64, 5)], "64": [(64, 10)]}  # rounds
EVALUATIONS = 20  # of bo-bwa at most; the paper has half as many as episodes
SEED = 100  # of the agents: none of those they are tested with
RANGE = {"smallest": 2}  # batches of 1 would take twice as long
# Of the three with an agent; docs/bwa.md says why.
CALM = {"critic_first": 2, "critic_epochs": 40, "center_advantages": False}
TEXTBOOK: dict[str, Any] = {"critic_first": 0, "critic_epochs": None, "center_advantages": True}
OURS = {"network": "per-slot", "discount": 0.5, **CALM}
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
    deploy(settings, runs, [learned(settings, runs, "bwa", "-myopic", agent={"discount": 0.0})], "-myopic")


def textbook(settings: Experiment, runs: Path) -> None:
    deploy(settings, runs, [learned(settings, runs, "bwa", "-textbook", agent=TEXTBOOK, keep="last")], "-textbook")


def longer(settings: Experiment, runs: Path) -> None:
    more = settings.model_copy(update={"pretrain": settings.pretrain.model_copy(update={"episodes": MORE})})
    deploy(settings, runs, [learned(more, runs, "bwa", "-longer")], "-longer")


def threshold(settings: Experiment, runs: Path) -> None:
    policy = learned(settings, runs, "bwa")
    deploy(settings, runs, [{**policy, "threshold": value} for value in THRESHOLDS], "-threshold")


def bias(settings: Experiment, runs: Path) -> None:
    with Resources() as resources:
        federation = resources.federation(settings.model_copy(update={"method": make_method("adaptive-aw")}))
        labels = [federation.samples.y[federation.train[k]] for k in range(federation.clients)]
        wide = torch.tensor([len(np.unique(own)) > 2 for own in labels])
    for share in SHARES:
        weights = torch.where(wide, share / wide.sum(), (1 - share) / (~wide).sum())
        scripted(settings, runs, "adaptive-aw", f"bias-{share}", [weights] * settings.rounds)


def plans(settings: Experiment, runs: Path) -> None:
    for name, changes in PLANS.items():
        sizes = [size for size, many in changes for _ in range(many)]
        scripted(settings, runs, "adaptive-b", f"plan-{name}", [torch.tensor([float(size)]) for size in sizes])


def scripted(settings: Experiment, runs: Path, name: str, what: str, actions: Sequence[torch.Tensor]) -> None:
    """A run for every seed in which the decisions are given, round by round."""

    def script(server: Server, _question: Question) -> torch.Tensor:
        return actions[min(server.round, len(actions)) - 1]  # a final pass is a round more

    method = make_method({"name": name, "agents": {ADJUSTMENT: {"learn": "never"}}})
    with Resources() as resources:
        for seed in settings.compare.seeds:
            changes = {"method": method, "seed": seed, "name": f"{settings.name}-{what}-s{seed}"}
            made = settings.model_copy(update=changes)
            if not (runs / made.name).exists():
                run(made, folder=runs / made.name, resources=resources, deciders={ADJUSTMENT: script}).close()


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
    settings: Experiment,
    runs: Path,
    name: str,
    suffix: str = "",
    seed: int = SEED,
    agent: Mapping[str, Any] | None = None,
    keep: str = "best",
    **more: Any,
) -> dict[str, Any]:
    """A method with the policy that it has learned on the recipe: what a run needs to know of it.

    ``agent`` are settings of the agent, ``more`` those of the method.
    """
    ours = {"reward": "rise", "agents": {ADJUSTMENT: {**OURS, **(agent or {})}}}
    method = {**RANGE, **({} if name == "bo-bwa" else ours), **more, "name": name}
    folder = runs / "policies" / f"{settings.name}-{name}{suffix}"
    episodes = settings.pretrain.episodes
    if name == "bo-bwa":
        episodes = min(episodes, EVALUATIONS)
    changes: dict[str, Any] = {"method": make_method(method), "seed": seed, "name": folder.name}
    changes["pretrain"] = settings.pretrain.model_copy(update={"episodes": episodes, "keep": keep})
    if not folder.exists():
        pretrain(settings.model_copy(update=changes), folder=folder).close()
    elif not _finished(folder, episodes):
        resume(folder, episodes=episodes).close()
    print(folder, flush=True)
    network = {} if name == "bo-bwa" else {"agents": {ADJUSTMENT: {"network": OURS["network"]}}}
    return {**RANGE, **network, "name": name, "policy": str(folder)}


def deploy(settings: Experiment, runs: Path, methods: list[str | Mapping[str, Any] | Method], suffix: str = "") -> None:
    print(compare(settings, methods=methods, folder=runs / f"{settings.name}{suffix}-comparison").folder, flush=True)


def _finished(folder: Path, episodes: int) -> bool:
    with Run(folder) as found:
        return found.finished and bool(found.settings["pretrain"]["episodes"] >= episodes)


if __name__ == "__main__":
    part, recipe, place = sys.argv[1:]
    globals()[part](experiment(recipe), Path(place))
