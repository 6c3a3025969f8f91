"""How good HAPFL's agents are: pre-trained on the clock alone in several ways, against the best allocation there is.

``python recipes/hapfl/agents.py RUNS_DIR [CASE ...]`` pre-trains the agents of every case below (or of those named) and
lets them decide, without learning, in 60 rounds of other seeds; nothing is trained but the agents. What is finished is
not run again. ``gather.py`` makes the tables.
"""

import sys
from pathlib import Path
from typing import Any

from fedtailor.methods import AgentMethod
from fedtailor.runs import Resources, experiment, pretrain, resume, run

HERE = Path(__file__).parent
LEARNED = 600  # rounds of pre-training
LONGER = {"longer": 3_000, "more": 2_000, "sizes": 2_000, "intensities": 2_000, "agents": 2_000}  # by the case's ending
JUDGED = 60
SEEDS = (0, 1, 2)  # of the rounds in which they are judged: other devices, other data, other cohorts
PAPER = {"state": "ratio", "agents": {"size": {}, "intensity": {}}}  # the defaults


def agents(size_lr: float, intensity_lr: float, **both: Any) -> dict[str, Any]:
    """The tables of the two agents, with the same settings but for their learning rates."""
    lrs = {"size": size_lr, "intensity": intensity_lr}
    return {"agents": {name: {**both, "actor_lr": lr} for name, lr in lrs.items()}}


SLOTS: dict[str, Any] = {"network": "per-slot"}
LARGE = {**SLOTS, "buffer": 20}
CALM = {**LARGE, "critic_lr": 0.003}
SEARCH: dict[str, Any] = {"agents": {"size": {"decider": "search"}, "intensity": {"decider": "search"}}}
STEPS: dict[str, dict[str, Any]] = {  # each adds to the one before
    "paper": {**PAPER, "warm": 0},
    "log": {"state": "log"},
    "per-slot": agents(0.02, 3e-4, **SLOTS),
    "buffer": agents(0.003, 0.003, **LARGE),
    "longer": {},
    "warm": {"warm": 600},
    "calm": agents(0.001, 0.0003, **CALM),
    "more": {},
}
BEST = list(STEPS)[-1]
FIXED: dict[str, dict[str, Any]] = {  # nothing to learn
    "untrained": {"warm": 0},
    "imitation": {},  # the warm start alone
    "search": SEARCH,
    "even": {"adapts": "neither"},
    "search-sizes": {**SEARCH, "adapts": "sizes"},
    "search-intensities": {**SEARCH, "adapts": "intensities"},
}
SCALES = {  # clients, in a round, times apart, samples
    "10": (10, 6, 10, 1_500),
    "20": (20, 12, 20, 2_400),
    "100": (100, 20, 50, 6_000),
}
FAMILIES = {2: ["small", "large"], 3: ["small", "medium", "large"], 4: ["lite", "small", "medium", "large"]}


def cases() -> dict[str, tuple[dict[str, Any], dict[str, Any]]]:
    """Changes of the experiment and of the method, by name."""
    found: dict[str, tuple[dict[str, Any], dict[str, Any]]] = {}
    changes: dict[str, Any] = {}
    for name, more in STEPS.items():
        changes = {**changes, **more}
        found[f"cifar10-{name}"] = ({}, changes)
    best = changes
    # the ablations, with the best agents: both of them decide, one of them, none
    found["cifar10-sizes"] = ({}, {**best, "adapts": "sizes"})
    found["cifar10-intensities"] = ({}, {**best, "adapts": "intensities"})
    for name, fixed in FIXED.items():
        found[f"cifar10-{name}"] = ({}, {**best, **fixed})
    for scale, (clients, cohort, spread, samples) in SCALES.items():
        for count, sizes in FAMILIES.items():
            if count == 4 and scale != "10":
                continue
            where = {
                "data": {"source": "mnist", "clients": clients, "samples": samples},
                "participation": {"clients": cohort},
                "devices": {"profiles": {"kind": "uniform", "spread": spread}},
            }
            found[f"scale-{scale}-{count}-agents"] = (where, {**best, "sizes": sizes})
            found[f"scale-{scale}-{count}-search"] = (where, {**SEARCH, "sizes": sizes})
        found[f"scale-{scale}-even"] = (where, {"adapts": "neither"})
    return found


def main(runs: Path, chosen: list[str]) -> None:
    todo = {name: case for name, case in cases().items() if not chosen or name in chosen}
    policies = {}
    with Resources() as resources:  # a seed after the other, so that its data are loaded once
        for name, (where, method) in todo.items():
            if not name.endswith(tuple(FIXED)):
                rounds = LONGER.get(name.rpartition("-")[2], LEARNED)
                learn({**changed(where, method), "rounds": rounds}, runs / f"{name}-policy", resources)
                policies[name] = {"policy": str(runs / f"{name}-policy")}
        for seed in SEEDS:
            for name, (where, method) in todo.items():
                judge(changed(where, {**method, **policies.get(name, {})}), runs / f"{name}-s{seed}", seed, resources)


def changed(where: dict[str, Any], method: dict[str, Any]) -> dict[str, Any]:
    """The experiment of CIFAR-10 with these changes."""
    settings = experiment(HERE / "cifar10.toml").as_dict()
    for table, values in where.items():
        settings[table] = {**settings[table], **values}
    settings["method"] = {**settings["method"], **method}
    settings["engine"] = {"kind": "inline"}
    return settings


def learn(settings: dict[str, Any], folder: Path, resources: Resources) -> None:
    if folder.exists():
        resume(folder, resources=resources).close()
    else:
        pretrain({**settings, "seed": 100}, folder=folder, resources=resources).close()
    print(folder, flush=True)


def judge(settings: dict[str, Any], folder: Path, seed: int, resources: Resources) -> None:
    quiet = {"every": 0, "final": False}
    judged = experiment({**settings, "evaluation": quiet, "seed": seed, "rounds": JUDGED})
    assert isinstance(judged.method, AgentMethod)
    judged = judged.model_copy(update={"method": judged.method.environment()})  # on the clock, without learning
    with (
        resume(folder, resources=resources)
        if folder.exists()
        else run(judged, folder=folder, resources=resources) as done
    ):
        print(folder, done.summary().clock, flush=True)


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2:])
