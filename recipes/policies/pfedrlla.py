"""Trains an agent for pFedRLLA-after on recorded federations, and compares it with the weights it begins with.

What is mixed after the training does not influence the training, so a federation is trained once, and every decision in
it is replayed: the loss of a client's mix on many held-out samples is a function of the agent's weights, and the agent
follows its gradient. Embeddings are those of one federation alone, so the agent sees only what has the same meaning
in all of them: ages, whose model it is, and the initial weights.
"""

import random
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import federations as sim
import torch
import torch.nn.functional as F
from federations import Model
from torch import Tensor

from fedtailor.agents import DDPG, DDPGSettings, Simplex
from fedtailor.agents.attention import Attention
from fedtailor.agents.embedding import PCAEmbedding
from fedtailor.learning.optimisers import Adam
from fedtailor.methods.head_embedding import similarity

EMBEDDING = 128
FEATURES = EMBEDDING + 3  # embedding, log age, whose model, initial logit
GAMMA, OWN = 0.9, 0.9  # the method's defaults
ROUNDS = 14
HIDDEN = (32, 32)
TABLE = {"network": "attention", "hidden": HIDDEN}
DECISIONS, STEPS = 40_000, 10_000
PART = 2_000  # decisions that are in memory at a time


@dataclass
class Decision:
    """Everything that the loss of a client's mix depends on."""

    seen: Tensor  # (models, features)
    prior: Tensor  # (models,) initial logits
    ages: Tensor  # (models,)
    models: Model  # the tensors of all models, stacked
    held: tuple[Tensor, Tensor]


def record(data: tuple[Tensor, Tensor], draws: random.Random) -> list[Decision]:
    """One federation, and its decisions after the first rounds."""
    made = sim.scenario(data, draws)
    clients, ratio, seed = made.clients, draws.choice([0.3, 0.5, 1.0]), draws.getrandbits(30)
    models = sim.trained(sim.spread_out(sim.initial(made, draws), clients), made, made.batch, made.epochs, seed)
    trained = [0] * clients  # the round in which a client trained last
    previous = list(range(clients))[: max(2, round(ratio * clients))]
    embedding, found = PCAEmbedding(EMBEDDING), []
    for number in range(1, ROUNDS + 1):
        cohort = sorted(draws.sample(range(clients), max(2, round(ratio * clients))))
        peers = [part[previous] for part in models]
        begin = sim.spread_out(sim.mean(peers), clients)
        fresh = sim.trained(begin, made, made.batch, made.epochs, seed + number)
        heads = [[torch.cat([models[2][k].T, models[3][k].T], 1)] for k in range(clients)]
        if not embedding.fits(heads):
            embedding.fit([heads[k] for k in previous])
        vectors = embedding(heads)
        if number > 3 and all(bool(torch.isfinite(part).all()) for part in fresh):
            found += [_decision(made, models, fresh, previous, k, number, trained, vectors) for k in cohort]
        if number % 10 == 0:
            embedding.train([heads[k] for k in previous], 0, torch.Generator())
        models = [part.clone() for part in models]
        for old, new in zip(models, fresh, strict=True):
            old[cohort] = new[cohort]
        for k in cohort:
            trained[k] = number
        previous = cohort
    return found


def _decision(
    made: sim.Scenario,
    models: Model,
    fresh: Model,
    previous: list[int],
    k: int,
    number: int,
    trained: list[int],
    vectors: Tensor,
) -> Decision:
    others = [j for j in previous if j != k]
    near = similarity(vectors[[*others, k]])
    near = torch.cat([near, near[-1:]])
    near = (near / near.sum()).clamp(min=1e-3).log()
    near[len(others) :] = near[: len(others)].logsumexp(0) + torch.tensor(OWN / (1 - OWN) / 2).log()
    ages = torch.tensor([*(float(number - trained[j]) for j in others), float(number - trained[k]), 0.0])
    flags = torch.tensor([0.0] * len(others) + [1.0, -1.0])
    seen = torch.cat([torch.zeros(len(near), EMBEDDING), torch.stack([ages.log1p(), flags, near], 1)], 1)
    stacked = [torch.cat([part[[*others, k]], new[[k]]]) for part, new in zip(models, fresh, strict=True)]
    return Decision(seen, near, ages, stacked, (made.held[0][k], made.held[1][k]))


def shares(decision: Decision, logits: Tensor) -> Tensor:
    """The weights of all models in the mix."""
    weights = logits.softmax(0) * GAMMA ** (decision.ages - decision.ages.min())
    return weights / weights.sum()


def score(decision: Decision, weights: Tensor) -> tuple[Tensor, Tensor]:
    """Loss and accuracy of the mix."""
    mixed = [torch.einsum("k,kij->ij", weights, part)[None] for part in decision.models]
    out = sim.logits(mixed, decision.held[0][None])[0]
    return F.cross_entropy(out, decision.held[1]), (out.argmax(1) == decision.held[1]).float().mean()


def build(seed: int) -> Attention:
    """An actor without a say in embeddings, at first equal to the initial weights."""
    actor = Attention(FEATURES, HIDDEN, 1, 0, torch.Generator().manual_seed(seed))
    with torch.no_grad():
        actor.encoder.parameters[0][:, :EMBEDDING] = 0.0
    return actor


def agent_of(actor: Attention) -> DDPG:
    """The method's agent with this actor; its critic has learned nothing."""
    settings = DDPGSettings.model_validate(TABLE)
    agent = DDPG(1, FEATURES, Simplex(), settings, torch.Generator().manual_seed(0), prior=FEATURES - 1)
    agent.actor.load_state_dict(actor.state_dict())
    return agent


def actor_of(state: Mapping[str, Any]) -> Attention:
    """The actor of a stored policy."""
    actor = build(0)
    actor.load_state_dict(state["networks"]["actor"])
    return actor


def added(actor: Attention, decision: Decision) -> Tensor:
    """What the agent adds to the initial logits (models,)."""
    each, _ = actor.outputs(decision.seen, torch.ones(len(decision.seen), dtype=torch.bool))
    return each.squeeze(-1)


def train(
    pools: Mapping[str, tuple[Tensor, Tensor]], seed: int = 100, decisions: int = DECISIONS, steps: int = STEPS
) -> Attention:
    """Follow the gradient through ``decisions`` decisions of recorded federations, a part of them at a time."""
    draws, actor = random.Random(seed), build(seed)
    optimiser, known, seen = Adam(actor.parameters, 3e-3), [], 0
    for step in range(steps):
        if step * decisions >= seen * steps:  # the next part
            known = []
            while len(known) < min(PART, decisions - seen):
                known += record(pools[draws.choice(list(pools))], draws)
            seen += len(known)
            print("decisions", seen, flush=True)
        optimiser.lr = 3e-3 * (1 - step / steps) + 1e-5
        loss = torch.zeros(())
        for decision in draws.sample(known, 16):
            logits = added(actor, decision)
            with torch.no_grad():
                usual, _ = score(decision, shares(decision, decision.prior))
            value, _ = score(decision, shares(decision, decision.prior + logits))
            loss = loss + ((value + 0.02) / (usual + 0.02)).log() / 16 + 0.002 * logits.square().mean() / 16
        gradients = list(torch.autograd.grad(loss, actor.parameters))
        gradients[0] = gradients[0].clone()
        gradients[0][:, :EMBEDDING] = 0.0
        optimiser.step(gradients)
    return actor


def judge(actor: Attention, data: tuple[Tensor, Tensor], seed: int, federations: int) -> dict[str, list[float]]:
    """The mean accuracy of every federation: with the agent, rules, and an agent that has learned nothing."""
    draws, untrained = random.Random(seed), build(1)
    found: dict[str, list[float]] = {}
    with torch.no_grad():
        for _ in range(federations):
            decisions = record(data, draws)
            rows: dict[str, list[float]] = {}
            for one in decisions:
                tried = {"agent": shares(one, one.prior + added(actor, one)), "prior": shares(one, one.prior)}
                tried["from scratch"] = shares(one, one.prior + added(untrained, one))
                for own in (0.6, 0.8, 1.0):
                    rest = F.normalize(shares(one, one.prior)[:-1], p=1, dim=0) * (1 - own)
                    tried[f"trained {own:g}"] = torch.cat([rest, torch.tensor([own])])
                for name, weights in tried.items():
                    rows.setdefault(name, []).append(float(score(one, weights)[1]))
            for name, values in rows.items():
                found.setdefault(name, []).append(sum(values) / len(values))
    return found
