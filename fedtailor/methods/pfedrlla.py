from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar, Literal

from pydantic import Field

from fedtailor.agents import DDPGSettings
from fedtailor.messages.payload import Payload
from fedtailor.methods.base import Card
from fedtailor.methods.head_mixing import FACTS, HEAD, HeadMixing, Latest, Peer, Shares, View, mixes
from fedtailor.models import Network
from fedtailor.parties import NO_POLICY, AgentTables, Ask, Client, Decided, Replies, Schema, Server, State, Steps
from fedtailor.weights import Weights, select


class PFedRLLAAgents(AgentTables):
    """The agent of pFedRLLA."""

    rules: ClassVar = ("similarity", "prior")

    head_weights: DDPGSettings = DDPGSettings(learn="always", warmup=50, every=10, updates=5, penalty=0.1)


@dataclass
class Judge(State):
    """The body that a client's rewards are measured with: ``client.state["judge"]``. Empty with a policy."""

    body: Weights = field(default_factory=dict)
    version: int | None = None  # of the agent when the body was kept


class PFedRLLA(HeadMixing):
    """Bodies averaged by data size, heads by weights that an agent chooses for each client (pFedRLLA, 2024).

    Round t with cohort K and the previous cohort K' (Alg. 1, 2). Exchanged: client k sends its model w_k, receives its
    own aggregate, trains it, and (peers = "trained") sends it again for the next round. Before round 1 all clients
    train alone.
    Server: body_k = sum of bodies of K' and k in proportion to their data; head_k = sum of heads weighted by
    A_k = softmax(actor(S_k)), where S_k holds the embeddings e of the heads of K' and, last, of k.
    Reward (eq. 1): R = b1 (exp(acc_k - acc_target) - 1) + b2 (acc_k - acc_before) - b3 ||A_k - V_k||^2, where acc are
    validation accuracies of the aggregate and of the model before it, and V_k are normalised similarities (eq. 2).
    Client: E epochs of SGD from the aggregate.
    """

    name: ClassVar = "pfedrlla"
    best_rules: ClassVar = {HEAD: "similarity"}
    agents_use: ClassVar = frozenset({"similarities"})

    peers: Literal["trained", "uploaded"] = Field(
        "trained",
        description="which models of the previous cohort are used: after their training, or as sent before it",
    )
    similarities: bool = Field(
        False, description="whether the agent also sees the logarithms of the similarities V_k; the paper: no"
    )
    agents: PFedRLLAAgents = PFedRLLAAgents()

    @property
    def sees_similarities(self) -> bool:
        return self.similarities

    def rehearsal(self) -> "PFedRLLARehearsal":
        """Aggregate only what the agent decides on, so that rewards depend on it alone (appendix D)."""
        return PFedRLLARehearsal(**rehearsed(self))

    def environment(self) -> "PFedRLLAJudged":
        """The rehearsal in which every decision gets its reward before the next one."""
        return PFedRLLAJudged(**rehearsed(self, learn="never"))

    # Server, Alg. 1

    def prepare(self, server: Server, cohort: Sequence[int]) -> Steps:
        sent, own, peers = yield from self.collect(server, cohort)  # line 3
        embeddings = self.embedded(server, own, peers)  # line 4
        shares: dict[int, dict[str, Shares]] = {}
        for k in own:  # lines 5-7
            view = View(k, own[k], peers, server.round)
            decided: Decided | None = yield from self.decide(view, embeddings, peers, sent[k])  # Alg. 2, lines 3-4
            shares[k] = {part: view.shares(rule, decided, self.gamma) for part, rule in self.rules.items()}
            yield from self.judge(server, k, shares[k], own, peers)
        models = mixes(server, shares, own, peers)  # Alg. 2, lines 1-2 and 5
        if self.peers == "uploaded":
            server.state["previous"].peers = own  # line 9
        signal = {"version": server.state["previous"].version}
        return {k: Payload({"model": model}, config=signal) for k, model in models.items()}  # line 11

    def finish(self, server: Server, replies: Replies) -> Steps:
        yield from self.rewards(server, replies)
        previous = server.state["previous"]
        if self.peers == "trained":  # Deviation: K' after its training; `uploaded` is Alg. 1 verbatim
            now = float(server.round)
            previous.peers = {k: Peer(reply["model"], reply.number("samples"), now) for k, reply in replies.items()}
        previous.version += self.train_embedding(server)  # line 8

    def judge(self, server: Server, k: int, shares: Any, own: Any, peers: Any) -> Steps:
        """Reward the decision before the next one. By default rewards come later."""
        yield from ()

    # Client, Alg. 1

    def start_client(self, client: Client) -> None:
        super().start_client(client)
        client.state["judge"] = Judge()

    def send(self, client: Client, _payload: Payload) -> Payload:
        """Send the client's model, and its accuracy before the aggregation (line 3)."""
        latest: Latest = client.state["latest"]
        client.load(latest.model)
        model = select(client.weights(), client.shared)
        return Payload({"model": model}, {"trained": latest.round or 0, **self.facts(client)})

    def fit(self, client: Client) -> None:
        facts = self.facts(client)
        client.train()  # line 12
        self.keep(client, client.round, facts)
        version = client.payload.config.get("version", 0)
        if self.splits and client.state["judge"].version != version:
            client.state["judge"] = Judge(client.weights("body"), version)

    def upload(self, client: Client) -> Payload:
        latest: Latest = client.state["latest"]
        facts, latest.facts = latest.facts, {}
        return Payload({"model": latest.model} if self.peers == "trained" else {}, facts)

    def reply_schema(self, network: Network, shared: frozenset[str]) -> Schema:
        return super().reply_schema(network, shared) if self.peers == "trained" else Schema(numbers=FACTS)

    @property
    def splits(self) -> bool:
        """Whether rewards are measured with a separate body (appendix G)."""
        return not self.has_policy and self.acts and self.agent.decider == "agent"

    def facts(self, client: Client) -> dict[str, Any]:
        """Measure the same facts with the body that is kept for rewards."""
        body = client.weights("body")
        client.load(client.state["judge"].body)
        facts = super().facts(client)
        client.load(body)
        return facts


class PFedRLLARehearsal(PFedRLLA):
    """pFedRLLA as its agent is pre-trained: bodies stay with their clients, heads travel (appendix D)."""

    rehearses: ClassVar = PFedRLLA

    @property
    def rules(self) -> dict[str, str]:
        return {"head": self.head}

    @property
    def splits(self) -> bool:
        return False

    def shared(self, network: Network) -> frozenset[str]:
        return network.part("head")


class PFedRLLAJudged(PFedRLLARehearsal):
    """A rehearsal in which every decision gets its reward before the next one, as an environment needs."""

    def judge(self, server: Server, k: int, shares: Any, own: Any, peers: Any) -> Steps:
        (aggregate,) = mixes(server, {k: shares}, own, peers).values()
        judged: Replies = yield Ask("assess", {k: Payload({"model": aggregate})})
        yield from self.rewards(server, judged)

    def assess(self, client: Client, payload: Payload) -> Payload:
        """Measure the accuracy of an aggregate."""
        self.receive(client, payload)
        return Payload(numbers=self.facts(client))

    def ask_schema(self, name: str, network: Network, shared: frozenset[str]) -> Schema:
        return Schema(numbers=FACTS) if name == "assess" else super().ask_schema(name, network, shared)


def rehearsed(method: PFedRLLA, **agent: Any) -> dict[str, Any]:
    """The settings of the method with an agent that learns in every round."""
    tables = {"head_weights": {**method.agent.model_dump(), "every": 1, **agent}}
    return {**method.model_dump(), "policy": NO_POLICY, "agents": tables}


PFedRLLA.card = Card(
    paper="Reinforcement Learning-based Layer-wise Aggregation for Personalized Federated Learning, under review",
    year=2024,
    exchanged="the client's model up, its aggregate down, and up again after training (peers = trained); "
    "validation accuracies and the age of the model up",
    client_state="its model, and the round it last trained in; without a policy also the body that rewards are "
    "measured with",
    server_state="the models of the previous cohort; the agent (actor, critic, replay); the auto-encoder",
    cost="as FedAvg, plus two forward passes over the validation data; all clients train before round 1",
    limits=(
        "body = head = none, no initial training, peers = trained: a client receives FedAvg's global model",
        "decider = similarity: the weights V_k of eq. 2 replace the agent",
    ),
    deviations=(
        "the ages of all models are part of the state, and gamma may discount old ones; gamma = 1 is the paper",
        "the actor's loss has a penalty on its logits, peers are shuffled in the replay, and the critic sees "
        "rewards and weights of order one: without that DDPG stays worse than equal weights for thousands of steps",
        "similarities = true (not in the paper) adds the logarithms of the similarities V_k to the state",
        "the paper's DDPG has target networks: with episodes of one decision the critic's target is the reward itself, "
        "which contains no network, so they would change nothing and are left out",
        "PCA bases are fitted once, to the heads of the first cohort, so that embeddings can be compared",
        "an empty previous cohort (all its clients failed) is replaced by the present one, as in round 1",
        "accuracy is that of validation data; the target follows its running mean unless it is given",
        "without a policy, the body that rewards are measured with is refreshed after training, so that the "
        "accuracies before and after an aggregation share one body",
    ),
    only_sums=False,
)
