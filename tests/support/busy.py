"""A method that uses everything the contract offers, for tests."""

from collections.abc import Sequence
from typing import Any

import torch
from pydantic import Field
from torch import Tensor

from fedtailor.methods import Ask, Client, Decide, Method, Payload, Replies, Reward, Server, Steps


class Agent:
    """Remembers every observation; its action is their running mean."""

    def __init__(self) -> None:
        self.total = torch.zeros(1)
        self.count = 0

    def act(self, observation: Tensor) -> Tensor:
        self.total = self.total + observation.mean()
        self.count += 1
        return torch.sigmoid(self.total / self.count)

    def state_dict(self) -> dict[str, Any]:
        return {"total": self.total, "count": self.count}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self.total, self.count = state["total"], state["count"]


class Busy(Method):
    """Shares the body, asks its clients first, lets an agent choose an amount, keeps a row per client."""

    shares = "body"
    needs_validation = True
    strength: float = Field(0.5, ge=0)

    def start_server(self, server: Server) -> None:
        server.state["agent"] = Agent()

    def start_client(self, client: Client) -> None:
        client.state["optimiser"] = Agent()
        client.state["visits"] = 0

    def prepare(self, server: Server, cohort: Sequence[int]) -> Steps:
        question = Payload(config={"what": "loss"})
        replies: Replies = yield Ask("assess", dict.fromkeys(cohort, question))
        observation = torch.tensor([reply.number("loss") for reply in replies.values()] or [0.0])
        amount = yield Decide("amount", observation)
        for client in replies:
            row = server.memory[client]
            row["asked"] = row.get("asked", 0) + 1
        payload = Payload({"model": server.weights}, {"amount": float(amount)})
        return dict.fromkeys(replies, payload)

    def decide(self, server: Server, question: Decide) -> Tensor:
        agent: Agent = server.state["agent"]
        return agent.act(question.observation)

    def finish(self, server: Server, replies: Replies) -> Steps:
        super().finish(server, replies)
        after = yield Ask("assess", dict.fromkeys(replies, Payload(config={"what": "loss"})))
        yield Reward("amount", -sum(reply.number("loss") for reply in after.values()))

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
        client.state["optimiser"].act(torch.tensor([self._noise(client)]))

    def personal(self, client: Client) -> None:
        client.state["visits"] = -1000  # a copy: this must not survive
        client.train("head", epochs=1)

    def _noise(self, client: Client) -> float:
        return float(torch.rand((), generator=client.stream("noise")))
