"""A method that uses everything the contract offers, for tests."""

from collections.abc import Sequence
from copy import deepcopy
from typing import Any

import torch
from pydantic import Field
from torch import Tensor

from fedtailor.agents import Agent, AgentSettings, Head
from fedtailor.methods import (
    Ask,
    Client,
    Decide,
    Decided,
    Decision,
    Feature,
    Method,
    Payload,
    Replies,
    Reward,
    Server,
    Steps,
)


class Counter:
    """Remembers the mean of what it saw."""

    def __init__(self) -> None:
        self.total = torch.zeros(1)
        self.count = 0

    def see(self, number: Tensor) -> Tensor:
        self.total = self.total + number.mean()
        self.count += 1
        return torch.sigmoid(self.total / self.count)

    def state_dict(self) -> dict[str, Any]:
        return {"total": self.total, "count": self.count}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self.total, self.count = state["total"], state["count"]


class Amount:
    """One number for all."""

    per_slot = False

    def head(self) -> Head:
        raise NotImplementedError

    def neutral(self, mask: Tensor) -> Tensor:
        return torch.tensor([0.5])

    def random(self, mask: Tensor, stream: torch.Generator) -> Tensor:
        return torch.rand(1, generator=stream)

    def describe(self) -> str:
        return "an amount"


class Averaging(Agent):
    """An agent of one's own: its action is the running mean of all that it saw."""

    def __init__(self) -> None:
        self.seen = Counter()

    def act(self, state: Tensor, mask: Tensor | None = None, stream: torch.Generator | None = None) -> Tensor:
        return deepcopy(self.seen).see(state[mask])

    def observe(
        self, state: Tensor, action: Tensor, reward: float, mask: Tensor | None = None, *, done: bool = False
    ) -> None:
        self.seen.see(state[mask])

    def state_dict(self) -> dict[str, Any]:
        return self.seen.state_dict()

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self.seen.load_state_dict(state)


class AveragingSettings(AgentSettings):
    def build(self, slots: int, features: int, actions: Any, stream: torch.Generator, **options: Any) -> Averaging:
        return Averaging()


class Busy(Method):
    """Shares the body, asks its clients first, lets an agent choose an amount, keeps a row per client."""

    shares = "body"
    needs_validation = True
    strength: float = Field(0.5, ge=0)

    def decisions(self, server: Server) -> Sequence[Decision]:
        loss = Feature("loss")
        return [Decision("amount", [loss], {"amount": Amount()}, AveragingSettings(), server.largest_cohort)]

    def start_client(self, client: Client) -> None:
        client.state["optimiser"] = Counter()
        client.state["visits"] = 0

    def prepare(self, server: Server, cohort: Sequence[int]) -> Steps:
        question = Payload(config={"what": "loss"})
        replies: Replies = yield Ask("assess", dict.fromkeys(cohort, question))
        rows = {k: [reply.number("loss")] for k, reply in list(replies.items())[: server.largest_cohort]}
        decided: Decided = yield Decide("amount", rows)
        for client in replies:
            row = server.memory[client]
            row["asked"] = row.get("asked", 0) + 1
        payload = Payload({"model": server.weights}, {"amount": decided["amount"]})
        return dict.fromkeys(replies, payload)

    def finish(self, server: Server, replies: Replies) -> Steps:
        super().finish(server, replies)
        after = yield Ask("assess", dict.fromkeys(replies, Payload(config={"what": "loss"})))
        yield Reward(server.decisions["amount", None], -sum(reply.number("loss") for reply in after.values()))

    def assess(self, client: Client, payload: Payload) -> Payload:
        client.state["visits"] += 1
        score = client.evaluate("val")
        return Payload(numbers={"loss": score.loss / max(score.samples, 1), "noise": self._noise(client)})

    def receive(self, client: Client, payload: Payload) -> None:
        super().receive(client, payload)
        client.state["amount"] = payload.number("amount")

    def fit(self, client: Client) -> None:
        client.train("head")
        client.train("body", toward=client.received, pull=self.strength * client.state["amount"])
        client.state["optimiser"].see(torch.tensor([self._noise(client)]))

    def personal(self, client: Client) -> None:
        client.state["visits"] = -1000  # a copy: this must not survive
        client.train("head", epochs=1)

    def _noise(self, client: Client) -> float:
        return float(torch.rand((), generator=client.stream("noise")))
