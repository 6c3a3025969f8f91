import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated, Any, ClassVar, Literal

import torch
import torch.nn.functional as F
from pydantic import Field, model_validator
from torch import Tensor

from fedtailor.agents import DDPG, DDPGSettings, Replay, Simplex
from fedtailor.agents.embedding import MHAE, PCAEmbedding, matrices
from fedtailor.messages.payload import Payload
from fedtailor.methods.base import AgentMethod, Card
from fedtailor.models import Network
from fedtailor.parties import Ask, Client, Decide, Replies, Reward, Server, Steps
from fedtailor.weights import Weights, combinations, mean, select

HEAD = "head-weights"  # the name of the decision
FRESH = -1  # in place of a client's id: the target's model as it comes out of its training
PACE = 0.1  # of the running target accuracy
REWARDS = 5.0  # factor of the rewards that the critic learns, which are of the order 1/5
SMALLEST = 1e-3  # similarity, for its logarithm


class PFedRLLA(AgentMethod):
    """Bodies averaged by data size, heads by weights that an agent chooses for each client (pFedRLLA, 2024).

    Round t with cohort K and the previous cohort K' (Alg. 1, 2). Exchanged: client k sends its model w_k, gets its own
    aggregate back, trains it, and (peers = "trained") sends it once more for the next round. Before round 1 everyone
    trains alone.
    Server: body_k = sum of bodies of K' and k in proportion to their data; head_k = sum of heads weighted by
    A_k = softmax(actor(S_k)), where S_k holds the embeddings e of the heads of K' and, last, of k.
    Reward (eq. 1): R = b1 (exp(acc_k - acc_target) - 1) + b2 (acc_k - acc_before) - b3 ||A_k - V_k||^2, where acc are
    validation accuracies of the aggregate and of the model before it, and V_k are normalised similarities (eq. 2).
    Client: E epochs of SGD from the aggregate.
    """

    name: ClassVar = "pfedrlla"
    card: ClassVar = Card(
        paper="Reinforcement Learning-based Layer-wise Aggregation for Personalized Federated Learning, under review",
        year=2024,
        exchanged="the client's model up, its aggregate down, and up once more after training (peers = trained); "
        "mixes = after: also the aggregate of all other models down; validation accuracies and the age of the model up",
        client_state="its model, and the round it last trained in; without a policy also the body that rewards are "
        "measured with",
        server_state="the models of the previous cohort; the agent (actor, critic, replay); the auto-encoder",
        cost="that of FedAvg, and two forward passes over the validation data; everyone trains before round 1",
        limits=(
            "body = head = none, no initial training, peers = trained: a client receives FedAvg's global model",
            "mixes = after, no initial training, peers = trained, all weight on the model after training: FedAvg's "
            "local model",
            "head = similarity: the agent's target V_k of eq. 2 in place of the agent",
        ),
        deviations=(
            "the ages of all models are part of the state, and gamma may discount old ones; gamma = 1 is the paper",
            "the actor's loss has a penalty on its logits, peers are shuffled in the replay, and the critic sees "
            "rewards and weights of order one: without that DDPG stays worse than equal weights for thousands of steps",
            "prior = similarity starts from V_k instead of equal weights, own gives the own models a share; none is "
            "the paper",
            "mixes = after aggregates after the local training: the client's model as it came out of it, its older one "
            "and those of the previous cohort, and the result is deployed; training starts from the cohort's mean, r2 "
            "compares with the trained model alone; before is the paper",
            "PCA bases are fitted once on the heads of the first cohort and kept, so that embeddings can be compared",
            "an empty previous cohort (all its clients failed) is replaced by the present one, as in round 1",
            "accuracy is that of validation data; the target follows its running mean unless it is given",
            "without a policy, the body that rewards are measured with is refreshed after training, so that the "
            "accuracies before and after an aggregation share one body",
        ),
        only_sums=False,
    )
    needs_validation: ClassVar = True
    carries: ClassVar = ("agent", "replay", "embedding", "target")

    body: Literal["none", "size", "agent", "uniform", "similarity", "local"] = Field(
        "size",
        description="how bodies are averaged: none is the mean of the previous cohort alone (mixes = after: the "
        "client's own alone), size by data size, agent by the agent's weights, uniform and similarity as for heads; "
        "local bodies do not travel (pre-training)",
    )
    head: Literal["none", "size", "agent", "uniform", "similarity"] = Field(
        "agent", description="how heads are averaged; uniform and similarity (V_k of eq. 2) take the agent's place"
    )
    peers: Literal["trained", "uploaded"] = Field(
        "trained", description="the previous cohort's models: after their training, or as they were sent before it"
    )
    mixes: Literal["before", "after"] = Field(
        "before",
        description="when models are aggregated: before the local training, which is the paper, or after it, with the "
        "client's model fresh from it, and the training starts from the previous cohort's mean",
    )
    initial: bool = Field(True, description="everyone trains alone before round 1")
    gamma: float = Field(
        1.0, ge=0, le=1, description="discount of a model's weight for each round since its client trained; 1: none"
    )
    b1: float = Field(1.0, ge=0, description="weight of the reward for accuracy above the target")
    b2: float = Field(1.0, ge=0, description="weight of the reward for accuracy gained by the aggregation")
    b3: float = Field(2.0, ge=0, description="weight of the penalty for weights unlike the similarities")
    target: Annotated[float, Field(ge=0, le=1)] | Literal["running"] = Field(
        "running", description="the accuracy that the reward asks for: a number, or the running mean"
    )
    warmup: int = Field(50, ge=0, description="rounds of random weights where there is no policy")
    every: int = Field(10, ge=1, description="rounds between two trainings of agent and auto-encoder")
    updates: int = Field(5, ge=0, le=100_000, description="steps of the agent's learning in a training")
    steps: int = Field(10, ge=0, le=100_000, description="steps of the auto-encoder's learning in a training")
    embedding: Literal["mhae", "pca"] = Field("mhae", description="what embeds heads: the auto-encoder, or plain PCA")
    size: int = Field(128, ge=1, le=10_000, description="numbers in an embedding")
    side: int = Field(
        16, ge=1, le=1000, description="rows and columns of a layer after its PCA, for the auto-encoder; the paper: 32"
    )
    network: Literal["mlp", "attention"] = Field(
        "mlp", description="the agent's networks: mlp is the paper's; attention serves any cohort, in any order"
    )
    prior: Literal["none", "similarity", "own"] = Field(
        "none",
        description="what the agent begins with: equal weights, those of eq. 2, or the share `own` for the client's "
        "models, and the rest by eq. 2; it learns what differs",
    )
    own: float = Field(
        0.5, gt=0, lt=1, description="share of the client's own models in the prior of that name, before any discount"
    )
    penalty: float = Field(
        0.1, ge=0, description="weight of the squared logits (without the prior) in the actor's loss"
    )
    hidden: int = Field(256, ge=1, le=100_000, description="units of each of the two hidden layers")
    actor_lr: float = Field(1e-3, gt=0, le=1, description="learning rate of the actor")
    critic_lr: float = Field(1e-3, gt=0, le=1, description="learning rate of the critic")
    noise: float = Field(0.03, ge=0, le=100, description="standard deviation of the exploration noise on the logits")
    batch: int = Field(32, ge=1, le=100_000, description="decisions in a step of the agent's learning")
    capacity: int = Field(100_000, ge=1, description="decisions in the replay")
    judge: Literal["later", "at once"] = Field(
        "later", description="when a reward is known: with the client's upload, or asked for after each decision"
    )

    @model_validator(mode="after")
    def _in_time(self) -> "PFedRLLA":
        if self.mixes == "after" and self.judge == "at once":
            raise ValueError("models that are mixed after the training cannot be judged at once")
        return self

    def inert(self) -> str | None:
        if self._acts and self.updates == 0 and self.policy is None:
            return "updates = 0 without a policy: the agent never learns, weights stay random or near its prior"
        return None

    def passes(self, epochs: int) -> float:
        """Training, and two forward passes over validation data of about a fifth of the training data."""
        return epochs + 2 / 3 / 5

    def rehearsal(self) -> "PFedRLLA":
        """Only what the agent decides is aggregated, so that rewards are its own (appendix D); every round trains."""
        body = "local" if self.mixes == "before" else "agent" if self.body == "agent" else "none"
        return self.model_copy(update={"every": 1, "policy": None, "body": body})

    def shared(self, network: Network) -> frozenset[str]:
        return network.part("head" if self.body == "local" else "all")

    # On the server

    def start_server(self, server: Server) -> None:
        settings = DDPGSettings(
            hidden=(self.hidden, self.hidden),
            actor_lr=self.actor_lr,
            critic_lr=self.critic_lr,
            noise=self.noise,
            batch=self.batch,
            network=self.network,
            prior=None if self.prior == "none" else self.size + 2,
            exchangeable=server.largest_cohort,  # the target's models are in the last slots
            penalty=self.penalty,
            action_scale=self._slots(server),  # actions of order one, whatever the cohort
            reward_scale=REWARDS,
        )
        slots = self._slots(server)
        features = self.size + 3  # the embedding, the age, whether this is the target client, its similarity
        server.state["replay"] = replay = Replay(self.capacity)
        server.state["agent"] = DDPG(slots, features, Simplex(), settings, server.stream("agent"), replay)
        server.state["embedding"] = (
            MHAE(server.stream("mhae"), self.size, self.side) if self.embedding == "mhae" else PCAEmbedding(self.size)
        )
        server.state["target"] = None if self.target == "running" else self.target
        server.state["peers"] = {}  # the previous cohort: model, samples and round of the last training of each
        server.state["version"] = 0  # of the agent: tells clients to refresh the body that rewards are measured with
        server.state["open"] = {}  # decisions of this round without a reward yet

    def shape(self, server: Server) -> dict[str, int | str]:
        layers = len(matrices(select(server.initial, server.network.part("head"))))
        side = f" from {self.side} x {self.side}" if self.embedding == "mhae" else ""
        shape: dict[str, int | str] = {
            "embedding": f"{self.embedding} of size {self.size}{side}",
            "head layers": layers,
            "network": f"{self.network} with {self.hidden} hidden units",
            "mixes": self.mixes,
        }
        return shape if self.network == "attention" else {**shape, "slots": self._slots(server)}

    def learned(self, server: Server) -> dict[str, Any]:
        return {"agent": server.state["agent"], "embedding": server.state["embedding"]}

    def prepare(self, server: Server, cohort: Sequence[int]) -> Steps:
        if server.round == 1 and self.initial:
            everyone = cohort if server.greedy else range(server.clients)
            yield Ask("begin", dict.fromkeys(everyone, Payload({"model": server.weights})))
        sent: Replies = yield Ask("send", dict.fromkeys(cohort, Payload()))
        own = {k: _Peer.of(reply) for k, reply in sent.items()}
        if not server.state["peers"]:  # round 1, or everyone failed in the round before
            server.state["peers"] = {k: vars(peer) for k, peer in list(own.items())[: server.largest_cohort]}
        peers = {k: _Peer(**row) for k, row in server.state["peers"].items()}
        embedded = self._embedded(server, own, peers)
        server.state["open"] = {}
        shares: dict[int, dict[str, dict[int, float]]] = {}  # in what training starts from
        mixed: dict[int, dict[str, dict[int, float]]] = {}  # in what is aggregated after it
        for k, model in own.items():
            view = _View(k, model, peers, server.round)
            rows = torch.stack([embedded[j in peers and j != k, j] for j in view.ids]) if embedded else None
            if self.mixes == "after":
                view.add_fresh()
            weights = yield from self._weights(server, view, rows, sent[k])
            by_rule = self._shares(view, weights)
            shares[k], mixed[k] = (self._start(view), by_rule) if self.mixes == "after" else (by_rule, {})
            if self.judge == "at once" and k in server.state["open"]:
                (aggregate,) = self._aggregates(server, {k: shares[k]}, own, peers).values()
                judged: Replies = yield Ask("assess", {k: Payload({"model": aggregate})})
                yield from self._rewards(server, judged)
        if self.peers == "uploaded":
            server.state["peers"] = {k: vars(peer) for k, peer in own.items()}
        signal = {"version": server.state["version"]}
        starts = self._aggregates(server, shares, own, peers)
        payloads = {k: Payload({"model": model}, config=signal) for k, model in starts.items()}
        fresh = {k: {part: _share_of_fresh(of) for part, of in parts.items()} for k, parts in mixed.items()}
        for part in ("body", "head"):
            rest = {
                k: {part: {j: w for j, w in parts[part].items() if j != FRESH}}
                for k, parts in mixed.items()
                if fresh[k].get(part, 1) < 1
            }
            for k, weights in self._aggregates(server, rest, own, peers).items():
                others = {**payloads[k].groups.get("others", {}), **weights}
                payloads[k] = Payload({"model": starts[k], "others": others}, config={**signal, "fresh": fresh[k]})
        return payloads

    def decide(self, server: Server, question: Decide) -> Tensor:
        agent: DDPG = server.state["agent"]
        if server.greedy:
            return agent.act(question.observation, question.mask)
        draws = server.stream(f"weights of {question.about}")
        if self._warming(server):
            assert question.mask is not None
            return Simplex().random(question.mask, draws)
        return agent.act(question.observation, question.mask, draws)

    def finish(self, server: Server, replies: Replies) -> Steps:
        if self.judge == "later":
            yield from self._rewards(server, replies)
        if self.peers == "trained":
            now = float(server.round)
            server.state["peers"] = {
                k: vars(_Peer(reply["model"], reply.number("samples"), now)) for k, reply in replies.items()
            }
        self._train_agent(server)

    def models(self, server: Server) -> dict[str, Weights]:
        return {}

    # Decisions and rewards

    def _slots(self, server: Server) -> int:
        return server.largest_cohort + (2 if self.mixes == "after" else 1)

    def _warming(self, server: Server) -> bool:
        """Whether there is too little to decide by yet."""
        return self.policy is None and server.moment.episode == 0 and server.round <= self.warmup

    @property
    def _acts(self) -> bool:
        return "agent" in (self.body, self.head)

    def _embedded(
        self, server: Server, own: Mapping[int, "_Peer"], peers: Mapping[int, "_Peer"]
    ) -> dict[tuple[bool, int], Tensor]:
        """The embeddings of all heads in play, by (whether of the previous cohort, client), all of one moment."""
        if not (self._acts or "similarity" in (self.body, self.head)):
            return {}
        embedding: MHAE | PCAEmbedding = server.state["embedding"]
        models = {(False, k): peer.model for k, peer in own.items()} | {(True, k): p.model for k, p in peers.items()}
        part = server.network.part("head")
        heads = [matrices(select(model, part)) for model in models.values()]
        if not heads:
            return {}
        if not embedding.fits(heads):
            embedding.fit(heads)
        return dict(zip(models, embedding(heads), strict=True))

    def _weights(self, server: Server, view: "_View", rows: Tensor | None, sent: Payload) -> Steps:
        """The weights of a view's clients by each rule that needs embeddings; A_k is the agent's."""
        if rows is None:
            return {}
        similar = similarity(rows)
        if view.fresh:  # as similar as can be, and unlike the client's older model not seen yet
            similar = torch.cat([similar, similar[-1:]]) * torch.tensor(view.known)
            similar = similar / similar.sum()
            rows = torch.cat([rows, torch.zeros(1, self.size)])
        if not self._acts:
            return {"similarity": similar.tolist()}
        others, slots = view.others, self._slots(server)
        place = torch.tensor([*range(others), *range(server.largest_cohort, slots)])  # the target's are the last slots
        known = torch.tensor(view.known)
        ages = torch.tensor([view.ages]).T.float()
        flags = torch.tensor([[{view.target: 1.0, FRESH: -1.0}.get(j, 0.0)] for j in view.ids])
        observation = torch.zeros(slots, self.size + 3)
        near = similar.clamp(min=SMALLEST).log()[:, None]
        if self.prior == "own" and known[:others].any():
            share = math.log(self.own / (1 - self.own) / int(known[others:].sum()))
            near[others:] = near[:others][known[:others]].logsumexp(0) + share
        observation[place] = torch.cat([rows, ages.log1p(), flags, near], 1) * known[:, None]
        mask = torch.zeros(slots, dtype=torch.bool)
        mask[place] = known
        action = yield Decide(HEAD, observation, mask, about=view.target)
        chosen: Tensor = action[place]
        if sent.number("validation"):
            server.state["open"][view.target] = {
                "observation": observation,
                "mask": mask,
                "action": action,
                "gap": float((chosen - similar).square().sum()),
                "before": sent.numbers.get("accuracy"),  # after the training, the reply says what it compares with
            }
        return {"similarity": similar.tolist(), "agent": chosen.tolist()}

    def _rewards(self, server: Server, replies: Replies) -> Steps:
        """Eq. 1 for every decision whose aggregate was judged."""
        judged = {k: reply.number("accuracy") for k, reply in replies.items() if k in server.state["open"]}
        if judged and self.target == "running":
            mean, before = sum(judged.values()) / len(judged), server.state["target"]
            server.state["target"] = mean if before is None else before + PACE * (mean - before)
        for k, accuracy in judged.items():
            decision = server.state["open"].pop(k)
            r1 = math.exp(accuracy - server.state["target"]) - 1
            r2 = accuracy - replies[k].numbers.get("alone", decision["before"])
            reward = self.b1 * r1 + self.b2 * r2 - self.b3 * decision["gap"]
            yield Reward(HEAD, reward, about=k)
            agent: DDPG = server.state["agent"]
            agent.observe(decision["observation"], decision["action"], reward, decision["mask"])

    def _train_agent(self, server: Server) -> None:
        """Appendices E and G: the auto-encoder in every round of the warm-up, both every few rounds after it."""
        if not self._acts:
            return
        warming = self._warming(server)
        tuning = server.round % self.every == 0
        heads = [
            matrices(select(peer["model"], server.network.part("head"))) for peer in server.state["peers"].values()
        ]
        if (warming or tuning) and heads and server.state["embedding"].fits(heads):
            server.state["embedding"].train(heads, self.steps, server.stream("mhae"))
        if tuning and not warming:
            draws = server.stream("replay")
            for _ in range(self.updates):
                server.state["agent"].learn(draws)
            server.state["version"] += 1

    # Aggregation

    def _start(self, view: "_View") -> dict[str, dict[int, float]]:
        """Shares in what training starts from if models are aggregated after it: the previous cohort's mean."""
        return dict.fromkeys(self._parts, view.before)

    def _shares(self, view: "_View", weights: Mapping[str, Sequence[float]]) -> dict[str, dict[int, float]]:
        """Every client's share in the aggregated body and head."""
        rules = {"size": view.sizes, "uniform": [1.0] * len(view.ids), **weights}
        # Only differences count once the shares are normalised, and the freshest models keep their weight.
        discounts = [self.gamma ** (age - min(view.ages)) for age in view.ages]

        def shares(rule: str) -> dict[int, float]:
            if rule == "none":
                return {FRESH: 1.0} if view.fresh else view.before
            factors = zip(view.ids, rules[rule], discounts, view.known, strict=True)
            return {j: w * discount for j, w, discount, known in factors if known}

        return {part: shares(rule) for part, rule in self._parts.items()}

    @property
    def _parts(self) -> dict[str, str]:
        """The rules of the parts that travel."""
        return {part: rule for part, rule in (("body", self.body), ("head", self.head)) if rule != "local"}

    def _aggregates(
        self,
        server: Server,
        shares: Mapping[int, Mapping[str, Mapping[int, float]]],
        own: Mapping[int, "_Peer"],
        peers: Mapping[int, "_Peer"],
    ) -> dict[int, Weights]:
        """The model of each client, all clients' at once: a matrix of shares times the models as rows."""
        aggregates: dict[int, Weights] = {k: {} for k in shares}
        models = [peer.model for peer in (*peers.values(), *(own[k] for k in shares))]
        places = {j: i for i, j in enumerate(peers)}
        for part in ("body", "head"):
            names = server.network.part(part) & server.shared
            if not names or not shares or part not in next(iter(shares.values())):
                continue
            matrix = torch.zeros(len(shares), len(models), dtype=torch.double)  # (clients, models)
            for row, (k, of) in enumerate(shares.items()):
                for j, share in of[part].items():
                    # A target in the previous cohort is counted once: its own model is the same one, or newer.
                    matrix[row, len(peers) + row if j == k else places[j]] = share
            mixed = combinations([select(model, names) for model in models], matrix)
            for k, weights in zip(shares, mixed, strict=True):
                aggregates[k] |= weights
        return aggregates

    # On a client

    def begin(self, client: Client, payload: Payload) -> Payload:
        """Train alone, from the initial model."""
        client.load(payload["model"])
        client.train()
        self._keep(client, 0)
        return Payload()

    def send(self, client: Client, _payload: Payload) -> Payload:
        """The client's model, and how good it is before it is aggregated."""
        client.load(client.state.get("model", {}))
        model = select(client.weights(), client.shared)
        late = {**self._sizes(client), "known": int("model" in client.state)}
        facts = late if self.mixes == "after" else self._facts(client)
        return Payload({"model": model}, {"trained": client.state.get("trained", 0), **facts})

    def assess(self, client: Client, payload: Payload) -> Payload:
        """How good an aggregate is."""
        self.receive(client, payload)
        return Payload(numbers=self._facts(client))

    def fit(self, client: Client) -> None:
        if self.mixes == "before":
            client.state["facts"] = self._facts(client)
        client.train()
        self._keep(client, client.round)
        if self.mixes == "after":
            client.state["facts"] = self._mixed_facts(client)
        version = client.payload.config.get("version", 0)
        if self._splits and client.state.get("version") != version:
            client.state |= {"version": version, "judge": client.weights("body")}

    def upload(self, client: Client) -> Payload:
        model = {"model": client.state["model"]} if self.peers == "trained" else {}
        return Payload(model, client.state.pop("facts"))

    def personal(self, client: Client) -> None:
        """The aggregation after the training: the client's fresh model, and the others' aggregate that it was sent."""
        others = client.payload.groups.get("others", {})
        for part, share in client.payload.config.get("fresh", {}).items():
            fresh = {name: w for name, w in client.weights(part).items() if name in others}
            if fresh:
                client.load(mean([fresh, select(others, fresh.keys())], [share, 1 - share]))

    def _mixed_facts(self, client: Client) -> dict[str, Any]:
        """Validation accuracy with the aggregation, and alone, without it."""
        trained, alone = client.weights(), self._facts(client)
        self.personal(client)
        facts = self._facts(client)
        client.load(trained)
        return {**facts, "alone": alone["accuracy"]}

    @property
    def _splits(self) -> bool:
        """Whether rewards are measured with a body of their own (appendix G)."""
        return self.policy is None and self._acts and self.body != "local" and self.mixes == "before"

    def _keep(self, client: Client, round: int) -> None:
        client.state |= {"model": select(client.weights(), client.shared), "trained": round}

    def _facts(self, client: Client) -> dict[str, Any]:
        """Samples and validation accuracy of the model in the network, with the body that rewards are measured with."""
        model = client.weights("body")
        client.load(client.state.get("judge", {}))
        score = client.evaluate("val")
        client.load(model)
        return {**self._sizes(client), "accuracy": score.correct / max(score.samples, 1)}

    def _sizes(self, client: Client) -> dict[str, Any]:
        return {"samples": client.samples, "validation": len(client.data("val")[1])}


def similarity(embeddings: Tensor) -> Tensor:
    """V_k of eq. 2 for the embeddings of a view, the target last: (cos + 1) / 2, normalised."""
    near = (F.cosine_similarity(embeddings, embeddings[-1:], dim=1) + 1) / 2
    near[-1] = 1.0
    return near / near.sum()


@dataclass
class _Peer:
    """A client's model on the server."""

    model: Weights
    samples: float
    trained: float  # the round in which the client last trained
    known: bool = True  # whether it trained at all

    @classmethod
    def of(cls, reply: Payload) -> "_Peer":
        trained = reply.number("trained")
        return cls(reply["model"], reply.number("samples"), trained, bool(reply.numbers.get("known", 1)))


class _View:
    """Whose models are mixed for a target client: those of the previous cohort in the order of ids, its own last."""

    def __init__(self, target: int, own: _Peer, peers: Mapping[int, _Peer], round: int):
        self.target = target
        others = {j: peer for j, peer in peers.items() if j != target}
        self.others = len(others)
        self.fresh = False
        self.ids = [*others, target]
        models = [*others.values(), own]
        self.sizes = [peer.samples for peer in models]
        self.ages = [round - peer.trained for peer in models]
        self.known = [peer.known for peer in models]
        self.before = {j: peer.samples for j, peer in peers.items()}  # with the target only if it was among them

    def add_fresh(self) -> None:
        """The target's model as it will be after the training."""
        self.fresh = True
        self.ids = [*self.ids, FRESH]
        self.sizes = [*self.sizes, self.sizes[-1]]
        self.ages = [*self.ages, 0]
        self.known = [*self.known, True]


def _share_of_fresh(shares: Mapping[int, float]) -> float:
    """1 where nothing else has weight, and where nothing has any."""
    total = sum(shares.values())
    return shares.get(FRESH, 0.0) / total if total > 0 else 1.0
