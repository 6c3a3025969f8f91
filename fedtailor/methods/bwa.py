from collections.abc import Iterable, Mapping, Sequence
from copy import deepcopy
from statistics import fmean
from typing import Any, ClassVar, Literal

import torch
from pydantic import Field, model_validator
from torch import Tensor

from fedtailor.agents import PPO, Head, IntegerHead, PPOSettings, SimplexHead
from fedtailor.messages.payload import Payload
from fedtailor.methods.base import AgentMethod, Card
from fedtailor.parties import Ask, Client, Decide, Replies, Reward, Server, Steps
from fedtailor.weights import delta, learned, mean, norm, select

ADJUSTMENT = "adjustment"  # the name of the decision
FEATURES = 6  # loss, accuracy and divergence of a client, then of the server
SPREAD = 0.1  # of the weights' logits, and their step: more of it harms the model and hides what the batch size does
FAR = 10.0  # deviations from the mean beyond which the agent sees no difference
WINDOW = 3  # episodes in a row by which a policy is judged: one alone is luck


class Adjusted(AgentMethod):
    """FedAvg whose batch size and aggregation weights are decided anew in every round, by whom subclasses say.

    A round is: scores s^t, decision (b^t, lambda^t), local training with batches of b^t, w_0^{t+1} = sum_k lambda_k
    w_k^{t+1} (eq. 4), scores again. ``_begin``, ``_observe`` and ``_end`` are what learning from an episode needs.
    """

    needs_validation: ClassVar = True

    controls: Literal["both", "batch", "weights"] = Field(
        "both", description="what is decided; the other is FedAvg's: weights by data size, the run's batch size"
    )
    smallest: int = Field(1, ge=1, description="smallest batch size that may be chosen")
    largest: int = Field(64, ge=1, le=1_000_000, description="largest batch size that may be chosen")
    threshold: float = Field(
        0.0, ge=0, le=1, description="a client whose weight is below it uploads no model; 0: everyone does"
    )
    alpha: float = Field(64.0, gt=1, description="base of the objective: the sum of alpha^accuracy over rounds (eq. 7)")
    learn: Literal["auto", "always", "never"] = Field(
        "auto", description="auto learns if there is no policy; who does not learn does not explore either"
    )

    @model_validator(mode="after")
    def _ordered(self) -> "Adjusted":
        if self.smallest > self.largest:
            raise ValueError("the smallest batch size is larger than the largest")
        return self

    @property
    def learns(self) -> bool:
        return self.learn == "always" or (self.learn == "auto" and self.policy is None)

    def inert(self) -> str | None:
        if self.policy is None and self.learn != "always":
            return "without a policy it only explores, since it learns at the end of an episode: 'fedtailor pretrain'"
        return None

    def rehearsal(self) -> "Adjusted":
        """A policy, if there is one, is what learning starts from."""
        return self.model_copy(update={"learn": "always"})

    # On the server

    def start_server(self, server: Server) -> None:
        server.state["global"] = None  # loss, accuracy and divergence of the global model
        server.state["best"] = 0.0  # its highest accuracy in this episode
        server.state["clipped"] = {}  # in how many rounds a client had less data than a batch

    def prepare(self, server: Server, cohort: Sequence[int]) -> Steps:
        if server.round == 1 and not server.greedy:
            self._begin(server)
        yield from self._ask_for_scores(server, cohort)
        present = [k for k in cohort if _fresh(server, k)]
        if not present:
            return {}
        deciding = present[: server.largest_cohort]  # the final pass prepares more clients than a round has
        observation, mask = _state(server, deciding)
        server.state["open"] = {"clients": deciding}
        action = yield Decide(ADJUSTMENT, observation, mask)
        batch, weights = self._adjusted(server, deciding, action)
        server.state["open"] |= {"observation": observation, "mask": mask, "action": action}
        server.state["open"] |= {"batch": batch, "weights": weights}
        told = {} if batch is None else {"batch": batch}
        loud = Payload({"model": server.weights}, config=told)
        silent = Payload({"model": server.weights}, config={**told, "upload": False})
        left_out = self._left_out(weights)
        return {k: silent if k in left_out else loud for k in present}

    def finish(self, server: Server, replies: Replies) -> Steps:
        decision, before = server.state.pop("open"), server.weights
        models = {k: reply["model"] for k, reply in replies.items() if "model" in reply.groups}
        shares = [decision["weights"][k] for k in models]
        if sum(shares) > 0:  # the mean normalises them: over those who answered
            server.weights = mean(list(models.values()), shares)
        clipped = server.state["clipped"]
        clipped |= {k: clipped.get(k, 0) + 1 for k in replies if server.sizes[k] < (decision["batch"] or 0)}
        # Asked now and not with the next download, which would be free: a decision is stored with its reward, and the
        # next state needs the new model's scores before anything is sent.
        judged: Replies = yield Ask("judge", dict.fromkeys(replies, Payload({"model": server.weights})))
        _, accuracy_before, _ = _pooled(server.memory.peek(k) for k in judged)
        for k, reply in judged.items():
            local = {name: replies[k].number(name) for name in ("loss", "accuracy", "divergence")}
            server.memory[k].update(_counts(reply), round=server.round, **local)
        loss, accuracy, samples = _pooled(server.memory.peek(k) for k in judged)
        if samples:
            moved = norm(delta(learned(server.weights, server.network.statistics), before))
            server.state["global"] = [loss, accuracy, moved]
            highest = max(server.state["best"], accuracy_before)
            reward = self._reward(accuracy_before, accuracy, highest, server.round, samples)
            server.state["best"] = max(highest, accuracy)
            yield Reward(ADJUSTMENT, reward)
            self._observe(server, decision, reward)
        if self.learns and server.round == server.rounds:
            self._end(server)

    def _ask_for_scores(self, server: Server, cohort: Sequence[int]) -> Steps:
        """Whose scores are not of the round before (round 1, a newcomer, a drop-out) scores the present model.

        That is the first state: divergence 0. Who does not answer is masked in state and action, and gets no model.
        """
        asked = [k for k in cohort if not _fresh(server, k)]
        if not asked:
            return
        judged: Replies = yield Ask("judge", dict.fromkeys(asked, Payload({"model": server.weights})))
        for k, reply in judged.items():
            row = _counts(reply)
            loss, accuracy, _ = _pooled([row])
            server.memory[k].update(row, round=server.round - 1, loss=loss, accuracy=accuracy, divergence=0.0)
        if server.state["global"] is None and judged:
            loss, accuracy, _ = _pooled(server.memory.peek(k) for k in judged)
            server.state["global"] = [loss, accuracy, 0.0]

    def _adjusted(self, server: Server, clients: Sequence[int], action: Tensor) -> tuple[int | None, dict[int, float]]:
        """The batch size b^t, None for the run's own, and the weights lambda_k^t, which need not sum to one."""
        numbers: list[float] = action.tolist()
        batch = None if self.controls == "weights" else max(1, round(numbers.pop(0)))
        sizes = [float(server.sizes[k]) for k in clients]
        return batch, dict(zip(clients, sizes if self.controls == "batch" else numbers, strict=False))

    def _left_out(self, weights: Mapping[int, float]) -> set[int]:
        """Who is below the threshold; never all: the heaviest client uploads."""
        least = self.threshold * sum(weights.values())
        return {k for k, weight in weights.items() if weight < least} - {max(weights, key=weights.__getitem__)}

    def _reward(self, before: float, after: float, highest: float, round: int, samples: int) -> float:
        """A term of the objective P0 (eq. 7), divided by its largest value alpha."""
        return float(self.alpha ** (after - 1))

    def _begin(self, server: Server) -> None:
        """Before the first round of an episode."""

    def _observe(self, server: Server, decision: Mapping[str, Any], reward: float) -> None:
        """What a decision brought."""

    def _end(self, server: Server) -> None:
        """Learn from the episode."""

    # On a client

    def fit(self, client: Client) -> None:
        batch = client.payload.config.get("batch")
        client.train(batch_size=None if batch is None else max(1, min(batch, client.samples)))

    def upload(self, client: Client) -> Payload:
        """The scores of the trained model and, unless it is not wanted, the model."""
        trained = client.weights()
        score = client.evaluate("val")
        samples = max(score.samples, 1)
        moved = norm(delta(learned(trained, client.network.statistics), client.received))
        numbers: dict[str, Any] = {
            "loss": score.loss / samples,
            "accuracy": score.correct / samples,
            "divergence": moved,
        }
        wanted = client.payload.config.get("upload", True)
        return Payload({"model": select(trained, client.shared)} if wanted else {}, numbers)

    def judge(self, client: Client, payload: Payload) -> Payload:
        """How the global model does on the client's validation data: sums, to be pooled."""
        client.load(payload["model"])
        score = client.evaluate("val")
        return Payload(numbers={"summed": score.loss, "correct": score.correct, "samples": score.samples})


class BWA(Adjusted):
    """FedAvg whose batch size and aggregation weights an agent adjusts in every round (Bang et al., 2024).

    Exchanged: the model and the batch size b^t down; the model, its loss, accuracy and divergence up; the new global
    model down once more, its loss and accuracy up.
    Client k: E epochs of SGD with batches of b^t (eq. 2, 3); scores of the trained w_k on its validation data.
    Server: state s^t = loss, accuracy and divergence ||w_j^{t+1} - w_0^t|| (eq. 5) of the global model, j = 0, and of
    every client; action a^t = (b^t, lambda^t) with b^t in [1, 64] and lambda^t on the simplex; w_0^{t+1} = sum_k
    lambda_k^t w_k^{t+1} (eq. 4); reward r^t = (phi^{t+1} - phi^t) / phi^t of its validation accuracy phi (eq. 8), times
    t where phi^{t+1} is the highest so far. An episode is a whole federation; PPO learns at its end (Alg. 1).
    """

    name: ClassVar = "bwa"
    card: ClassVar = Card(
        paper="Bang, Woo and Lee, DRL-empowered joint batch size and weighted aggregation adjustment mechanism for "
        "federated learning on non-IID data, ICT Express",
        year=2024,
        exchanged="the model and a batch size down, the model and three numbers up (below the threshold only the "
        "numbers); the new model down, its loss and accuracy up",
        server_state="the global model; the agent: actor, critic, their moments; means and deviations of what it saw; "
        "six numbers of every client",
        cost="that of FedAvg with the chosen batch size, and two forward passes over the validation data",
        limits=(
            "one batch size and weights by data size: FedAvg with that batch size",
            "controls = batch: Adaptive-B; controls = weights: Adaptive-AW",
        ),
        deviations=(
            "loss and accuracy are those of validation data, the global model's pooled over the clients that answered; "
            "a reward compares both models on the same clients' data",
            "losses and divergences enter the agent as log(1 + x), all numbers standardised by those of past episodes",
            "the critic learns lambda-returns; the paper's loss takes the critic's next value (trace = 0)",
            "phi^t = 0 counts as one right sample, so that a reward is finite",
            "clients that do not answer are masked in state and action, and the weights of the others sum to one",
            "the batch size is a rounded logistic variable, one logit for 64 neighbouring values, by ratios: twice the "
            "batch is half the steps",
            "the rates, passes and discount of PPO are not in the paper: ours learn from a few hundred decisions, each "
            "for its own reward (discount 0), since a short episode says little about the distant future",
            "batch size and weights are clipped by themselves in PPO's objective, and weights learn in small steps",
        ),
        only_sums=False,
    )
    carries: ClassVar = ("agent", "tally", "scale", "values", "former", "kept")

    reward: Literal["gain", "objective", "rise"] = Field(
        "gain",
        description="eq. 8 with its bonus; alpha^accuracy, a term of the objective itself (eq. 7); or the rise of the "
        "accuracy, whose sum is what a run ends with",
    )
    network: Literal["flat", "per-slot"] = Field(
        "flat", description="the agent's networks: flat is the paper's; per-slot serves any number of clients"
    )
    hidden: int = Field(256, ge=1, le=100_000, description="units of each of the two hidden layers")
    actor_lr: float = Field(3e-3, gt=0, le=1, description="learning rate of the actor")
    critic_lr: float = Field(3e-3, gt=0, le=1, description="learning rate of the critic")
    updates: int = Field(10, ge=0, le=10_000, description="passes M over the decisions of an episode; 0 never learns")
    critic_updates: int | None = Field(None, ge=0, le=10_000, description="passes of the critic; none: as many")
    critic_first: int = Field(
        0, ge=0, description="episodes from which the critic alone learns: a raw one takes earlier rounds for better"
    )
    clip: float = Field(0.2, gt=0, lt=1, description="how far an action's probability may move and still gain")
    discount: float = Field(
        0.0, ge=0, lt=1, description="weight of the next round's value; near 1, learning takes far more episodes"
    )
    trace: float = Field(0.95, ge=0, le=1, description="lambda of the returns: 1 trusts rewards, 0 the critic")
    centred: bool = Field(
        True, description="whether an episode's advantages have mean 0; false: one better than expected counts as such"
    )
    keep: Literal["last", "best"] = Field(
        "last",
        description=f"the policy that pre-training leaves: what was learned last, or that in the middle of the "
        f"{WINDOW} episodes in a row with the highest objective (eq. 7)",
    )

    def inert(self) -> str | None:
        return "updates = 0: the agent never learns" if self.updates == 0 and self.learns else super().inert()

    def start_server(self, server: Server) -> None:
        super().start_server(server)
        settings = PPOSettings(
            hidden=(self.hidden, self.hidden),
            network=self.network,
            actor_lr=self.actor_lr,
            critic_lr=self.critic_lr,
            epochs=self.updates,
            critic_epochs=self.critic_updates,
            critic_first=self.critic_first,
            clip=self.clip,
            centred=self.centred,
            discount=self.discount,
            trace=self.trace,
        )
        heads: dict[str, Head] = {
            "batch": IntegerHead(self.smallest, self.largest, ratios=True),
            "weights": SimplexHead(SPREAD, unit=SPREAD),
        }
        mine = {name: head for name, head in heads.items() if self.controls in ("both", name)}
        server.state["agent"] = PPO(server.largest_cohort, FEATURES, mine, settings, server.stream("agent"))
        # Numbers seen in all episodes: how many, their sum, the sum of their squares.
        server.state["tally"] = torch.zeros(3, FEATURES, dtype=torch.double)
        # Their mean and deviation up to the last episode: within one, equal numbers look equal to the agent.
        server.state["scale"] = torch.stack([torch.zeros(FEATURES), torch.ones(FEATURES)])
        server.state["value"] = None  # the objective of this episode, as far as it is known
        server.state["values"] = []  # of the latest episodes
        server.state["former"] = None  # the policy of the episode before
        server.state["kept"] = None  # the best policy so far

    def learned(self, server: Server) -> dict[str, Any]:
        # without the values: what they were elsewhere says nothing about another federation
        own = {key: server.state[key] for key in ("agent", "tally", "scale")}
        if self.keep == "best" and server.state["kept"] is not None:
            own["agent"] = deepcopy(server.state["agent"])
            own["agent"].load_state_dict(server.state["kept"]["agent"])
            own["scale"] = server.state["kept"]["scale"]
        return own

    def shape(self, server: Server) -> dict[str, int | str]:
        shape: dict[str, int | str] = {
            "controls": self.controls,
            "batch sizes": f"{self.smallest} to {self.largest}",
            "network": f"{self.network} with {self.hidden} hidden units",
        }
        return shape if self.network == "per-slot" else {**shape, "clients in a round": server.largest_cohort}

    def decide(self, server: Server, question: Decide) -> Tensor:
        agent: PPO = server.state["agent"]
        stream = server.stream("exploration") if self.learns and not server.greedy else None
        return agent.act(_scaled(server, question.observation), question.mask, stream)

    def _reward(self, before: float, after: float, highest: float, round: int, samples: int) -> float:
        if self.reward == "objective":
            return super()._reward(before, after, highest, round, samples)
        if self.reward == "rise":
            return after - before
        gain = (after - before) / max(before, 1 / samples)
        return gain * round if after > highest else gain

    def _begin(self, server: Server) -> None:
        # An episode whose last round nobody answered has not been learned from.
        if self.learns:
            self._end(server)

    def _observe(self, server: Server, decision: Mapping[str, Any], reward: float) -> None:
        if not self.learns:
            return
        observation, mask, action = decision["observation"], decision["mask"], decision["action"]
        agent: PPO = server.state["agent"]
        last = server.round == server.rounds
        agent.observe(_scaled(server, observation), action, reward, mask, done=last)
        rows = _compressed(observation)[mask].double()
        server.state["tally"] += torch.stack([torch.ones_like(rows), rows, rows.square()]).sum(1)
        accuracy: float = server.state["global"][1]
        server.state["value"] = (server.state["value"] or 0.0) + self.alpha ** (accuracy - 1)

    def _end(self, server: Server) -> None:
        if self.keep == "best":
            self._judge_policy(server)
        # Deviation: the critic's loss (Alg. 1, line 19) is that of lambda-returns, whose targets stay as they are while
        # it learns; with trace = 0 they are the paper's r + gamma V(s').
        server.state["agent"].learn(server.stream("learning"))
        count, total, squares = server.state["tally"]
        if float(count[0]):
            centre = total / count
            deviation = (squares / count - centre.square()).clamp(min=1e-6).sqrt()
            server.state["scale"] = torch.stack([centre, deviation]).float()

    def _judge_policy(self, server: Server) -> None:
        """Keep the policy in the middle of the latest episodes if they were better than any before."""
        if server.state["value"] is None:
            return
        server.state["values"] = values = [*server.state["values"], server.state["value"]][-WINDOW:]
        best = -1.0 if server.state["kept"] is None else server.state["kept"]["value"]
        if len(values) == WINDOW and fmean(values) > best:
            server.state["kept"] = {**server.state["former"], "value": fmean(values)}
        agent = deepcopy({**server.state["agent"].state_dict(), "buffer": {}})
        now = {"episode": server.moment.episode, "scale": server.state["scale"].clone(), "agent": agent}
        server.state["former"] = now


class AdaptiveB(BWA):
    """BWA that adjusts the batch size alone (Zhang et al., 2021, as compared by Bang et al., 2024).

    Exchanged, client and reward: those of BWA.
    Server: action a^t = b^t; w_0^{t+1} = sum_k n_k / n w_k^{t+1}.
    """

    name: ClassVar = "adaptive-b"
    card: ClassVar = Card(
        paper="Zhang et al., Adaptive Federated Learning on Non-IID Data With Resource Constraint, IEEE Transactions "
        "on Computers",
        year=2021,
        exchanged=BWA.card.exchanged,
        server_state=BWA.card.server_state,
        cost=BWA.card.cost,
        limits=("one batch size: FedAvg with that batch size",),
        deviations=("state, reward and agent are BWA's, as in its comparison; the paper has its own",),
        only_sums=False,
    )
    controls: Literal["batch"] = Field("batch", description="what is decided; the weights are by data size")


class AdaptiveAW(BWA):
    """BWA that adjusts the aggregation weights alone (Guo et al., 2022, as compared by Bang et al., 2024).

    Exchanged, client and reward: those of BWA, with the run's batch size.
    Server: action a^t = lambda^t; w_0^{t+1} = sum_k lambda_k^t w_k^{t+1}.
    """

    name: ClassVar = "adaptive-aw"
    card: ClassVar = Card(
        paper="Guo et al., Auto-FedRL: Federated Hyperparameter Optimization for Multi-institutional Medical Image "
        "Segmentation, ECCV",
        year=2022,
        exchanged=BWA.card.exchanged.replace(" and a batch size", ""),
        server_state=BWA.card.server_state,
        cost="that of FedAvg, and two forward passes over the validation data",
        limits=("weights by data size: FedAvg",),
        deviations=(
            "state, reward and agent are BWA's, as in its comparison; the paper searches several hyper-parameters",
        ),
        only_sums=False,
    )
    controls: Literal["weights"] = Field("weights", description="what is decided; the batch size is the run's")


def _fresh(server: Server, client: int) -> bool:
    """Whether a client's scores are of the round before this one."""
    return bool(server.memory.peek(client).get("round") == server.round - 1)


def _state(server: Server, clients: Sequence[int]) -> tuple[Tensor, Tensor]:
    """s^t (slots, 6), a row for each client with the server's numbers repeated, and the mask of their slots."""
    slots = server.largest_cohort
    rows = [server.memory.peek(k) for k in clients]
    numbers = [[row["loss"], row["accuracy"], row["divergence"], *server.state["global"]] for row in rows]
    state = torch.zeros(slots, FEATURES)
    state[: len(clients)] = torch.tensor(numbers)
    return state, torch.arange(slots) < len(clients)


def _compressed(state: Tensor) -> Tensor:
    """The state with log(1 + x) of losses and divergences, which may be of any order."""
    return torch.where(torch.tensor([True, False, True] * 2), state.clamp(min=0).log1p(), state)


def _scaled(server: Server, state: Tensor) -> Tensor:
    """What the agent sees: in deviations from the mean of what was seen before; in episode 0 as it is."""
    scale: Tensor = server.state["scale"]
    return ((_compressed(state) - scale[0]) / scale[1]).clamp(-FAR, FAR)


def _counts(reply: Payload) -> dict[str, float]:
    return {name: reply.number(name) for name in ("summed", "correct", "samples")}


def _pooled(rows: Iterable[Mapping[str, Any]]) -> tuple[float, float, int]:
    """Mean loss and accuracy over the validation samples of all rows, and their number."""
    known = list(rows)
    samples = sum(row["samples"] for row in known)
    loss, correct = (sum(row[name] for row in known) for name in ("summed", "correct"))
    return loss / max(samples, 1), correct / max(samples, 1), int(samples)
