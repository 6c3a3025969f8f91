from collections.abc import Sequence
from typing import Annotated, ClassVar, Literal

import torch
from pydantic import Field

from fedtailor.learning import TrainingSettings
from fedtailor.messages.payload import Payload, Rejected
from fedtailor.methods.base import Card, Formerly, Method, Payloads
from fedtailor.methods.candidates import Candidate, Tailoring, best, grid, pooled
from fedtailor.methods.fedavg_ft import FedAvgFT
from fedtailor.models import Network
from fedtailor.parties import Ask, Client, Range, Replies, Schema, Server, Steps

LEAST = 2  # clients that are asked for evidence in the shortest run
FORWARD = 1 / 12  # cost of a forward pass over validation data, in passes over training data four times as large


class Tailor(FedAvgFT):
    """FedAvg whose clients deploy a mix of two models, which the validation data of all clients choose. Ours.

    Exchanged: as FedAvg. After the last round some clients also send their number n of validation samples and a gain
    g(a, b, t) from -1 to 1 for each candidate; every client then receives the pooled gains G(a, b, t) with the model.
    Client: E epochs of SGD. A deployed model begins with the received model w and w' = w after ``ft_epochs``.
    Candidates: (1 - a) w + a w' in the body, (1 - b) w + b w' in the head, with logits + t log p for the frequencies p
    of the client's classes in its training data; a, b, t on a grid. g is the mean of two gains on the validation data:
    the accuracy of the candidate less that of w', and the loss of w' less that of the candidate, each at the sharpness
    of the logits that suits it best.
    Server: as FedAvg. G is the mean of g over the clients, less ``caution`` standard errors.
    Choice: the client deploys the candidate with the largest (n g + strength G) / (n + strength). FedAvg+FT's model has
    g(1, 1, 0) = G(1, 1, 0) = 0: it remains where no candidate is seen to be better.
    """

    name: ClassVar = "tailor"
    needs_validation: ClassVar = True
    pure_prepare: ClassVar[bool] = True

    mix: bool = Field(True, description="mix the received and the fine-tuned model; false: a = 1")
    correct: bool = Field(
        True, description="move logits by the log of class frequencies; false: t = 0, as always in a regression"
    )
    parts: Annotated[bool, Formerly(False)] = Field(
        True, description="body and head have shares of their own; false: b = a"
    )
    calibrated: Annotated[bool, Formerly(False)] = Field(
        True,
        description="a gain is the mean of that in accuracy and that in the loss at the best sharpness of the logits; "
        "false: that in the loss, as always with other losses than the plain ones of classes",
    )
    equal: Annotated[bool, Formerly(False)] = Field(
        True, description="clients count the same in the pooled gains; false: by their validation samples"
    )
    evidence: Literal["both", "pooled", "own"] = Field(
        "both", description="what a client's choice rests on: its own validation data, those of all clients, or both"
    )
    strength: float = Field(
        100.0, gt=0, le=1e9, description="validation samples of its own that the pooled evidence counts for a client"
    )
    caution: float = Field(0.5, ge=0, le=100, description="standard errors that are subtracted from a mean gain")
    budget: float = Field(
        0.3,
        gt=0,
        le=100,
        description="largest cost of the evidence, as a share of the training in all rounds; it limits how many "
        "clients are asked, but two always are",
    )

    @property
    def candidates(self) -> tuple[Candidate, ...]:
        """The candidates for a client's model; the first is FedAvg+FT's model."""
        return grid(self.mix, self.parts, self.correct)

    @property
    def pools(self) -> bool:
        """Whether clients are asked for evidence."""
        return self.evidence != "own" and len(self.candidates) > 1

    def inert(self) -> str | None:
        if len(self.candidates) == 1:
            return "mix and correct are off, so that clients have nothing to choose: this is FedAvg+FT"
        return None

    def idle_settings(self) -> frozenset[str]:
        idle = set() if self.mix else {"parts"}
        if len(self.candidates) == 1:
            idle |= {"parts", "calibrated", "evidence"}
        if self.evidence != "both" or not self.pools:
            idle.add("strength")
        return frozenset(idle if self.pools else idle | {"equal", "caution", "budget"})

    def coincides(self, other: Method, training: TrainingSettings) -> str | None:
        return super().coincides(other, training) if len(self.candidates) == 1 else None

    def total(self) -> str | None:
        return "clients are asked for evidence after its last round" if self.pools else None

    def passes(self, epochs: int) -> float:
        return epochs * (1 + self.budget) if self.pools else float(epochs)

    # Server

    def start_server(self, server: Server) -> None:
        # Pooled gains by candidate; empty before the last round, or with too little evidence.
        server.state["gains"] = []

    def prepare(self, server: Server, cohort: Sequence[int]) -> Payloads:
        # Only after the last round: evidence from an earlier round is about another model.
        numbers = {"gains": list(server.state["gains"])} if server.round > server.rounds else {}
        return dict.fromkeys(cohort, Payload({"model": server.weights}, {k: v for k, v in numbers.items() if v}))

    def finish(self, server: Server, replies: Replies) -> Steps:
        server.weights = server.average(replies)
        if not self.pools or server.round != server.rounds:
            return
        asked = {client: Payload({"model": server.weights}) for client in self._asked(server)}
        answers: Replies = yield Ask("assess", asked)
        counts = {client: reply.number("validation") for client, reply in answers.items()}
        weights = {client: float(n > 0) for client, n in counts.items()} if self.equal else counts
        evidence = {client: (weights[client], reply.several("gains")) for client, reply in answers.items()}
        server.state["gains"] = pooled(evidence, self.caution)

    def _asked(self, server: Server) -> list[int]:
        """Choose clients at random, as many as the budget pays for."""
        training, size = server.training, sum(server.sizes) / max(1, server.clients)
        epochs = training.epochs if training.steps is None else training.steps * training.batch_size / max(1.0, size)
        mixes = len({(candidate.body, candidate.head) for candidate in self.candidates})
        spent = server.rounds * server.expected_cohort * epochs
        number = max(LEAST, int(self.budget * spent / (self.ft_epochs + FORWARD * mixes)))
        order = torch.randperm(server.clients, generator=server.stream("evidence")).tolist()
        return sorted(order[:number])

    # Client

    def assess(self, client: Client, payload: Payload) -> Payload:
        """Fine-tune the new global model, and send the gain of each candidate on the validation data."""
        self.receive(client, payload)
        client.received = client.weights()
        super().personal(client)
        gains = Tailoring.of(client, self.candidates).gains(self.calibrated)
        return Payload(numbers={"validation": len(client.data("val")[1]), "gains": gains})

    def personal(self, client: Client) -> None:
        super().personal(client)
        self._choose(client)

    def adapt(self, client: Client) -> None:
        client.train()
        self._choose(client)

    def _choose(self, client: Client) -> None:
        """Turn the fine-tuned model into the best candidate; change nothing without evidence or before the end."""
        gains = client.payload.numbers.get("gains") if self.pools else [0.0] * len(self.candidates)
        if client.round <= client.rounds or not isinstance(gains, list) or len(self.candidates) == 1:
            return
        tailoring = Tailoring.of(client, self.candidates)
        if self.evidence != "pooled":
            own, samples = tailoring.gains(self.calibrated), len(client.data("val")[1])
            gains = [
                (samples * g + self.strength * G) / (samples + self.strength) for g, G in zip(own, gains, strict=True)
            ]
        tailoring.load(best(self.candidates, gains))

    # What travels

    def ask_schema(self, name: str, network: Network, shared: frozenset[str]) -> Schema:
        return Schema({}, {"validation": Range("val", "val", whole=True), "gains": Range(-1, 1, several=True)})

    def check_reply(self, server: Server, client: int, reply: Payload, question: str = "") -> None:
        if question and len(reply.several("gains")) != len(self.candidates):
            raise Rejected("there is not one gain for each candidate")


Tailor.card = Card(
    paper="ours: FedAvg with fine-tuning, and a choice of the deployed model on pooled validation data",
    year=2026,
    exchanged="the model down, the model up; after the last round, from some clients, the number of validation samples "
    "and a gain for each of the 216 candidates; with the deployed model, the pooled gains",
    server_state="the global model; after the last round the pooled gains",
    cost="as FedAvg; after the last round some clients fine-tune once and make 36 forward passes over their validation "
    "data, which is at most the share `budget` of the training of all rounds",
    limits=(
        "mix = correct = false, or too little evidence: FedAvg+FT",
        "evidence = own: nothing travels besides the model; small validation sets mislead",
        "evidence = pooled: all clients make the same choice",
    ),
)
