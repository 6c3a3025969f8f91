from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import ClassVar, Literal

import torch
from pydantic import Field
from torch import Tensor

from fedtailor.agents import Categorical, VDNSettings
from fedtailor.messages.payload import Payload
from fedtailor.methods.base import AgentMethod, Card
from fedtailor.models import Network
from fedtailor.parties import (
    NO_POLICY,
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
    State,
    Steps,
)
from fedtailor.weights import Weights, select

STOP, EPOCHS = "termination", "epochs"  # the names of the decisions
OPTIONS = {STOP: Categorical(2), EPOCHS: Categorical(3, usual=1)}  # continue or stop; fewer epochs, the same, more
FEATURES = [Feature(name) for name in ("log loss", "log time", "log transfer", "log samples")]


@dataclass
class Probed(State):
    """A client's probing epoch: ``client.state["probed"]``; empty once its training has continued."""

    round: int | None = None
    received: Weights = field(default_factory=dict)
    trained: Weights = field(default_factory=dict)


class FedDdrlAgents(AgentTables):
    """The agents of FedDdrl."""

    rules: ClassVar = ()

    termination: VDNSettings = VDNSettings(warmup=10)
    epochs: VDNSettings = VDNSettings(warmup=10)


class FedDdrl(AgentMethod):
    """FedAvg in which agents stop clients after one epoch or choose their number of epochs (Wong et al., 2023).

    Exchanged: the model down, the loss and time of a probing epoch up; then, for clients that continue, a number of
    epochs down, the model up; the new global model down to all clients, its accuracy up.
    Client k: one epoch; if it continues, E_k - 1 more.
    Server: state s_k = loss and time of the probing, time of a transfer, n_k; two agents with Q(s, a) = sum_k q(s_k,
    a_k) choose for every client whether it is terminated and whether E_k is smaller than, equal to or larger than E;
    the new global model is the mean over the clients that continued, by data size; the reward of both agents is w1
    times the gain in accuracy, minus w2 times the time of the round, minus w3 times the mean time that the clients that
    continued wait for the last of them.
    """

    name: ClassVar = "fedddrl"
    agents_use: ClassVar = frozenset({"change"})
    rewards_use: ClassVar = frozenset({"w1", "w2", "w3", "third"})
    best_rules: ClassVar = {STOP: "uniform", EPOCHS: "uniform"}
    needs_validation: ClassVar = True
    uses_accuracy: ClassVar = True
    uses_clock: ClassVar = True
    counts_epochs: ClassVar = True
    layout: ClassVar = 2

    w1: float = Field(10.0, ge=0, description="weight of the gain in accuracy (0 to 1)")
    w2: float = Field(0.2, ge=0, description="weight of the round's time, relative to FedAvg's")
    w3: float = Field(0.1, ge=0, description="weight of the third term of the reward")
    third: Literal["idle", "uploads"] = Field(
        "idle",
        description="the third term: the mean time that clients wait for the last upload, relative to FedAvg's round, "
        "or the share of clients that upload a model",
    )
    change: float = Field(0.5, ge=0, le=1, description="share of E by which the number of epochs may differ from E")
    agents: FedDdrlAgents = FedDdrlAgents()

    # On the server

    def decisions(self, server: Server) -> Sequence[Decision]:
        return [
            Decision(
                name,
                FEATURES,
                {name: options},
                self.agents.of(name),
                slots=server.largest_cohort,
                whole_federation=True,
                warming="neutral",
            )
            for name, options in OPTIONS.items()
        ]

    def prepare(self, server: Server, cohort: Sequence[int]) -> Steps:
        each = max(1, server.training.epochs)
        if server.greedy:
            return dict.fromkeys(cohort, Payload({"model": server.weights}, config={"epochs": each}))
        probed: Replies = yield Ask("probe", dict.fromkeys(cohort, Payload({"model": server.weights})))
        if not probed:
            return {}
        seconds = {k: probed.computed(k, reply.number("samples")) for k, reply in probed.items()}
        states = _states(probed, seconds)
        before = {k: _counts(reply) for k, reply in probed.items()}
        stopping: Decided = yield Decide(STOP, states, context={"seconds": seconds, "before": before})
        pacing: Decided = yield Decide(EPOCHS, states)
        stopped = {k for k, stop in stopping[STOP].items() if stop}
        if len(stopped) == len(probed):
            stopped.remove(min(probed, key=lambda k: (seconds[k], k)))
        steps = {k: step - 1 for k, step in pacing[EPOCHS].items() if k not in stopped}
        epochs = {k: max(1, round(each * (1 + step * self.change))) for k, step in steps.items()}
        return {k: Payload(config={"epochs": number}) for k, number in epochs.items()}

    def finish(self, server: Server, replies: Replies) -> Steps:
        super().finish(server, replies)
        stopping, pacing = server.decisions[STOP, None], server.decisions[EPOCHS, None]
        seconds, before = stopping.context["seconds"], stopping.context["before"]
        # All probed clients judge: if only those that continued did, the reward would favour a single client.
        judged: Replies = yield Ask("judge", dict.fromkeys(before, Payload({"model": server.weights})))
        gain = _accuracy([_counts(reply) for reply in judged.values()]) - _accuracy([before[k] for k in judged])
        # the time of a round of FedAvg: E epochs of its slowest client
        usual = max(1, server.training.epochs) * max(seconds.values())
        ends = [
            seconds[k] + replies.computed(k, (reply.number("epochs") - 1) * reply.number("samples"))
            for k, reply in replies.items()
        ]
        last, usual = max(ends), max(usual, 1e-12)
        idle = sum(last - end for end in ends) / len(ends) / usual
        third = idle if self.third == "idle" else len(replies) / len(seconds)
        reward = self.w1 * gain - self.w2 * last / usual - self.w3 * third
        yield Reward(stopping, reward)
        yield Reward(pacing, reward)

    # On a client

    def start_client(self, client: Client) -> None:
        client.state["probed"] = Probed()

    def probe(self, client: Client, payload: Payload) -> Payload:
        """Train one epoch, kept for `fit`, and score the received model."""
        client.load(payload["model"])
        score = client.evaluate("val")
        trace = client.train(epochs=1)
        trained = select(client.weights(), client.shared)
        client.state["probed"] = Probed(client.round, payload["model"], trained)
        numbers = {"correct": score.correct, "validation": score.samples}
        return Payload(numbers={"loss": trace.loss, "samples": client.samples, **numbers})

    def receive(self, client: Client, payload: Payload) -> None:
        probed: Probed = client.state["probed"]
        if "model" in payload.groups or probed.round != client.round:
            client.state["probed"] = Probed()  # the client was stopped in the round of its probing
            client.load(payload.groups.get("model", {}))
        else:
            client.load(probed.received)

    def fit(self, client: Client) -> None:
        epochs: int = client.payload.config.get("epochs", max(1, client.training.epochs))
        probed: Probed = client.state["probed"]
        client.load(probed.trained)
        client.train(epochs=epochs if probed.round is None else epochs - 1)
        client.state["probed"] = Probed()

    def upload(self, client: Client) -> Payload:
        epochs = client.payload.config.get("epochs", max(1, client.training.epochs))
        numbers = {"samples": client.samples, "epochs": epochs}
        return Payload({"model": select(client.weights(), client.shared)}, numbers)

    def judge(self, client: Client, payload: Payload) -> Payload:
        """Score the new global model."""
        client.load(payload["model"])
        score = client.evaluate("val")
        return Payload(numbers={"correct": score.correct, "validation": score.samples})

    def reply_schema(self, network: Network, shared: frozenset[str]) -> Schema:
        return super().reply_schema(network, shared).extended(numbers={"epochs": Range(1, 10_000, whole=True)})

    def ask_schema(self, name: str, network: Network, shared: frozenset[str]) -> Schema:
        judged = Schema(numbers={"correct": Range(0, "val", whole=True), "validation": Range("val", "val", whole=True)})
        trained = {"loss": Range(0), "samples": Range("train", "train", whole=True)}
        return judged.extended(numbers=trained) if name == "probe" else judged

    # Settings

    def rehearsal(self) -> "FedDdrl":
        """The method during pre-training: as always, and without FedAvg's rounds at the start."""
        tables = self.agents.changed(learn="always", warmup=0)
        return self.model_copy(update={"agents": tables, "policy": self.own_policy or NO_POLICY})


def _states(probed: Replies, seconds: Mapping[int, float]) -> dict[int, Tensor]:
    """The state of every client, of order one in every federation: log(1 + loss), then log(x / mean x)."""
    transfers = {k: probed.times[k].transfer if k in probed.times else 0.0 for k in probed}
    columns = [
        torch.tensor([probed[k].number("loss") for k in probed]).clamp(min=0).log1p(),
        _relative([seconds[k] for k in probed]),
        _relative([transfers[k] for k in probed]),
        _relative([probed[k].number("samples") for k in probed]),
    ]
    return dict(zip(probed, torch.stack(columns, 1).float(), strict=True))


def _counts(reply: Payload) -> list[float]:
    """The number of correctly classified validation samples, and of all validation samples."""
    return [reply.number("correct"), reply.number("validation")]


def _relative(values: Sequence[float]) -> Tensor:
    known = torch.tensor(values, dtype=torch.double).clamp(min=1e-12)
    return (known / known.mean()).log()


def _accuracy(counts: Sequence[Sequence[float]]) -> float:
    """The pooled accuracy; 0 without samples."""
    return sum(row[0] for row in counts) / max(sum(row[1] for row in counts), 1)


FedDdrl.card = Card(
    paper="Wong et al., FedDdrl: Federated Double Deep Reinforcement Learning for Heterogeneous IoT with Adaptive "
    "Early Client Termination and Local Epoch Adjustment, Sensors",
    year=2023,
    exchanged="the model down, two numbers up; a number of epochs down and, unless terminated, the model up; the "
    "new model down, its accuracy up",
    client_state="if it was terminated: the model it received, and its own after the first epoch",
    server_state="the global model; two agents: network, target network, moments, replay",
    cost="as FedAvg with the chosen numbers of epochs, plus two forward passes over the validation data",
    limits=("warmup of all rounds: FedAvg, whose first epoch is a separate task",),
    deviations=(
        "Balanced-MixUp, with which the paper changes the training data, is left out: it suits any method",
        "accuracy is that of validation data, pooled over all clients that probed, before and after: the server "
        "has no test data",
        "the gain is that of the accuracy itself, and the time is relative to FedAvg's round: the slowest client's "
        "E epochs",
        "the third term is the waiting time of the clients that continued: a stopped client does not wait",
        "without a policy, the first rounds of a run are FedAvg's; the paper trains the agents before",
        "if the agents terminate all clients, the fastest continues",
        "the final pass trains E epochs",
    ),
    only_sums=False,
)
