"""The search for the best allocation, in place of agents that allocate work and as what they imitate."""

from collections.abc import Sequence

import torch
from torch import Tensor

from fedtailor.agents import PPO
from fedtailor.methods.allocation import best_epochs, best_sizes, even_shares
from fedtailor.parties import Question, Server

IMITATED = 32  # allocations in a step
FIRST_LR = 0.01  # of the first step; it falls to 0, for shares need to be precise
WIDEST = 1000.0  # the largest ratio of two clients' times


def search_sizes(_server: Server, question: Question) -> Tensor:
    """The model size of every client, by its time and the ``ratios`` of the sizes' work in the context."""
    times: list[float] = question.observation[question.mask, 0].tolist()
    return question.placed(best_sizes(times, question.context["ratios"]))


def search_shares(_server: Server, question: Question) -> Tensor:
    """Every client's share of the epochs beyond its first, by its time and the ``epochs`` in all in the context."""
    times: list[float] = question.observation[question.mask, 0].tolist()
    more = question.placed([number - 1 for number in best_epochs(times, question.context["epochs"])])
    return more / max(1.0, float(more.sum()))


def imitate_search(server: Server, size: str, intensity: str, ratios: Sequence[float], steps: int) -> None:
    """Let the agents of two decisions imitate the search, for clients with times as different as may be.

    Parameters
    ----------
    server
        The server, whose agents learn.
    size, intensity
        The names of the decisions: a model size for every client, and its share of the epochs.
    ratios
        The work of every model size, relative to that of the assessment.
    steps
        The number of steps.
    """
    slots, draws = server.largest_cohort, server.stream("warm start")
    total = max(1, server.training.epochs) * slots
    for step in range(steps):
        lr = FIRST_LR * (1 - step / steps)
        spread = WIDEST ** torch.rand(IMITATED, 1, generator=draws)
        times = (spread ** torch.rand(IMITATED, slots, generator=draws)).sort(1).values
        times = times / times[:, :1]
        sizes = torch.tensor([best_sizes(row, ratios) for row in times.tolist()])
        _imitate(server, size, times, sizes.float(), lr)
        loads = times * torch.tensor(ratios)[sizes]
        shares = torch.tensor([even_shares(row, total) for row in loads.tolist()])
        _imitate(server, intensity, loads, shares, lr)


def _imitate(server: Server, name: str, times: Tensor, actions: Tensor, lr: float) -> None:
    """One step of an agent that sees the times (allocations, slots); nothing where the decision is not made."""
    agent = server.decisions.agents.get(name)
    if isinstance(agent, PPO):
        seen = server.decisions.declared[name].seen(times[..., None])
        agent.imitate(seen, torch.ones_like(times, dtype=torch.bool), actions, lr)
