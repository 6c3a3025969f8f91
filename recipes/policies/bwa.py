"""Trains the built-in policies of BWA, Adaptive-B and Adaptive-AW on small federations, and compares batch sizes there.

In every round of a federation all batch sizes of a grid are tried from the same models and with the same random
numbers; each is rewarded with the fall of the logarithm of the loss on many held-out samples of all clients. So the
gradient of the expected reward is exact, without a critic. Aggregation weights follow the gradient of that loss itself,
through the mean of the models.
"""

import math
import random
from collections.abc import Callable, Mapping

import federations as sim
import torch
from federations import Model, Scenario
from torch import Tensor

from fedtailor.agents import PPO, Integer, PPOSettings, Simplex
from fedtailor.agents.heads import IntegerHead
from fedtailor.agents.networks import PerSlot, seen
from fedtailor.learning.optimisers import Adam

SLOTS, FEATURES = 20, 6
GRID = (1, 2, 4, 8, 16, 32, 64)
ROUNDS = 12
STEP_COST = 0.02  # what twice the gradient steps must gain, as a fall of the log loss
FLOOR = 0.02  # added to losses: below it, nothing is gained
TABLES = {"network": "per-slot", "hidden": (32, 32), "standardise": True}
SPREAD = 0.5  # the method's default

Choice = Callable[[Tensor, list[float]], int]  # from the agent's view and the rewards of the grid to a batch size


def build(controls: str, seed: int) -> PPO:
    kinds = {"batch": Integer(1, 64).head(), "weights": Simplex(deviation=SPREAD, unit=SPREAD).head()}
    heads = {name: head for name, head in kinds.items() if controls in ("both", name)}
    return PPO(SLOTS, FEATURES, heads, PPOSettings.model_validate(TABLES), torch.Generator().manual_seed(seed))


def view(local: tuple[Tensor, Tensor, Tensor], shared: tuple[float, float, float]) -> Tensor:
    """What BWA's agent sees: loss, accuracy and divergence of every client, then of the server (clients, features)."""
    rows = [local[0].log1p(), local[1], local[2].log1p()]
    commons = [math.log1p(shared[0]), shared[1], math.log1p(shared[2])]
    return torch.stack([*rows, *(torch.full_like(rows[0], one) for one in commons)], 1)


def rewards(model: Model, made: Scenario, seed: int) -> tuple[list[float], list[Model]]:
    """The reward of every batch size of the grid, and the clients' models after that round."""
    start = sim.spread_out(model, made.clients)
    after = [sim.trained(start, made, batch, made.epochs, seed) for batch in GRID]
    found = []
    for batch, models in zip(GRID, after, strict=True):
        loss = float(sim.scores(sim.spread_out(sim.mean(models), made.clients), made.held)[0].mean())
        used = min(batch, made.train[1].shape[1])
        loss = min(loss, 50.0) if math.isfinite(loss) else 50.0
        found.append(-math.log(loss + FLOOR) + STEP_COST * math.log2(used))
    return found, after


class Rollout:
    """One federation, round by round, with a batch size and weights for every round."""

    def __init__(self, made: Scenario, draws: random.Random):
        self.made, self.seed = made, draws.getrandbits(30)
        self.model = sim.initial(made, draws)
        loss, accuracy = sim.scores(sim.spread_out(self.model, made.clients), made.val)
        zero = torch.zeros_like(loss)
        self.view = view((loss, accuracy, zero), (float(loss.mean()), float(accuracy.mean()), 0.0))
        self.round = 0

    def train(self, batch: int) -> Model:
        start = sim.spread_out(self.model, self.made.clients)
        return sim.trained(start, self.made, batch, self.made.epochs, self.seed + self.round)

    def take(self, models: Model, weights: Tensor | None = None) -> None:
        """Aggregate the clients' models and look at the result."""
        made, before = self.made, self.model
        local = (*sim.scores(models, made.val), sim.distance(models, before))
        self.model = sim.mean(models, weights)
        loss, accuracy = sim.scores(sim.spread_out(self.model, made.clients), made.val)
        moved = float(sim.distance(self.model, before)[0])
        if not all(bool(torch.isfinite(part).all()) for part in (*local, loss)):
            self.model = before  # a round that diverges is undone, as in a run
            return
        self.view = view(local, (float(loss.mean()), float(accuracy.mean()), moved))
        self.round += 1

    def result(self) -> tuple[float, float]:
        loss, accuracy = sim.scores(sim.spread_out(self.model, self.made.clients), self.made.held)
        return float(loss.mean()), float(accuracy.mean())


def collect(
    pools: Mapping[str, tuple[Tensor, Tensor]], draws: random.Random, states: int, choose: Choice
) -> list[tuple[Tensor, list[float]]]:
    """States of federations and the rewards of every batch size in them; ``choose`` decides where they go on."""
    found: list[tuple[Tensor, list[float]]] = []
    while len(found) < states:
        one = Rollout(sim.scenario(pools[draws.choice(list(pools))], draws), draws)
        for _ in range(ROUNDS):
            gained, after = rewards(one.model, one.made, one.seed + one.round)
            found.append((one.view, gained))
            batch = choose(one.view, gained)
            one.take(after[GRID.index(batch)])
    return found


def batched(views: list[Tensor]) -> tuple[Tensor, Tensor]:
    state, mask = torch.zeros(len(views), SLOTS, FEATURES), torch.zeros(len(views), SLOTS, dtype=torch.bool)
    for place, rows in enumerate(views):
        state[place, : len(rows)], mask[place, : len(rows)] = rows, True
    return state, mask


def nearest(batch: float) -> int:
    return min(GRID, key=lambda one: abs(math.log(one / max(batch, 0.5))))


def batch_of(agent: PPO, rows: Tensor) -> int:
    state, mask = batched([rows])
    return int(agent.split(agent.act(state[0], mask[0]))["batch"])


def weights_of(agent: PPO, rows: Tensor) -> Tensor:
    state, mask = batched([rows])
    return agent.split(agent.act(state[0], mask[0]))["weights"][: len(rows)]


def fit_batches(agent: PPO, known: list[tuple[Tensor, list[float]]], steps: int, seed: int) -> float:
    """Follow the exact gradient of the expected reward; the mean loss of the greedy choice against the best."""
    state, mask = batched([rows for rows, _ in known])
    assert agent.normaliser is not None
    for rows, _ in known:
        agent.normaliser.count(rows, torch.ones(len(rows), dtype=torch.bool))
    agent.normaliser.refresh()
    state = agent.normaliser(state).masked_fill(~mask[..., None], 0.0)
    every = torch.arange(1, 65).log2()
    low = every.floor().clamp(max=5).long()
    gained = torch.tensor([row for _, row in known])
    gained = gained - gained.amax(1, keepdim=True)
    gained = gained.clamp(min=-1.0)  # a choice that is far too bad is bad enough
    table = gained[:, low] + (every - low) * (gained[:, low + 1] - gained[:, low])  # (states, 64)
    head = agent.heads.heads["batch"]
    assert isinstance(head, IntegerHead)
    parameters = [*agent.actor.parameters, *head.parameters]
    optimiser, stream = Adam(parameters, 3e-3), torch.Generator().manual_seed(seed)
    for step in range(steps):
        optimiser.lr = 3e-3 * (1 - step / steps) + 1e-5
        chosen = torch.randint(len(known), (256,), generator=stream)
        logits = agent.actor(seen(state[chosen], mask[chosen]))[:, -1:]
        likely = head._logits(logits).exp()
        loss = -(likely * table[chosen]).sum(1).mean() + 1e-3 * logits.square().mean()
        optimiser.step(list(torch.autograd.grad(loss, parameters, allow_unused=True, materialize_grads=True)))
    with torch.no_grad():
        greedy = head.sample(agent.actor(seen(state, mask))[:, -1:], mask, None).long()
        return float(table.gather(1, greedy - 1).mean())


def fit_weights(agent: PPO, pools: Mapping[str, tuple[Tensor, Tensor]], draws: random.Random, federations: int) -> None:
    """Follow the gradient of the loss through the mean of the models; with a batch size to decide, that is kept."""
    assert isinstance(agent.actor, PerSlot)
    assert agent.actor.slot is not None
    assert agent.normaliser is not None
    alone = "batch" not in agent.heads.heads
    parameters = agent.actor.parameters if alone else agent.actor.slot.parameters
    optimiser = Adam(parameters, 2e-3)
    for number in range(federations):
        optimiser.lr = 2e-3 * (1 - number / federations)
        one = Rollout(sim.scenario(pools[draws.choice(list(pools))], draws), draws)
        loss: Tensor = torch.zeros(())
        for _ in range(ROUNDS):
            models = one.train(one.made.batch if alone else batch_of(agent, one.view))
            state, mask = batched([one.view])
            state = agent.normaliser(state).masked_fill(~mask[..., None], 0.0)
            logits = agent.actor(seen(state, mask))[0, : one.made.clients]
            weights = (SPREAD * logits).softmax(0)
            mixed = sim.spread_out(sim.mean(models, weights), one.made.clients)
            value = sim.scores(mixed, one.made.held)[0].mean()
            if bool(torch.isfinite(value)):
                loss = loss + (value + FLOOR).log() / ROUNDS + 0.01 * logits.square().mean() / ROUNDS
            one.take(models, weights.detach())
        if loss.requires_grad:
            optimiser.step(list(torch.autograd.grad(loss, parameters, allow_unused=True, materialize_grads=True)))


def train(
    pools: Mapping[str, tuple[Tensor, Tensor]],
    seed: int = 100,
    states: int = 1_200,
    steps: int = 1_500,
    federations: int = 200,
) -> dict[str, PPO]:
    """The agents of BWA, Adaptive-B and Adaptive-AW."""
    draws = random.Random(seed)
    both, alone, weights = build("both", seed), build("batch", seed), build("weights", seed)

    def explore(_rows: Tensor, gained: list[float]) -> int:
        return GRID[max(range(len(GRID)), key=gained.__getitem__)] if draws.random() < 0.6 else draws.choice(GRID)

    known = collect(pools, draws, states, explore)
    print("states", len(known), "regret", fit_batches(alone, known, steps, seed), flush=True)
    known += collect(
        pools,
        draws,
        states,
        lambda rows, _: nearest(batch_of(alone, rows)) if draws.random() < 0.9 else draws.choice(GRID),
    )
    for agent in (alone, both):
        print("states", len(known), "regret", fit_batches(agent, known, 2 * steps, seed), flush=True)
    assert weights.normaliser is not None
    assert both.normaliser is not None
    weights.normaliser.load_state_dict(both.normaliser.state_dict())
    for agent in (both, weights):
        fit_weights(agent, pools, draws, federations)
    return {"bwa": both, "adaptive-b": alone, "adaptive-aw": weights}
