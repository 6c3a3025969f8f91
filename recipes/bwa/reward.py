"""What BWA's reward rewards, and what its agent learns from it, in a made-up federation that takes no training.

``python recipes/bwa/reward.py`` writes docs/results/bwa-reward.md. The accuracy phi starts at 10 % and moves in every
round k(b) = 1 / (2 sqrt b) of the way to 50 %, with a noise of one point: the smaller the batch, the better, always.
"""

from pathlib import Path
from statistics import fmean
from types import SimpleNamespace
from typing import Any, Literal

import torch

from fedtailor.methods import Decide
from fedtailor.methods.bwa import ADJUSTMENT, BWA
from fedtailor.streams import torch_stream

PAGE = Path(__file__).parents[2] / "docs" / "results" / "bwa-reward.md"
ROUNDS, CLIENTS, EPISODES, SAMPLES = 10, 10, 60, 1050
BATCHES = (1, 4, 16, 32, 64)
DISCOUNTS = (0.0, 0.5, 0.99)
SEEDS = (0, 1)
KINDS: tuple[Literal["gain", "objective", "rise"], ...] = ("gain", "objective", "rise")


def main() -> None:
    torch.set_num_threads(1)
    lines = [
        "# bwa-reward",
        "",
        "Written by `python recipes/bwa/reward.py`: no federation, but an accuracy that starts at 10 % and moves in "
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
    lines += [
        "",
        f"## What the agent learns in {EPISODES} episodes: means of the first and of the last ten",
        "",
        "| reward | discount | seed | batch | accuracy at the end (%) | sum of rewards |",
        "| --- | ---: | ---: | ---: | ---: | ---: |",
    ]
    for kind in KINDS:
        for discount in DISCOUNTS:
            for seed in SEEDS:
                made = learned(BWA(reward=kind, discount=discount, learn="always", network="per-slot"), seed)
                ends = [[fmean(column) for column in zip(*part, strict=True)] for part in (made[:10], made[-10:])]
                pairs = zip(*ends, (1, 1, 2), strict=True)
                cells = [f"{first:.{digits}f} → {last:.{digits}f}" for first, last, digits in pairs]
                lines.append(f"| {kind} | {discount:g} | {seed} | {' | '.join(cells)} |")
                print(lines[-1], flush=True)
    PAGE.write_text("\n".join([*lines, ""]), encoding="utf-8")


def fixed(method: BWA, batch: int) -> tuple[float, float]:
    """The accuracy at the end and the sum of rewards."""
    accuracy = best = 0.1
    total = 0.0
    for round in range(1, ROUNDS + 1):
        after = accuracy + (0.5 - accuracy) / (2 * batch**0.5)
        total += method._reward(accuracy, after, best, round, SAMPLES)
        best, accuracy = max(best, after), after
    return accuracy, total


def learned(method: BWA, seed: int) -> list[tuple[float, float, float]]:
    """Mean batch size, accuracy at the end in % and sum of rewards of every episode."""
    server: Any = SimpleNamespace(state={}, largest_cohort=CLIENTS, greedy=False, rounds=ROUNDS, round=0)
    episode = 0
    server.stream = lambda purpose: torch_stream(seed, episode, server.round, purpose)
    method.start_server(server)
    found = []
    for episode in range(EPISODES):  # noqa: B007, the streams are those of the episode
        accuracy = best = 0.1
        moved = total = 0.0
        sizes = []
        for server.round in range(1, ROUNDS + 1):
            numbers = [1 - accuracy, 0.9, 1.0, 2.3 - 3 * accuracy, accuracy, moved]
            observation, mask = torch.tensor([numbers] * CLIENTS), torch.ones(CLIENTS, dtype=torch.bool)
            action = method.decide(server, Decide(ADJUSTMENT, observation, mask))
            sizes.append(float(action[0]))
            noise = 0.01 * float(torch.randn((), generator=server.stream("noise")))
            after = max(0.01, accuracy + (0.5 - accuracy) / (2 * sizes[-1] ** 0.5) + noise)
            reward = method._reward(accuracy, after, best, server.round, SAMPLES)
            server.state["global"] = [2.3 - 3 * after, after, 10 * abs(after - accuracy)]
            method._observe(server, {"observation": observation, "mask": mask, "action": action}, reward)
            total, best, moved, accuracy = total + reward, max(best, after), 10 * abs(after - accuracy), after
        method._end(server)
        found.append((fmean(sizes), 100 * accuracy, total))
    return found


if __name__ == "__main__":
    main()
