"""What BWA's reward rewards, and what its agent learns from it, in made-up federations that take no training.

``python recipes/bwa/reward.py`` writes docs/results/bwa-reward.md. The accuracy phi starts at 10 % and moves in every
round k(b) = 1 / (2 sqrt b) of the way to 50 %, with a noise of one point: the smaller the batch, the better, always. In
a second federation small batches have a price in their own round alone: what was gained is there, but the accuracy is
PRICE / sqrt(b) lower.
"""

import time
from pathlib import Path
from statistics import fmean, stdev
from types import SimpleNamespace
from typing import Any, Literal

import torch

from fedtailor.learning import TrainingSettings
from fedtailor.methods import Decide, Decisions, start
from fedtailor.methods.adjustment import ADJUSTMENT
from fedtailor.methods.bwa import BWA
from fedtailor.seeding import torch_stream
from fedtailor.views.provenance import made_by

# How agents learn: as in reproduce.toml, and as PPO is usually done
CALM: dict[str, Any] = {"critic_first": 2, "critic_epochs": 40, "center_advantages": False}
TEXTBOOK: dict[str, Any] = {"critic_first": 0, "critic_epochs": None, "center_advantages": True}
PAGE = Path(__file__).parents[2] / "docs" / "results" / "bwa-reward.md"
ROUNDS, CLIENTS, SAMPLES = 10, 10, 1050
BATCHES = (1, 4, 16, 32, 64)
DISCOUNTS = (0.0, 0.5, 0.99)
SEEDS = (0, 1)
EPISODES = 30
KINDS: tuple[Literal["gain", "objective", "rise"], ...] = ("gain", "objective", "rise")
PRICE = 0.1
FEW, MANY = 15, range(4)  # episodes and seeds of the second study
HORIZONS = (0.0, 0.5, 0.9)


def main() -> None:
    torch.set_num_threads(1)
    begin = time.monotonic()
    lines = [
        "# bwa-reward",
        "",
        "There is no federation, but an accuracy that starts at 10 % and moves in "
        "every round 1 / (2 sqrt b) of the way to 50 %, plus a noise of one point. The smaller b, the better.",
        "",
        "## One batch size in all ten rounds, without noise: accuracy at the end, sum of rewards",
        "",
        "| batch | accuracy (%) | gain (eq. 8) | objective (eq. 7) | rise |",
        "| ---: | ---: | ---: | ---: | ---: |",
    ]
    for size in BATCHES:
        found = [fixed(BWA(reward=kind), size) for kind in KINDS]
        sums = " | ".join(f"{total:.2f}" for _, total in found)
        lines.append(f"| {size} | {100 * found[0][0]:.1f} | {sums} |")
    lines += [*rewards(), *ways(), "", made_by("python recipes/bwa/reward.py", begin, MANY)]
    PAGE.write_text("\n".join([*lines, ""]), encoding="utf-8")


def rewards() -> list[str]:
    lines = [
        "",
        f"## What the agent learns in {EPISODES} episodes: means of the first and of the last ten",
        "",
        "| reward | discount | seed | batch | accuracy at the end (%) | sum of rewards |",
        "| --- | ---: | ---: | ---: | ---: | ---: |",
    ]
    for kind in KINDS:
        for discount in DISCOUNTS:
            for seed in SEEDS:
                made = Learned(bwa(kind, discount=discount), seed)
                for _ in range(EPISODES):
                    made.learn()
                ends = [
                    [fmean(column) for column in zip(*part, strict=True)]
                    for part in (made.found[:10], made.found[-10:])
                ]
                pairs = zip(*ends, (1, 1, 2), strict=True)
                cells = [f"{first:.{digits}f} → {last:.{digits}f}" for first, last, digits in pairs]
                lines.append(f"| {kind} | {discount:g} | {seed} | {' | '.join(cells)} |")
                print(lines[-1], flush=True)
    return lines


def ways() -> list[str]:
    """How the agent learns, and how far it looks."""
    lines = [
        "",
        f"## Ways to learn: accuracy at the end (%), decided greedily after {FEW} episodes",
        "",
        f"Mean ± deviation over {len(MANY)} seeds, batches from 2 on, reward = rise. *price*: small batches cost "
        f"accuracy in their own round, {100 * PRICE:.0f} / sqrt(b) points, not in later ones. *textbook*: actor and "
        "critic learn from the first episode on, ten passes each, and advantages are centred; *calm* is neither, as in "
        "the recipes. *last* policy, or the *best* by three episodes in a row.",
        "",
        "| learning | "
        + " | ".join(f"{name}, discount {d:g}" for name in ("no price", "price") for d in HORIZONS)
        + " |",
        "| --- | " + " | ".join("---:" for _ in range(2 * len(HORIZONS))) + " |",
    ]
    columns = [(price, discount) for price in (0.0, PRICE) for discount in HORIZONS]
    for name, changes in (("textbook", TEXTBOOK), ("calm", CALM)):
        ends: dict[str, list[list[float]]] = {"last": [], "best": []}  # by column and seed
        for price, discount in columns:
            method = bwa("rise", smallest=2, discount=discount, **changes)
            agents = [Learned(method, seed, price) for seed in MANY]
            for made in agents:
                for _ in range(FEW):
                    made.learn()
            for keep, found in ends.items():
                found.append([made.deployed(keep) for made in agents])
        for keep, found in ends.items():
            cells = [f"{fmean(values):.1f} ± {stdev(values):.1f}" for values in found]
            lines.append(f"| {name}, {keep} policy | {' | '.join(cells)} |")
            print(lines[-1], flush=True)
    plans = {f"always {b}": [b] * ROUNDS for b in (2, 3, 5, 10, 64)} | {
        "2, the last time 64": [2] * (ROUNDS - 1) + [64]
    }
    for name, plan in plans.items():
        cells = [f"{100 * follow(plan, price):.1f}" for price, _ in columns]
        lines.append(f"| *{name}* | {' | '.join(cells)} |")
    return lines


def bwa(reward: str, smallest: int = 1, **agent: Any) -> BWA:
    table = {"network": "per-slot", **agent}
    return BWA.model_validate({"reward": reward, "smallest": smallest, "agents": {ADJUSTMENT: table}})


def moved(progress: float, batch: float) -> float:
    return progress + (0.5 - progress) / (2 * batch**0.5)


def follow(plan: list[int], price: float) -> float:
    progress = 0.1
    for batch in plan:
        progress = moved(progress, batch)
    return progress - price / plan[-1] ** 0.5


def fixed(method: BWA, batch: int) -> tuple[float, float]:
    """The accuracy at the end and the sum of rewards."""
    accuracy = best = 0.1
    total = 0.0
    for round in range(1, ROUNDS + 1):
        after = moved(accuracy, batch)
        total += method._reward(accuracy, after, best, round, SAMPLES)
        best, accuracy = max(best, after), after
    return accuracy, total


class Learned:
    """An agent in a federation in which small batches have a price."""

    def __init__(self, method: BWA, seed: int, price: float = 0.0):
        self.method, self.price = method, price
        self.server: Any = SimpleNamespace(state={}, largest_cohort=CLIENTS, greedy=False, rounds=ROUNDS, round=0)
        self.server.moment, self.server.training = SimpleNamespace(episode=0), TrainingSettings()
        self.server.stream = lambda purpose: torch_stream(seed, self.server.moment.episode, self.server.round, purpose)
        start(method, self.server, keeps_best=True)
        self.found: list[tuple[float, float, float]] = []  # mean batch size, accuracy at the end in %, sum of rewards

    def learn(self) -> None:
        """From one more episode."""
        self.server.moment.episode = len(self.found)
        self.found.append(self._episode(self.server, 0.01))

    def deployed(self, keep: str) -> float:
        """The accuracy at the end, in %, of an episode without exploration and without noise."""
        learned = self.server.decisions
        last = {name: agent.policy() for name, agent in learned.agents.items()}
        server = SimpleNamespace(**{**vars(self.server), "greedy": True})
        server.decisions = Decisions(self.method.decisions(self.server), self.server, policy=True)
        server.decisions.adopt(learned.policy() if keep == "best" else last)
        return self._episode(server, 0.0)[1]

    def _episode(self, server: Any, noise: float) -> tuple[float, float, float]:
        progress = accuracy = best = 0.1
        change = total = 0.0
        sizes: list[float] = []
        for server.round in range(1, ROUNDS + 1):
            spread = 3 / sizes[-1] ** 0.5 if sizes else 0.0  # clients that made more steps are farther away
            numbers = [1 - accuracy, 0.9, spread, 2.3 - 3 * accuracy, accuracy, change]
            server.decisions.begin_round(server)
            decision = server.decisions.decide(server, Decide(ADJUSTMENT, dict.fromkeys(range(CLIENTS), numbers)))
            sizes.append(decision["batch"])
            progress = moved(progress, sizes[-1])
            after = (
                progress
                - self.price / sizes[-1] ** 0.5
                + noise * float(torch.randn((), generator=server.stream("noise")))
            )
            after = max(0.01, after)
            reward = self.method._reward(accuracy, after, best, server.round, SAMPLES)
            server.decisions.reward(server, decision, reward, self.method._objective(after))
            server.decisions.end_round(server)
            total, best, change, accuracy = total + reward, max(best, after), 10 * abs(after - accuracy), after
        return fmean(sizes), 100 * accuracy, total


if __name__ == "__main__":
    main()
