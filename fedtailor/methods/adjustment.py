"""The common base of BWA, Adaptive-B, Adaptive-AW and BO-BWA: rounds with chosen batch size and weights."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import ClassVar, Literal

from pydantic import Field, model_validator

from fedtailor.agents import Integer, Simplex
from fedtailor.agents.actions import Kind
from fedtailor.messages.payload import Payload
from fedtailor.messages.trees import Stored
from fedtailor.methods.base import AgentMethod, Payloads
from fedtailor.models import Network
from fedtailor.parties import (
    AgentTables,
    Ask,
    Client,
    Decide,
    Decided,
    Decider,
    Decision,
    Feature,
    Range,
    Replies,
    Reward,
    Schema,
    Server,
    State,
    Steps,
    Tensors,
)
from fedtailor.weights import delta, learned, norm, select

ADJUSTMENT = "adjustment"  # the name of the decision
FEATURES = (
    Feature("loss of the client", scale="log1p"),
    Feature("accuracy of the client"),
    Feature("divergence of the client", scale="log1p"),
    Feature("loss of the server", scale="log1p"),
    Feature("accuracy of the server"),
    Feature("divergence of the server", scale="log1p"),
)
BOUND = 2.0  # bound of an environment's logits: two weights differ by a factor of e^4 at most


@dataclass
class Judged(State):
    """A client's scores of the global model on its validation data."""

    summed: float  # loss
    correct: float
    samples: float

    @classmethod
    def of(cls, reply: Payload) -> "Judged":
        return cls(*(reply.number(name) for name in ("summed", "correct", "samples")))


@dataclass
class Scores(State):
    """What the server knows about a client: ``server.memory[client]["scores"]``."""

    round: int  # whose global model was judged
    judged: Judged
    loss: float  # of the model that the client trained, like accuracy and divergence
    accuracy: float
    divergence: float


@dataclass
class Progress(State):
    """What the server knows about this episode."""

    scores: list[float] | None = None  # loss, accuracy and divergence of the global model
    best: float = 0.0  # its highest accuracy
    clipped: dict[int, int] = field(default_factory=dict)  # rounds in which a client had less data than a batch


class Adjusted(AgentMethod):
    """FedAvg with a new batch size and new aggregation weights in every round; subclasses choose what decides.

    Numbers in comments are line numbers of BWA's Algorithm 1.
    """

    needs_validation: ClassVar = True
    uses_accuracy: ClassVar = True
    layout: ClassVar = 2

    controls: Literal["both", "batch", "weights"] = Field(
        "both", description="what the agent decides; the other is FedAvg's: weights by data size, the run's batch size"
    )
    smallest: int = Field(1, ge=1, description="smallest batch size")
    largest: int = Field(64, ge=1, le=1_000_000, description="largest batch size")
    threshold: float = Field(
        0.0, ge=0, le=1, description="a client with a smaller weight uploads no model; 0: all clients upload"
    )
    spread: float = Field(
        0.5,
        gt=0,
        le=10,
        description="how far the agent moves the weights: initial deviation and unit of their logits; at 0.1 they stay "
        "nearly even for dozens of episodes, at 1 random weights harm the model while the agent explores",
    )
    alpha: float = Field(64.0, gt=1, description="base of the objective: the sum of alpha^accuracy over rounds (eq. 7)")
    agents: AgentTables

    @model_validator(mode="after")
    def _ordered(self) -> "Adjusted":
        if self.smallest > self.largest:
            raise ValueError("the smallest batch size is larger than the largest")
        return self

    def idle_settings(self) -> frozenset[str]:
        other = {"batch": {"spread"}, "weights": {"smallest", "largest"}}  # settings of what is not decided
        return super().idle_settings() | other.get(self.controls, set())

    # On the server

    def decisions(self, server: Server) -> Sequence[Decision]:
        usual = server.training.batch_size
        kinds: dict[str, Kind] = {
            "batch": Integer(self.smallest, self.largest, usual),
            "weights": Simplex(deviation=self.spread, unit=self.spread, bound=BOUND),
        }
        return [
            Decision(
                ADJUSTMENT,
                FEATURES,
                {name: kind for name, kind in kinds.items() if self.controls in ("both", name)},
                self.agents.of(ADJUSTMENT),
                slots=server.largest_cohort,
                deciders=self._deciders(),
                whole_federation=True,
            )
        ]

    def start_server(self, server: Server) -> None:
        server.state["progress"] = Progress()

    def prepare(self, server: Server, cohort: Sequence[int]) -> Steps:
        yield from self._ask_for_scores(server, cohort)  # 5
        present = [k for k in cohort if _is_fresh(server, k)]
        if not present:
            return {}
        # the final pass prepares more clients than a round can have
        s_t = {k: _features(server, k) for k in present[: server.largest_cohort]}
        decision = yield Decide(ADJUSTMENT, s_t)  # 7
        batch, weights = self._adjusted(server, decision)
        config = {} if batch is None else {"batch": batch}
        with_model = Payload({"model": server.weights}, config=config)  # 9
        scores_only = Payload({"model": server.weights}, config={**config, "upload": False})
        left_out = self._left_out(weights)
        return {k: scores_only if k in left_out else with_model for k in present}

    def welcome(self, server: Server, client: int) -> Payloads:
        """A new client has no part in any decision: it receives the global model."""
        return {client: Payload({"model": server.weights})}

    def finish(self, server: Server, replies: Replies) -> Steps:
        """Aggregate, score the new model and reward the decision. Returns the reward, None without scores."""
        decision, before = server.decisions[ADJUSTMENT, None], server.weights
        batch, weights = self._adjusted(server, decision)
        progress: Progress = server.state["progress"]
        progress.clipped |= {k: progress.clipped.get(k, 0) + 1 for k in replies if server.sizes[k] < (batch or 0)}
        models = {k: reply for k, reply in replies.items() if "model" in reply.groups}
        if sum(weights[k] for k in models) > 0:
            server.weights = server.average(models, weights=weights)  # 11, eq. 4; the weights are divided by their sum
        # Asking with the next download would be free. But a decision is stored with its reward, and the next state
        # needs the new model's scores before the server sends anything.
        judged: Replies = yield Ask("judge", dict.fromkeys(replies, Payload({"model": server.weights})))
        _, accuracy_before, _ = _pooled(_scores(server, k).judged for k in judged)
        for k, reply in judged.items():  # 12
            trained = [replies[k].number(name) for name in ("loss", "accuracy", "divergence")]
            server.memory[k]["scores"] = Scores(server.round, Judged.of(reply), *trained)
        loss, accuracy, samples = _pooled(_scores(server, k).judged for k in judged)
        if not samples:
            return None
        moved = norm(delta(learned(server.weights, server.network.statistics), before))  # eq. 5
        progress.scores = [loss, accuracy, moved]
        highest = max(progress.best, accuracy_before)
        progress.best = max(highest, accuracy)
        reward = self._reward(accuracy_before, accuracy, highest, server.round, samples)  # 13
        yield Reward(decision, reward, objective=self._objective(accuracy))  # 14
        return reward

    def _ask_for_scores(self, server: Server, cohort: Sequence[int]) -> Steps:
        """Ask clients without scores of the round before (round 1, newcomers, drop-outs) to score the present model.

        This gives the first state, with divergence 0. A client that does not answer has no slot and gets no model.
        """
        asked = [k for k in cohort if not _is_fresh(server, k)]
        if not asked:
            return
        judged: Replies = yield Ask("judge", dict.fromkeys(asked, Payload({"model": server.weights})))
        for k, reply in judged.items():
            one = Judged.of(reply)
            loss, accuracy, _ = _pooled([one])
            server.memory[k]["scores"] = Scores(server.round - 1, one, loss, accuracy, divergence=0.0)
        progress: Progress = server.state["progress"]
        if progress.scores is None and judged:
            loss, accuracy, _ = _pooled(_scores(server, k).judged for k in judged)
            progress.scores = [loss, accuracy, 0.0]

    def _adjusted(self, server: Server, decision: Decided) -> tuple[int | None, dict[int, float]]:
        """The batch size b^t, None for the run's own, and the weights lambda_k^t, which need not sum to one."""
        batch = None if self.controls == "weights" else max(1, round(decision["batch"]))
        by_size = {int(k): float(server.sizes[int(k)]) for k in decision.keys}
        return batch, by_size if self.controls == "batch" else decision["weights"]

    def _left_out(self, weights: Mapping[int, float]) -> set[int]:
        """The clients below the threshold, but never all: the client with the largest weight uploads."""
        least = self.threshold * sum(weights.values())
        return {k for k, weight in weights.items() if weight < least} - {max(weights, key=weights.__getitem__)}

    def _objective(self, accuracy: float) -> float:
        """A term of the objective P0 (eq. 7), divided by its largest value alpha."""
        return float(self.alpha ** (accuracy - 1))

    def _reward(self, before: float, after: float, highest: float, round: int, samples: int) -> float:
        return self._objective(after)

    def _deciders(self) -> Mapping[str, Decider | None]:
        """The deciders that can replace the agent."""
        return {}

    # On a client

    def fit(self, client: Client) -> None:
        batch = client.payload.config.get("batch")
        client.train(batch_size=None if batch is None else max(1, min(batch, client.samples)))  # 10, eq. 2 and 3

    def upload(self, client: Client) -> Payload:
        """The scores of the trained model and, unless it is below the threshold, the model."""
        trained, score = client.weights(), client.evaluate("val")
        moved = norm(delta(learned(trained, client.network.statistics), client.received))  # eq. 5
        model = {"model": select(trained, client.shared)} if client.payload.config.get("upload", True) else {}
        return Payload(model, {"loss": score.mean_loss, "accuracy": score.accuracy, "divergence": moved})

    def judge(self, client: Client, payload: Payload) -> Payload:
        """Score the global model on the client's validation data: sums, which the server pools."""
        client.load(payload["model"])
        score = client.evaluate("val")
        return Payload(numbers={"summed": score.loss, "correct": score.correct, "samples": score.samples})

    def reply_schema(self, network: Network, shared: frozenset[str]) -> Schema:
        scores = {"loss": Range(0), "accuracy": Range(0, 1), "divergence": Range(0)}
        return Schema({"model": Tensors(shared, optional=self.threshold > 0)}, scores)

    def ask_schema(self, name: str, network: Network, shared: frozenset[str]) -> Schema:
        counts = {"correct": Range(0, "val", whole=True), "samples": Range("val", "val", whole=True)}
        return Schema(numbers={"summed": Range(0), **counts})


def _is_fresh(server: Server, client: int) -> bool:
    """Whether a client's scores come from the round before this one."""
    return "scores" in server.memory.peek(client) and _scores(server, client).round == server.round - 1


def _scores(server: Server, client: int) -> Scores:
    kept = server.memory.peek(client)["scores"]  # unpacked without its type if it was stored
    return Scores.restored(kept.state) if isinstance(kept, Stored) else kept


def _features(server: Server, client: int) -> list[float]:
    """The features of a client, then those of the server."""
    own, progress = _scores(server, client), server.state["progress"]
    return [own.loss, own.accuracy, own.divergence, *progress.scores]


def _pooled(judged: Iterable[Judged]) -> tuple[float, float, int]:
    """Mean loss and accuracy over the validation samples of all clients, and the number of these samples."""
    known = list(judged)
    samples = sum(one.samples for one in known)
    loss, correct = sum(one.summed for one in known), sum(one.correct for one in known)
    return loss / max(samples, 1), correct / max(samples, 1), int(samples)
