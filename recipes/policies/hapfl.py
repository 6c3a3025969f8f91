"""Trains HAPFL's built-in policies on the clock alone, and measures them on devices that they have not seen.

Rewards of HAPFL's agents are functions of times, so a decision costs microseconds. Both agents first imitate the exact
search, then PPO1 follows the gradient of its own reward: for every state several allocations are drawn, and each is
compared with the mean of the others (common random numbers).
"""

import math
import random
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import fmean
from typing import Any, NamedTuple

import torch
from torch import Tensor

from fedtailor.agents import PPO, Categorical, PPOSettings, Simplex
from fedtailor.agents.networks import seen
from fedtailor.learning.optimisers import Adam
from fedtailor.methods.allocation import best_epochs, best_sizes, divide, even_shares

SLOTS = 24  # the most clients in a round while learning; the networks work for any number
BATCH = 48
DRAWS = 16  # allocations per state in the steps by the reward
SEEDS, TRIALS = range(2001, 2006), 1_000  # of the rounds that judge; no agent was chosen by them


@dataclass(frozen=True)
class Lesson:
    """How the agents for a number of sizes learn."""

    hidden: tuple[int, ...]
    imitated: int  # steps
    rewarded: int  # steps of PPO1 by its reward
    refined: int = 0  # and by its gradient for each client

    @property
    def table(self) -> dict[str, Any]:
        return {"network": "per-slot", "hidden": self.hidden}


LESSONS = {2: Lesson((48, 48), 2_500, 800), 3: Lesson((128, 128), 6_000, 3_000, 6_000)}


def scenario(draws: random.Random, sizes: int) -> tuple[list[float], list[float], int]:
    """Clients' times, the work of every size, and the mean number of epochs, all drawn widely."""
    clients, epochs = draws.randint(2, SLOTS), draws.choice([2, 3, 5, 8, 10, 15, 20, 30])
    spread = math.exp(draws.uniform(0.0, math.log(100)))
    kind = draws.random()
    if kind < 0.5:
        times = [spread ** draws.random() for _ in range(clients)]
    elif kind < 0.75:
        times = [draws.uniform(1, spread) for _ in range(clients)]
    else:  # tiers of devices, and noise
        tiers = [spread ** draws.random() for _ in range(3)]
        times = [draws.choice(tiers) * math.exp(draws.gauss(0, 0.1)) for _ in range(clients)]
    times = sorted(time / min(times) for time in times)
    steps = [math.exp(draws.uniform(math.log(1.15), math.log(6))) for _ in range(sizes - 1)]
    work = [draws.uniform(1.2, 3.0)]
    for step in steps:
        work.append(work[-1] * step)
    return times, work, epochs


def size_state(times: Sequence[float], work: Sequence[float]) -> list[list[float]]:
    more = [math.log(one / work[0]) for one in work[1:]]
    return [[math.log(time), *more] for time in times]


def padded(rows: Sequence[Sequence[Sequence[float]]]) -> tuple[Tensor, Tensor]:
    """States (batch, slots, features) and their masks."""
    state = torch.zeros(len(rows), SLOTS, len(rows[0][0]))
    mask = torch.zeros(len(rows), SLOTS, dtype=torch.bool)
    for place, row in enumerate(rows):
        state[place, : len(row)] = torch.tensor(row)
        mask[place, : len(row)] = True
    return state, mask


def filled(rows: Sequence[Sequence[float]]) -> Tensor:
    return torch.tensor([[*row, *[0.0] * (SLOTS - len(row))] for row in rows])


def untrained(sizes: int, seed: int) -> dict[str, PPO]:
    """Two new agents: their shapes are those of HAPFL with ``state = "full"``."""
    settings, stream = PPOSettings.model_validate(LESSONS[sizes].table), torch.Generator().manual_seed(seed)
    size = PPO(SLOTS, sizes, {"size": Categorical(sizes).head()}, settings, stream)
    return {"size": size, "intensity": PPO(SLOTS, 2, {"intensity": Simplex().head()}, settings, stream)}


def train(sizes: int, seed: int = 100) -> dict[str, PPO]:
    """The two agents for this number of sizes."""
    draws, stream = random.Random(seed), torch.Generator().manual_seed(seed)
    agents, steps = untrained(sizes, seed), LESSONS[sizes].imitated
    size, intensity = agents["size"], agents["intensity"]
    for step in range(steps):
        lr = 0.004 * (1 - step / steps)
        made = [scenario(draws, sizes) for _ in range(BATCH)]
        chosen = [best_sizes(times, work) for times, work, _ in made]
        size.imitate(*padded([size_state(times, work) for times, work, _ in made]), filled(chosen), lr)
        loads = [
            [work[a] * time for time, a in zip(times, row, strict=True)]
            for (times, work, _), row in zip(made, chosen, strict=True)
        ]
        # so that PPO2 is good for sizes that PPO1 should not have chosen, too
        loads = [
            load if draws.random() < 0.7 else [one * math.exp(draws.gauss(0, 0.4)) for one in load] for load in loads
        ]
        states = [
            [[math.log(one), math.log(epochs)] for one in load]
            for load, (_, _, epochs) in zip(loads, made, strict=True)
        ]
        shares = [even_shares(load, epochs * len(load)) for load, (_, _, epochs) in zip(loads, made, strict=True)]
        fit_shares(intensity, *padded(states), filled(shares), lr)
    follow_reward(size, sizes, LESSONS[sizes].rewarded, draws, stream)
    refine(size, sizes, LESSONS[sizes].refined, random.Random(seed + 1), torch.Generator().manual_seed(seed + 1))
    return agents


def fit_shares(agent: PPO, state: Tensor, mask: Tensor, shares: Tensor, lr: float) -> None:
    """A step towards these shares, by the relative error of every client's."""
    logits = agent.actor(seen(state, mask))[:, :SLOTS].masked_fill(~mask, -torch.inf)
    error = (logits.log_softmax(-1) - shares.clamp(min=1e-12).log()).masked_fill(~mask, 0.0)
    loss = (error.square() * (shares * mask.sum(-1, keepdim=True)).clamp(max=1.0)).sum() / mask.sum()
    step(agent, loss, lr)


def follow_reward(agent: PPO, sizes: int, steps: int, draws: random.Random, stream: torch.Generator) -> None:
    """Steps along the gradient of the expected reward, -log(slowest / fastest)."""
    for number in range(steps):
        made = [scenario(draws, sizes) for _ in range(BATCH)]
        state, mask = padded([size_state(times, work) for times, work, _ in made])
        works = torch.tensor([work for _, work, _ in made])  # (batch, sizes)
        logits = agent.actor(seen(state, mask)).reshape(BATCH, SLOTS, sizes).log_softmax(-1)
        with torch.no_grad():
            flat = logits.exp().reshape(-1, sizes)
            drawn = torch.multinomial(flat, DRAWS, replacement=True, generator=stream)
            drawn = drawn.reshape(BATCH, SLOTS, DRAWS).transpose(1, 2)  # (batch, draws, slots)
            log_time = state[:, None, :, 0] + works.log().gather(1, drawn.reshape(BATCH, -1)).reshape(drawn.shape)
            absent = ~mask[:, None]
            spread = log_time.masked_fill(absent, -torch.inf).amax(-1) - log_time.masked_fill(absent, torch.inf).amin(
                -1
            )
            gain = spread.mean(1, keepdim=True) - spread  # (batch, draws)
        taken = logits[:, None].expand(-1, DRAWS, -1, -1).gather(-1, drawn[..., None]).squeeze(-1)
        taken = taken.masked_fill(~mask[:, None], 0.0).sum(-1)
        entropy = -(logits.exp() * logits).sum(-1).masked_fill(~mask, 0.0).sum() / mask.sum()
        step(agent, -(taken * gain).mean() - 0.001 * entropy, 0.0015 * (1 - number / steps))


def refine(agent: PPO, sizes: int, steps: int, draws: random.Random, stream: torch.Generator) -> None:
    """More such steps; each client's part of the gradient is exact, given the drawn sizes of the others."""
    vars(agent).pop("direct", None)
    for number in range(steps):
        made = [scenario(draws, sizes) for _ in range(BATCH)]
        state, mask = padded([size_state(times, work) for times, work, _ in made])
        likely = agent.actor(seen(state, mask)).reshape(BATCH, SLOTS, sizes).softmax(-1)
        with torch.no_grad():
            drawn = torch.multinomial(likely.reshape(-1, sizes), DRAWS, replacement=True, generator=stream)
            drawn = drawn.reshape(BATCH, SLOTS, DRAWS).transpose(1, 2)  # (batch, draws, slots)
            works = torch.tensor([work for _, work, _ in made]).log()
            every = state[:, :, :1] + works[:, None]  # (batch, slots, sizes): the log time of every choice
            taken = every[:, None].expand(-1, DRAWS, -1, -1).gather(-1, drawn[..., None]).squeeze(-1)
            slowest = _without_each(taken.masked_fill(~mask[:, None], -torch.inf))
            fastest = -_without_each((-taken).masked_fill(~mask[:, None], -torch.inf))
            each = every[:, None]
            spread = torch.maximum(slowest[..., None], each) - torch.minimum(fastest[..., None], each)
            cost = spread.mean(1).masked_fill(~mask[..., None], 0.0)  # (batch, slots, sizes)
        step(agent, (likely * cost).sum((1, 2)).mean(), 0.0015 * (1 - number / steps))


def _without_each(values: Tensor) -> Tensor:
    """The largest of the other values, for each in the last dimension."""
    top = values.topk(2, -1)
    first = top.indices[..., :1] == torch.arange(values.shape[-1])
    return torch.where(first, top.values[..., 1:], top.values[..., :1])


def step(agent: PPO, loss: Tensor, lr: float) -> None:
    parameters = agent.actor.parameters
    gradients = torch.autograd.grad(loss, parameters)
    norm = torch.stack([gradient.norm() for gradient in gradients]).norm()
    optimiser: Adam = vars(agent).setdefault("direct", Adam(parameters, lr))
    optimiser.lr = lr
    optimiser.step([gradient * (1.0 / (norm + 1e-6)).clamp(max=1.0) for gradient in gradients])


def measured(agents: dict[str, PPO] | None, times: list[float], work: list[float], epochs: int) -> tuple[float, float]:
    """Slowest / fastest time of an epoch, and waiting time over the work; None: the exact search."""
    total = epochs * len(times)
    if agents is None:
        chosen = best_sizes(times, work)
    else:
        (state, mask) = padded([size_state(times, work)])
        chosen = [int(a) for a in agents["size"].act(state[0], mask[0])[: len(times)]]
    loads = [work[a] * time for time, a in zip(times, chosen, strict=True)]
    if agents is None:
        number = best_epochs(loads, total)
    else:
        (state, mask) = padded([[[math.log(load), math.log(epochs)] for load in loads]])
        number = divide(agents["intensity"].act(state[0], mask[0])[: len(times)].tolist(), total)
    ends = [load * n for load, n in zip(loads, number, strict=True)]
    return max(loads) / min(loads), (max(ends) - min(ends)) / max(ends)


def unadapted(times: list[float], work: list[float], epochs: int) -> tuple[float, float]:
    """The largest model and equal epochs for all."""
    return max(times) / min(times), 1 - min(times) / max(times)


class Judged(NamedTuple):
    """Means of a measure over drawn rounds: without agents, with agents, with the exact search."""

    none: float
    agents: float
    search: float

    @property
    def share(self) -> float:
        """What the agents gain, as a share of what the search gains."""
        return (self.none - self.agents) / (self.none - self.search)


def judge(agents: dict[str, PPO], sizes: int, seed: int, trials: int = TRIALS) -> dict[str, Judged]:
    """Both measures, over drawn devices, sizes and epochs."""
    draws = random.Random(seed)
    rows = []
    for _ in range(trials):
        made = scenario(draws, sizes)
        rows.append([unadapted(*made), measured(agents, *made), measured(None, *made)])
    ratios = ([math.log(ratio) for ratio, _ in row] for row in rows)
    waits = ([waiting for _, waiting in row] for row in rows)
    return {
        name: Judged(*(fmean(column) for column in zip(*values, strict=True)))
        for name, values in (("ratio", ratios), ("waiting", waits))
    }
