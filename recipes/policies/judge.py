"""Judges the built-in policies on data and devices that they did not learn on, and writes docs/results/policies.md.

    python recipes/policies/judge.py [FOLDER]

It takes about two minutes on one core and needs digits, fashion-mnist and cifar10.
"""

import random
import sys
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from statistics import fmean, stdev

import bwa
import fedddrl
import federations as sim
import hapfl
import pfedrlla
import torch
from train import place

from fedtailor.agents import PPO
from fedtailor.parties.policy import read_policy
from fedtailor.runs.statistics import CRITERION, Difference, difference, interval
from fedtailor.views.provenance import made_by

PAGES = Path(__file__).parents[2] / "docs" / "results"
HELD_OUT = ("digits", "fashion-mnist", "cifar10")
RATES = (0.01, 0.1)
SEEDS = range(5)
FIXED = (2, 4, 8)
ROUNDS = 12
FEDERATIONS = 15  # whose decisions are replayed, of each data set


def shipped(name: str, agent: PPO, decision: str) -> PPO:
    agent.load_state_dict({**agent.state_dict(), **read_policy(place(name)).agents[decision]})
    return agent


def bwa_rows() -> Mapping[str, Callable[[bwa.Rollout, random.Random], None]]:
    """Everything that may decide in a round, by name."""
    agents = {name: shipped(name, bwa.build(kind, 0), "adjustment") for name, kind in METHODS.items()}
    untrained = bwa.build("both", 1)

    def policy(one: bwa.Rollout, _draws: random.Random) -> None:
        one.take(one.train(bwa.batch_of(agents["bwa"], one.view)), bwa.weights_of(agents["bwa"], one.view))

    def batch(one: bwa.Rollout, _draws: random.Random) -> None:
        one.take(one.train(bwa.batch_of(agents["adaptive-b"], one.view)))

    def weights(one: bwa.Rollout, _draws: random.Random) -> None:
        one.take(one.train(one.made.batch), bwa.weights_of(agents["adaptive-aw"], one.view))

    def scratch(one: bwa.Rollout, draws: random.Random) -> None:
        state, mask = bwa.batched([one.view])
        drawn = untrained.split(untrained.act(state[0], mask[0], torch.Generator().manual_seed(draws.getrandbits(31))))
        one.take(one.train(int(drawn["batch"])), drawn["weights"][: one.made.clients])

    def fixed(size: int | None) -> Callable[[bwa.Rollout, random.Random], None]:
        return lambda one, _draws: one.take(one.train(size or one.made.batch))

    rows = {"bwa": policy, "adaptive-b": batch, "adaptive-aw": weights}
    return rows | {"from scratch": scratch, "prior": fixed(None), **{f"always {size}": fixed(size) for size in FIXED}}


METHODS = {"bwa": "both", "adaptive-b": "batch", "adaptive-aw": "weights"}


def judge_bwa() -> dict[str, dict[str, dict[int, float]]]:
    """The accuracy (%) by scenario, row and seed."""
    found: dict[str, dict[str, dict[int, float]]] = {}
    rows = bwa_rows()
    for source in HELD_OUT:
        data = sim.pool(source)
        for rate in RATES:
            scenario = f"{source}, learning rate {rate:g}"
            for seed in SEEDS:
                made = sim.scenario(data, random.Random(1000 + seed))
                made.lr, made.batch = rate, 16
                for name, decide in rows.items():
                    one, draws = bwa.Rollout(made, random.Random(seed)), random.Random(seed)
                    for _ in range(ROUNDS):
                        decide(one, draws)
                    found.setdefault(scenario, {}).setdefault(name, {})[seed] = 100 * one.result()[1]
            print(scenario, flush=True)
    return found


def bwa_part(found: Mapping[str, Mapping[str, Mapping[int, float]]]) -> list[str]:
    names = list(next(iter(found.values())))
    lines = [f"| scenario | {' | '.join(names)} |", "| --- |" + " ---: |" * len(names)]
    for scenario, rows in found.items():
        cells = [f"{fmean(values.values()):.1f} ± {stdev(values.values()):.1f}" for values in rows.values()]
        lines.append(f"| {scenario} | {' | '.join(cells)} |")
    means = {name: fmean(fmean(rows[name].values()) for rows in found.values()) for name in names}
    best = max((f"always {size}" for size in FIXED), key=means.__getitem__)
    lines += ["", f"The best fixed batch size over all scenarios is that of *{best}*.", ""]
    for row in ("bwa", "adaptive-b", "adaptive-aw"):
        others = ("prior", "from scratch") if row.startswith("adaptive-aw") else ("prior", best, "from scratch")
        for other in others:
            lines.append(f"* {row} against {other}: {counted(found, row, other)}.")
    return lines


def counted(found: Mapping[str, Mapping[str, Mapping[int, float]]], row: str, other: str) -> str:
    """In how many scenarios one row is ahead of another, by the criterion, and where it is behind."""
    decided: dict[str, list[tuple[str, Difference]]] = {}
    for scenario, rows in found.items():
        one = difference(rows[row], rows[other])
        decided.setdefault(str(one.outcome), []).append((scenario, one))
    counts = ", ".join(f"{outcome} in {len(those)}" for outcome, those in decided.items())
    behind = [f"{scenario} ({one.mean:+.1f})" for scenario, one in decided.get("behind", ())]
    return f"{counts} of {len(found)}" + (f"; behind: {', '.join(behind)}" if behind else "")


def hapfl_part() -> list[str]:
    lines = [
        "| sizes | measure | unadapted | agents | exact search | share of the search's gain | bar |",
        "| ---: | --- | ---: | ---: | ---: | ---: | --- |",
    ]
    for sizes in hapfl.LESSONS:
        agents = hapfl.untrained(sizes, 0)
        agents = {decision: shipped(f"hapfl-{sizes}", agent, decision) for decision, agent in agents.items()}
        judged = [hapfl.judge(agents, sizes, seed) for seed in hapfl.SEEDS]
        for name, title in MEASURES.items():
            rows = [one[name] for one in judged]
            cells = " | ".join(f"{fmean(column):.3f}" for column in zip(*rows, strict=True))
            shares = [100 * row.share for row in rows]
            found = interval(shares)
            assert found is not None
            reached = "reached" if found.low >= BAR else "not reached" if found.high < BAR else "not decidable"
            share = f"{found.mean:.1f} % [{found.low:.1f}, {found.high:.1f}]"
            lines.append(f"| {sizes} | {title} | {cells} | {share} | {reached} |")
    return lines


BAR = 95.0  # % of what the exact search gains
MEASURES = {
    "ratio": "logarithm of slowest / fastest time of an epoch",
    "waiting": "share of a round that the fastest client waits",
}


def pfedrlla_part() -> list[str]:
    actor = pfedrlla.actor_of(read_policy(place("pfedrlla-after")).agents["head-weights"])
    found: dict[str, dict[str, dict[int, float]]] = {}
    for source in HELD_OUT:
        judged = pfedrlla.judge(actor, sim.pool(source), seed=3000, federations=FEDERATIONS)
        found[source] = {name: dict(enumerate(100 * one for one in values)) for name, values in judged.items()}
    names = list(next(iter(found.values())))
    lines = [f"| data | {' | '.join(names)} |", "| --- |" + " ---: |" * len(names)]
    for source, rows in found.items():
        lines.append(f"| {source} | {' | '.join(f'{fmean(rows[name].values()):.1f}' for name in names)} |")
    return [*lines, "", *(f"* the agent against {other}: {counted(found, 'agent', other)}." for other in names[1:])]


def fedddrl_part() -> list[str]:
    agents = fedddrl.build(0)
    for decision, state in read_policy(place("fedddrl")).agents.items():
        agents[decision].load_state_dict({**agents[decision].state_dict(), **state})
    found: dict[str, dict[str, dict[int, float]]] = {}
    lines: list[str] = []
    for source in HELD_OUT:
        judged = fedddrl.judge(agents, sim.pool(source), seed=5000, federations=FEDERATIONS)
        found[source] = {name: dict(enumerate(values)) for name, values in judged["return"].items()}
        names = list(found[source])
        if not lines:
            lines += [f"| data | measure | {' | '.join(names)} |", "| --- | --- |" + " ---: |" * len(names)]
        for measure, rows in judged.items():
            lines.append(f"| {source} | {measure} | {' | '.join(f'{fmean(rows[name]):.1f}' for name in names)} |")
        print(source, flush=True)
    means = {name: fmean(fmean(rows[name].values()) for rows in found.values()) for name in fedddrl.RULES}
    best = max(means, key=means.__getitem__)
    lines += ["", f"The best rule by the return over all data is *{best}*.", ""]
    others = dict.fromkeys(("prior", best, "from scratch"))
    return [*lines, *(f"* the agents' return against {other}: {counted(found, 'agents', other)}." for other in others)]


def main(folder: Path) -> None:
    torch.set_num_threads(1)
    begin = time.monotonic()
    parts: dict[str, tuple[str, list[str]]] = {
        "BWA, Adaptive-B and Adaptive-AW": (BWA_TEXT, bwa_part(judge_bwa())),
        "HAPFL": (HAPFL_TEXT, hapfl_part()),
        "pFedRLLA-after": (PFEDRLLA_TEXT, pfedrlla_part()),
        "FedDdrl": (FEDDDRL_TEXT, fedddrl_part()),
    }
    lines = ["# The built-in policies", "", ABOUT.strip(), "", CRITERION, ""]
    for title, (text, table) in parts.items():
        lines += [f"## {title}", "", text.strip(), "", *table, ""]
    lines += ["## pFedRLLA", "", RULES_TEXT.strip(), ""]
    lines += [made_by("python recipes/policies/judge.py", begin, [*SEEDS, *hapfl.SEEDS])]
    (folder / "policies.md").write_text("\n".join(lines) + "\n", encoding="utf-8")
    print(folder / "policies.md")


ABOUT = """
What was trained for `policy = "built-in"` ([how](../policies.md)), judged on data sets and devices that no
policy has learned on. The policies learned on MNIST, USPS, MNIST-M and synthetic data (`make policies`); HAPFL's on
drawn devices. A policy is shipped if it reaches its bar: ahead of its prior, of the best fixed rule and of an
untrained agent in most scenarios and behind in none; for HAPFL, 95 % of what the exact search gains, in both measures.
**HAPFL's policies for two and three sizes reach it and are shipped. The others do not**: by default a rule decides,
and the candidates are in `recipes/policies/candidates`.
"""

BWA_TEXT = f"""
Small federations of the held-out data sets in which all clients train at once
(`recipes/policies/federations.py`): 4 to 20 clients with 30 to 120 samples of images of {sim.SIDE} x {sim.SIDE}
pixels, drawn label skew, one hidden layer, 1 to 5 epochs, {ROUNDS} rounds, five seeds. Accuracy (%) of the
global model on 100 held-out samples of every client. *prior*: equal weights and the run's batch size, 16;
it is the default. *from scratch*: an agent that has learned nothing, as in a single run with `policy = "none"`.
"""

HAPFL_TEXT = f"""
Drawn rounds of 2 to 24 clients up to 100 times apart, with drawn work of the sizes and numbers of epochs:
{len(hapfl.SEEDS)} seeds with {hapfl.TRIALS:,} rounds each, on which no candidate was judged before. Unadapted: the
largest model and equal epochs for all. The share has a 95 % t-interval over the seeds; the bar of {BAR:g} % is
reached if the whole interval is above it.
"""

PFEDRLLA_TEXT = f"""
Replays of {FEDERATIONS} federations for each held-out data set: accuracy (%) of the mixes that clients would deploy, on
100 held-out samples of every client. *prior*: the weights that the agent begins with, and the default; *from
scratch*: an agent that has learned nothing; *trained 0.8*: 80 % for the trained model. The agent was trained by the
exact gradient of the loss of the mixes, in {16 * pfedrlla.STEPS:,} replays of {pfedrlla.DECISIONS:,} decisions of
recorded federations.
"""

FEDDDRL_TEXT = f"""
{FEDERATIONS} small federations of each held-out data set, {fedddrl.ROUNDS} rounds, devices up to 30 times apart.
*return*: the sum of the method's rewards, in points of accuracy (a point is worth {fedddrl.POINT:g}); *accuracy*: that
of the global model (%); *time*: that of a round, in % of FedAvg's. *prior*: all clients continue with the run's number
of epochs, the default; *fewer* and *more epochs*: half as many less or more for all; *without slow*: clients that take
1.5 times the median time are stopped. The agents followed the gradient of the reward of a round in
{fedddrl.FEDERATIONS} federations ({fedddrl.FEDERATIONS * fedddrl.ROUNDS * fedddrl.DRAWS:,} joint decisions).
"""

RULES_TEXT = """
pFedRLLA mixes before the training, which undoes most of it. In runs of an earlier version even weights by the true
overlap of labels ended behind FedAvg's ([oracle](pfedrlla-cifar10-dir-oracle.md): 73.9 and 76.3 %). An agent cannot
gain there what an oracle loses, so we trained none, and the weights of eq. 2 decide. For a policy of your own:
`fedtailor pretrain`.
"""


if __name__ == "__main__":
    main(Path(sys.argv[1]) if len(sys.argv) > 1 else PAGES)
