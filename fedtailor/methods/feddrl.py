from collections.abc import Sequence
from typing import ClassVar

import torch
from pydantic import Field
from torch import Tensor

from fedtailor.agents import DDPGSettings, MeanDeviation
from fedtailor.messages.payload import Payload
from fedtailor.methods.base import AgentMethod, Card
from fedtailor.models import Network
from fedtailor.parties import (
    AgentTables,
    Ask,
    Client,
    Decide,
    Decided,
    Decision,
    Feature,
    Range,
    Replies,
    Reward,
    Schema,
    Server,
    Steps,
)
from fedtailor.weights import select

IMPACT = "impact"  # the name of the decision


class FedDRLAgents(AgentTables):
    """The agent of FedDRL."""

    rules: ClassVar = ()

    impact: DDPGSettings = DDPGSettings(learn="always", actor_lr=1e-4, noise=0.3, discount=0.99, polyak=0.98, updates=5)


class FedDRL(AgentMethod):
    """FedAvg in which an agent chooses the aggregation weights, the impact factors (Nguyen et al., 2022).

    Exchanged: the whole model, down and up, with the client's loss before and after training and its number of samples;
    then the new global model down, its loss on validation data up.
    Client: E epochs of SGD from the received model.
    Server: state s = (loss before, loss after, n) of every client k of the cohort; action a = (mu_k, sigma_k) with
    sigma_k <= beta mu_k; impact factors alpha = softmax(z), z_k ~ N(mu_k, sigma_k^2); w = sum_k alpha_k w_k; reward
    r = -mean_k l_k - (max_k l_k - min_k l_k) with the losses l_k of the new w. A DDPG agent learns in every round.
    """

    name: ClassVar = "feddrl"
    needs_validation: ClassVar = True

    beta: float = Field(
        0.5, ge=0, le=1, description="largest deviation of an impact factor's logit, relative to its mean"
    )
    span: float = Field(
        2.0,
        gt=0,
        le=20,
        description="largest mean; without deviations two impact factors differ by a factor of e^span at most",
    )
    agents: FedDRLAgents = FedDRLAgents()

    def inert(self) -> str | None:
        return (
            "updates = 0: the agent never learns, impact factors stay nearly equal"
            if not self.agents.impact.can_learn
            else None
        )

    def passes(self, epochs: int) -> float:
        return epochs + 2 / 3  # two forward passes for the losses before and after; validation data are few

    # On the server

    def decisions(self, server: Server) -> Sequence[Decision]:
        features = [Feature("log loss before"), Feature("log loss after"), Feature("log samples")]
        return [
            Decision(
                IMPACT,
                features,
                {"factors": MeanDeviation(self.span, self.beta)},
                self.agents.impact,
                slots=server.largest_cohort,
                whole_federation=True,
                endless=True,
            )
        ]

    def finish(self, server: Server, replies: Replies) -> Steps:
        decision: Decided = yield Decide(IMPACT, _features(replies))
        draws = None if server.greedy else server.stream("impact")
        factors = dict(zip(replies, _factors(decision.numbers("factors"), draws), strict=True))
        server.weights = server.average(replies, weights=factors)
        # Asking with the next download would be free. But the same clients must give state and reward, and a decision
        # is stored with its reward.
        judged: Replies = yield Ask("judge", dict.fromkeys(replies, Payload({"model": server.weights})))
        losses = [reply.number("loss") for reply in judged.values() if reply.number("samples")]
        if losses:
            yield Reward(decision, -sum(losses) / len(losses) - (max(losses) - min(losses)))

    # On a client

    def upload(self, client: Client) -> Payload:
        trained = client.weights()
        after = client.evaluate("train")
        client.load(client.received)
        before = client.evaluate("train")
        client.load(trained)
        losses = {"before": before.loss / before.samples, "after": after.loss / after.samples}
        return Payload({"model": select(trained, client.shared)}, {"samples": client.samples, **losses})

    def judge(self, client: Client, payload: Payload) -> Payload:
        """The loss of the new global model on the client's validation data."""
        client.load(payload["model"])
        score = client.evaluate("val")
        return Payload(numbers={"loss": score.loss / max(score.samples, 1), "samples": score.samples})

    def reply_schema(self, network: Network, shared: frozenset[str]) -> Schema:
        return super().reply_schema(network, shared).extended(numbers={"before": Range(0), "after": Range(0)})

    def ask_schema(self, name: str, network: Network, shared: frozenset[str]) -> Schema:
        return Schema(numbers={"loss": Range(0), "samples": Range("val", "val", whole=True)})


def _features(replies: Replies) -> dict[int, list[float]]:
    """log(1 + loss) before and after training, and log(n / mean n), of every client."""
    numbers = [[reply.number(name) for name in ("before", "after", "samples")] for reply in replies.values()]
    known = torch.tensor(numbers, dtype=torch.double)
    samples = known[:, 2].clamp(min=1)
    # Deviation: the paper uses the numbers as they are; their logarithms are of one order in every federation.
    scaled = torch.cat([known[:, :2].clamp(min=0).log1p(), (samples / samples.mean()).log()[:, None]], 1)
    return dict(zip(replies, scaled.tolist(), strict=True))


def _factors(action: Tensor, stream: torch.Generator | None) -> list[float]:
    """Impact factors from the (mean, deviation) of each client; with a stream, their logits are drawn."""
    logits, deviations = action.double().unbind(-1)
    if stream is not None:
        logits = logits + deviations * torch.randn(len(logits), generator=stream, dtype=torch.double)
    factors: list[float] = logits.softmax(0).tolist()
    return factors


FedDRL.card = Card(
    paper="Nguyen et al., FedDRL: Deep Reinforcement Learning-based Adaptive Aggregation for Non-IID Data in "
    "Federated Learning, ICPP",
    year=2022,
    exchanged="the model down, the model, its losses before and after training up; the new model down, its loss up",
    server_state="the global model; the agent: actor, critic, their target networks and moments, its replay",
    cost="as FedAvg, plus two forward passes over the training data and one over the validation data; "
    "an agent's step on the server",
    limits=(
        "updates = 0: nearly equal impact factors, except for the draw",
        "impact factors in proportion to the data: FedAvg",
    ),
    deviations=(
        "the agent learns in the run itself; the paper trains it before, in two stages: several workers collect "
        "experience online in separate federations, then one agent learns from all of it offline",
        "replay is drawn uniformly; the paper prefers transitions with a large temporal-difference error",
        "the reward is measured on validation data of the clients that answered, right after aggregation",
        "losses enter the state as log(1 + loss), sample counts as log(n / mean n): all of the same order",
        "the state has a mask, so that clients may drop out; the paper's cohort always has K clients",
        "exploration noise is added to the actor's logits, so that actions stay within their bounds",
        "span, noise, batch and updates are ours, since an agent without pre-training must learn within the run; "
        "the other defaults are usual for DDPG and not checked against the paper's table",
    ),
    only_sums=False,
)
