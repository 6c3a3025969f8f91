import math
from collections.abc import Sequence
from typing import Any, ClassVar, Literal

from pydantic import Field
from torch import Tensor

from fedtailor.agents import DDPGSettings
from fedtailor.messages.payload import Payload
from fedtailor.methods.base import Card
from fedtailor.methods.head_mixing import COUNTS, FRESH, HEAD, OWN, HeadMixing, Latest, Peer, Shares, View, mixes
from fedtailor.models import Network
from fedtailor.parties import NO_POLICY, AgentTables, Client, Decided, Range, Replies, Schema, Server, Steps, Tensors
from fedtailor.weights import Weights, mean, select


class PFedRLLAAfterAgents(AgentTables):
    """The agent of pFedRLLA-after."""

    rules: ClassVar = ("similarity", "prior")

    head_weights: DDPGSettings = DDPGSettings(
        learn="always", network="attention", critic_lr=0.004, noise=0.3, updates=10, penalty=0.4
    )


class PFedRLLAAfter(HeadMixing):
    """Our form of pFedRLLA: it mixes models after the local training instead of before it.

    Round t with cohort K and the previous cohort K'. Exchanged: client k sends its model w_k, receives the mean of K'
    and the mix of the other models, trains, and sends the result for the next round.
    Server: for each client the agent weighs three kinds of models: those of K', the client's older model, and the
    model that the client is about to train.
    Client: E epochs of SGD from the mean of K'; it deploys its trained model mixed with the others, and keeps the
    trained one.
    Reward: that of pFedRLLA (eq. 1), where r2 compares the mix with the trained model alone.
    """

    name: ClassVar = "pfedrlla-after"
    best_rules: ClassVar = {HEAD: "prior"}
    own_slots: ClassVar = (OWN, FRESH)

    body: Literal["none", "size", "agent"] = Field(
        "agent", description="how bodies are mixed: `none` keeps the trained one"
    )
    gamma: float = Field(
        0.9,
        ge=0,
        le=1,
        description="factor of a model's weight for each round since its client trained; 1: no discount",
    )
    b1: float = Field(0.0, ge=0, description="weight of the reward for accuracy above the target")
    b3: float = Field(0.0, ge=0, description="weight of the penalty for weights that differ from the similarities")
    start: Literal["none", "similarity", "own"] = Field(
        "own",
        description="initial weights: equal, those of eq. 2, or the share `own` for the client's models and the rest "
        "by eq. 2; the agent learns the difference from them",
    )
    own: float = Field(
        0.9, gt=0, lt=1, description="share of the client's own models at the start, before any discount"
    )
    agents: PFedRLLAAfterAgents = PFedRLLAAfterAgents()

    def rehearsal(self) -> "PFedRLLAAfter":
        """Mix only the parts that the agent decides on, so that rewards depend on it alone; learn in every round."""
        tables = PFedRLLAAfterAgents(head_weights=self.agent.model_copy(update={"every": 1}))
        body = "agent" if self.body == "agent" else "none"
        return self.model_copy(update={"policy": NO_POLICY, "body": body, "agents": tables})

    def idle_settings(self) -> frozenset[str]:
        begins = {"start", "own"} if self.rule() not in (None, "prior") else {"own"} if self.start != "own" else set()
        return super().idle_settings() | begins

    # Server

    @property
    def agent_options(self) -> dict[str, Any]:
        return {"prior": None if self.start == "none" else self.embedding.size + 2}  # the feature "log similarity"

    def shape(self, server: Server) -> dict[str, int | str]:
        """The same properties and the initial weights, since the policy is a difference from them."""
        begins = f"own = {self.own:g}" if self.start == "own" else self.start
        return {**super().shape(server), "initial weights": begins}

    def prior(self, near: Tensor, known: Tensor, others: int) -> Tensor:
        if self.start == "own" and known[:others].any():
            share = math.log(self.own / (1 - self.own) / int(known[others:].sum()))
            near[others:] = near[:others][known[:others]].logsumexp(0) + share
        return near

    def prepare(self, server: Server, cohort: Sequence[int]) -> Steps:
        sent, own, peers = yield from self.collect(server, cohort)
        embeddings = self.embedded(server, own, peers)
        begins: dict[int, dict[str, Shares]] = {}  # shares in the model that training starts from
        shares: dict[int, dict[str, Shares]] = {}  # shares in the mix after training
        for k in own:
            view = View(k, own[k], peers, server.round, fresh=True)
            decided: Decided | None = yield from self.decide(view, embeddings, peers, sent[k])
            begins[k] = dict.fromkeys(self.rules, view.cohort)
            shares[k] = {part: view.shares(rule, decided, self.gamma) for part, rule in self.rules.items()}
        fresh = {k: {part: _share_of_fresh(of) for part, of in parts.items()} for k, parts in shares.items()}
        others: dict[int, Weights] = {}
        for part in self.rules:
            rest = {
                k: {part: {j: w for j, w in parts[part].items() if j != FRESH}}
                for k, parts in shares.items()
                if fresh[k][part] < 1
            }
            for k, weights in mixes(server, rest, own, peers).items():
                others[k] = {**others.get(k, {}), **weights}
        signal = {"version": server.state["previous"].version}
        return {
            k: Payload({"model": model, "others": others[k]}, config={**signal, "fresh": fresh[k]})
            if k in others
            else Payload({"model": model}, config=signal)
            for k, model in mixes(server, begins, own, peers).items()
        }

    def finish(self, server: Server, replies: Replies) -> Steps:
        yield from self.rewards(server, replies)
        now, previous = float(server.round), server.state["previous"]
        previous.peers = {k: Peer(reply["model"], reply.number("samples"), now) for k, reply in replies.items()}
        previous.version += self.train_embedding(server)

    # Client

    def send(self, client: Client, _payload: Payload) -> Payload:
        """Send the client's model, and whether it was ever trained."""
        latest: Latest = client.state["latest"]
        client.load(latest.model)
        facts = {**self.counts(client), "known": int(latest.round is not None)}
        return Payload({"model": select(client.weights(), client.shared)}, {"trained": latest.round or 0, **facts})

    def fit(self, client: Client) -> None:
        client.train()
        trained, alone = client.weights(), self.facts(client)
        self.personal(client)
        facts = {**self.facts(client), "alone": alone["accuracy"]}
        client.load(trained)
        self.keep(client, client.round, facts)

    def adapt(self, client: Client) -> None:
        client.train()
        self.personal(client)

    def upload(self, client: Client) -> Payload:
        latest: Latest = client.state["latest"]
        facts, latest.facts = latest.facts, {}
        return Payload({"model": latest.model}, facts)

    def reply_schema(self, network: Network, shared: frozenset[str]) -> Schema:
        return super().reply_schema(network, shared).extended(numbers={"alone": Range(0, 1)})

    def ask_schema(self, name: str, network: Network, shared: frozenset[str]) -> Schema:
        numbers = {**COUNTS, "trained": Range(0, whole=True), "known": Range(0, 1, whole=True)}
        return Schema({"model": Tensors(shared)}, numbers) if name == "send" else Schema()

    def personal(self, client: Client) -> None:
        """Mix the trained model with the mix of the other models in the payload."""
        others = client.payload.groups.get("others", {})
        for part, share in client.payload.config.get("fresh", {}).items():
            fresh = {name: w for name, w in client.weights(part).items() if name in others}
            if fresh:
                client.load(mean([fresh, select(others, fresh.keys())], [share, 1 - share]))


def _share_of_fresh(shares: Shares) -> float:
    """The share of the model that is about to be trained; 1 if no model has weight."""
    total = sum(shares.values())
    return shares.get(FRESH, 0.0) / total if total > 0 else 1.0


PFedRLLAAfter.card = Card(
    paper="our form of Reinforcement Learning-based Layer-wise Aggregation for Personalized Federated Learning, "
    "under review",
    year=2024,
    exchanged="the client's model up; the mean of the previous cohort and the mix of the other models down; the "
    "trained model up; validation accuracies and the age of the model up",
    client_state="its model, and the round it last trained in",
    server_state="the models of the previous cohort; the agent (actor, critic, replay); the auto-encoder",
    cost="as FedAvg, plus two forward passes over the validation data; all clients train before round 1",
    limits=(
        "no initial training, all weight on the model after training: FedAvg's local model",
        "decider = prior: the agent's initial weights, without learning; decider = similarity: the weights of eq. 2",
    ),
    deviations=(
        "models are mixed after the training instead of before it, since training undoes a mix: see docs/pfedrlla.md",
        "the agent starts with a share for the client's own models and learns what to add",
        "old models are discounted",
        "see also the deviations of pfedrlla",
    ),
    only_sums=False,
)
