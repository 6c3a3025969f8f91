"""The search for the best allocation, which can replace agents or teach them by imitation."""

from collections.abc import Sequence

import torch
from torch import Tensor

from fedtailor.agents import PPO
from fedtailor.methods.allocation import best_epochs, best_sizes, even_shares
from fedtailor.parties import Question, Server

IMITATED = 32  # allocations per step
FIRST_LR = 0.01  # learning rate of the first step; it falls to 0, since shares must be precise
WIDEST = 1000.0  # the largest ratio of two clients' times


def search_sizes(_server: Server, question: Question) -> Tensor:
    """Choose the model size of every client by its time and the context's ``ratios`` of the sizes' work."""
    times: list[float] = question.observation[question.mask, 0].tolist()
    return question.placed(best_sizes(times, question.context["ratios"]))


def search_shares(_server: Server, question: Question) -> Tensor:
    """Choose every client's share of the epochs after its first, by its time and the context's total ``epochs``."""
    times: list[float] = question.observation[question.mask, 0].tolist()
    more = question.placed([number - 1 for number in best_epochs(times, question.context["epochs"])])
    return more / max(1.0, float(more.sum()))


def imitate_search(server: Server, size: str, intensity: str, ratios: Sequence[float], steps: int) -> None:
    """Train the agents of two decisions to imitate the search, on clients with very different times.

    Parameters
    ----------
    server
        The server with the agents.
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
    """Do one step of an agent that sees the times (allocations, slots); nothing if there is no such decision."""
    agent = server.decisions.agents.get(name)
    if isinstance(agent, PPO):
        seen = server.decisions.declared[name].seen(times[..., None])
        agent.imitate(seen, torch.ones_like(times, dtype=torch.bool), actions, lr)
