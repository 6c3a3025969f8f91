"""Trains policies: those of the package in fedtailor/policies, others in candidates; one that exists is kept.

    python recipes/policies/train.py              # those that are missing
    python recipes/policies/train.py --again bwa  # BWA, Adaptive-B and Adaptive-AW anew

Each program uses one core. The data sets that they learn on (mnist, usps, mnist-m
and a synthetic one; HAPFL needs none) are in FEDTAILOR_DATA, or are fetched with 'fedtailor data fetch'.
"""

import argparse
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import bwa
import fedddrl
import federations
import hapfl
import pfedrlla
import torch

from fedtailor.agents import Agent
from fedtailor.methods import Policy, shape
from fedtailor.parties.policy import CARD, SHIPPED
from fedtailor.runs.assembly import assemble, job_of
from fedtailor.runs.environment import environment
from fedtailor.runs.resources import Resources
from fedtailor.runs.settings import experiment

SEED = 100
SHIPS = ("hapfl-2", "hapfl-3")  # what reaches its bar (docs/results/policies.md); the others stay here, as candidates
CANDIDATES = Path(__file__).parent / "candidates"
ACTS = ("actor", "network", "networks", "target", "heads", "normaliser")  # what a policy needs to act; not PPO's critic
TINY = {"data": {"source": "digits", "clients": 4}, "model": {"name": "mlp"}, "rounds": 1}


def place(name: str) -> Path:
    """The folder of a policy."""
    return (SHIPPED if name in SHIPS else CANDIDATES) / name


def write(name: str, method: str, agents: Mapping[str, Agent], settings: Mapping[str, Any], **scenario: Any) -> None:
    """Write a policy with its card; ``settings`` are those of the method that it needs."""
    needed = dict(settings)
    sizes = scenario.pop("sizes", None)
    asked = {"name": method, "policy": "none", **needed, **({} if sizes is None else {"sizes": sizes})}
    made = experiment({**TINY, "method": asked})
    with Resources() as resources:
        shapes = shape(made.method, assemble(made, job_of(made, resources)).server())
    acting = {
        decision: {part: state for part, state in agent.policy().items() if part in ACTS}
        for decision, agent in agents.items()
    }
    about = {"seed": SEED, "environment": environment(), **scenario}
    folder = place(name)
    folder.mkdir(parents=True, exist_ok=True)
    Policy(method, acting, {}, shapes, about, needed).write(folder)
    print(f"{folder}: {sum(file.stat().st_size for file in folder.iterdir()) / 1000:.0f} kB", flush=True)


def hapfl_policies(sizes: int) -> None:
    agents, lesson = hapfl.train(sizes, SEED), hapfl.LESSONS[sizes]
    table = {**lesson.table, "hidden": list(lesson.hidden)}
    named = [{"name": "mlp", "arguments": {"hidden": 16 * 2**place}} for place in range(sizes)]
    learned = "imitation of the exact search on drawn devices, sizes and epochs, then PPO1's own reward"
    decisions = hapfl.BATCH * (lesson.imitated + lesson.rewarded + lesson.refined)
    settings = {"state": "full", "agents": {"size": table, "intensity": table}}
    write(f"hapfl-{sizes}", "hapfl", agents, settings, sizes=named, learned=learned, decisions=decisions)


def bwa_policies() -> None:
    pools = {source: federations.pool(source) for source in federations.SOURCES}
    table = {**bwa.TABLES, "hidden": list(bwa.TABLES["hidden"])}
    learned = "every batch size tried in the same state of small federations; weights by the gradient of the loss"
    for method, agent in bwa.train(pools, SEED).items():
        settings = {"agents": {"adjustment": table}}
        write(method, method, {"adjustment": agent}, settings, learned=learned, data=list(pools))


def pfedrlla_policy() -> None:
    pools = {source: federations.pool(source) for source in federations.SOURCES}
    agent = pfedrlla.agent_of(pfedrlla.train(pools, SEED))
    table = {**pfedrlla.TABLE, "hidden": list(pfedrlla.HIDDEN), "learn": "auto"}
    learned = "the gradient of the loss of the mixes that clients would deploy, in replays of small federations"
    about = {"learned": learned, "decisions": pfedrlla.DECISIONS, "data": list(pools)}
    write("pfedrlla-after", "pfedrlla-after", {"head-weights": agent}, {"agents": {"head_weights": table}}, **about)


def fedddrl_policy() -> None:
    pools = {source: federations.pool(source) for source in federations.SOURCES}
    agents = fedddrl.train(pools, SEED)
    learned = "the gradient of the method's reward in small federations with devices, many decisions in each state"
    decisions = fedddrl.FEDERATIONS * fedddrl.ROUNDS * fedddrl.DRAWS
    write("fedddrl", "fedddrl", agents, {}, learned=learned, decisions=decisions, data=list(pools))


PROGRAMS: dict[str, tuple[tuple[str, ...], Callable[[], None]]] = {
    "hapfl-2": (("hapfl-2",), lambda: hapfl_policies(2)),
    "hapfl-3": (("hapfl-3",), lambda: hapfl_policies(3)),
    "pfedrlla-after": (("pfedrlla-after",), pfedrlla_policy),
    "fedddrl": (("fedddrl",), fedddrl_policy),
    "bwa": (("bwa", "adaptive-b", "adaptive-aw"), bwa_policies),
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("names", nargs="*", metavar="NAME", help=", ".join(PROGRAMS))
    parser.add_argument("--again", action="store_true", help="train also what exists")
    given = parser.parse_args()
    torch.set_num_threads(1)
    for name in given.names or PROGRAMS:
        folders, program = PROGRAMS[name]
        if given.again or not all((place(folder) / CARD).is_file() for folder in folders):
            program()


if __name__ == "__main__":
    main()
