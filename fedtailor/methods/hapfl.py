import math
from collections.abc import Mapping, Sequence
from typing import Any, ClassVar, Literal

from pydantic import Field, model_validator
from torch import Tensor

from fedtailor.agents import Categorical, Kind, PPOSettings, Simplex
from fedtailor.messages.payload import Payload
from fedtailor.methods.allocation import beside, cohorts, divide, positive, relative
from fedtailor.methods.base import AgentMethod, Card
from fedtailor.methods.distillation import distilled
from fedtailor.methods.entropy import label_entropy, reply_weights
from fedtailor.methods.hapfl_models import LiteAndLocal
from fedtailor.methods.hapfl_state import Allocation, Kept, Timeline
from fedtailor.methods.search import imitate_search, search_shares, search_sizes
from fedtailor.models import TRAINING, Network, SideBySide
from fedtailor.parties import (
    AgentTables,
    Ask,
    Client,
    Decide,
    Decider,
    Decision,
    Feature,
    Replies,
    Reward,
    Server,
    Steps,
)

SIZE, INTENSITY = "size", "intensity"  # the names of the decisions


class HAPFLAgents(AgentTables):
    """The agents of HAPFL: PPO1 chooses sizes, PPO2 intensities."""

    rules: ClassVar = ("search",)

    size: PPOSettings = PPOSettings(hidden=(64, 64), actor_lr=0.02, buffer=5, discount=0.0)
    intensity: PPOSettings = PPOSettings(hidden=(64, 64, 64), actor_lr=3e-4, buffer=5, discount=0.0)


class HAPFL(LiteAndLocal):
    """Two agents choose every client's model size and number of epochs to avoid waiting (Chen et al., 2025).

    The run's model is the LiteModel, which all clients train together with a local model of one of ``sizes``.
    Exchanged: first, the time T^d of an epoch of the LiteModel up; then the LiteModel, the model of the chosen size and
    the number of epochs tau down; both models, their accuracies and the entropy H of the labels up.
    Server: PPO1 chooses sizes a from T^d' = T^d / min T^d (eq. 16, 17), rewarded with MD - max / min of the time of an
    epoch (eq. 23). PPO2 chooses shares sigma of the epochs from M(a) T^d' (eq. 24, 25), rewarded with min - max of the
    training times T^l (eq. 28); all train one epoch, and sigma divides the other k E - k (eq. 12, 13, 27). The
    new LiteModel and, apart from it, the new model of each size is the mean of its cohort's, weighted with
    W = (softmax(H) + softmax(acc)) / 2 (eq. 38).
    Client: minimises L1 = lambda1 CE + lambda2 D_KL(local || lite) over the local model and L2 = lambda3 CE + lambda4
    D_KL(lite || local) over the LiteModel, at once and each with the other's outputs as given (eq. 33, 34).
    Models: ``global`` is the LiteModel, and each size's model has its name; received, held and final are a client's
    local model, the one it would deploy.
    Comments name the lines of Algorithm 1.
    """

    name: ClassVar = "hapfl"
    best_rules: ClassVar = {SIZE: "search", INTENSITY: "search"}
    agents_use: ClassVar = frozenset({"state", "warm"})
    rewards_use: ClassVar = frozenset({"md"})
    needs_validation: ClassVar = True
    uses_accuracy: ClassVar = True
    uses_clock: ClassVar = True
    counts_epochs: ClassVar = True
    carries: ClassVar = ("timeline",)

    adapts: Literal["both", "sizes", "intensities", "neither"] = Field(
        "both", description="what the agents decide in each round; otherwise the last of the sizes, and equal epochs"
    )
    lambda1: float = Field(0.4, ge=0, le=1000, description="weight of the labels for the local model")
    lambda2: float = Field(0.6, ge=0, le=1000, description="weight of the LiteModel's outputs for the local model")
    lambda3: float = Field(0.5, ge=0, le=1000, description="weight of the labels for the LiteModel")
    lambda4: float = Field(0.5, ge=0, le=1000, description="weight of the local model's outputs for the LiteModel")
    md: float = Field(10.0, ge=0, description="ratio MD of the slowest to the fastest time at which PPO1's reward is 0")
    state: Literal["ratio", "log", "full"] = Field(
        "ratio",
        description="times that agents see: T / min T, or its logarithm; `full` adds the work of every size and the "
        "mean number of epochs, so that a policy is for any sizes and epochs",
    )
    warm: int = Field(0, ge=0, le=1_000_000, description="steps of imitating the search before the first round")
    agents: HAPFLAgents = HAPFLAgents()

    @model_validator(mode="after")
    def _imitates_what_it_sees(self) -> "HAPFL":
        if self.warm and self.state == "full":
            raise ValueError("warm is for the states ratio and log: what it imitates shows no sizes and epochs")
        return self

    # On the server

    def start_server(self, server: Server) -> None:
        server.state["hapfl"] = Kept.of(server.network, server.family)  # line 1; the framework does lines 2, 3
        server.state["timeline"] = Timeline()

    def prepare(self, server: Server, cohort: Sequence[int]) -> Steps:
        if self.warm and server.decisions.untrained(server):
            imitate_search(server, SIZE, INTENSITY, list(server.state["hapfl"].ratios.values()), self.warm)
        seconds: dict[int, float] = yield from self._assess(server, cohort)  # lines 8-11
        payloads: dict[int, Payload] = {}
        for group in cohorts(seconds, server.largest_cohort):  # several in the final pass, which prepares all clients
            given: Allocation = yield from self._allocate(server, group)  # line 12
            server.state["timeline"].latest = given
            payloads |= {k: self._payload(server, given.sizes[k], given.epochs[k]) for k in group}  # line 13
        return payloads

    def finish(self, server: Server, replies: Replies) -> Steps:
        kept, timeline, given = server.state["hapfl"], server.state["timeline"], server.state["timeline"].latest
        self._aggregate(server, replies, given.sizes)  # lines 20, 21
        # Line 22: rewards from the times T^l of the clients that answered. The framework does lines 23-30.
        work = {k: kept.training(given.sizes[k], server.sizes[k], given.epochs[k]) for k in replies}
        given.training = seconds = {k: positive(replies.computed(k, work[k])) for k in replies}
        timeline.first = timeline.first or given
        if len(seconds) < 2:
            return
        rates = [seconds[k] / given.epochs[k] for k in seconds]
        # Deviation: PPO2's reward is in units of E epochs of the LiteModel on the fastest client, for any data set.
        unit = max(1, server.training.epochs) * positive(min(given.seconds.values()))
        rewards = {
            SIZE: self.md - max(rates) / min(rates),  # eq. 23
            INTENSITY: (min(seconds.values()) - max(seconds.values())) / unit,  # eq. 28
        }
        for name, value in rewards.items():
            if (name, None) in server.decisions:
                yield Reward(server.decisions[name, None], value)

    def _assess(self, server: Server, cohort: Sequence[int]) -> Steps:
        """The times T^d of the clients that answer."""
        kept: Kept = server.state["hapfl"]
        assessed: Replies = yield Ask("assess", dict.fromkeys(cohort, Payload(numbers={"flops": kept.lite})))
        return {k: assessed.computed(k, kept.assessing(reply.number("samples"))) for k, reply in assessed.items()}

    def _allocate(self, server: Server, seconds: Mapping[int, float]) -> Steps:
        """Choose sizes and epochs of these clients, which are sorted by their times T^d."""
        ratios: dict[str, float] = server.state["hapfl"].ratios  # M(a)
        names, work, each = list(ratios), list(ratios.values()), max(1, server.training.epochs)
        given = Allocation(dict(seconds), dict.fromkeys(seconds, names[-1]), dict.fromkeys(seconds, each))
        times = relative(seconds)  # T^d', eq. 16
        if SIZE in server.decisions.declared:
            more = [math.log(ratio / work[0]) for ratio in work[1:]]
            states = {k: self._seen(time, *more) for k, time in times.items()}  # S^1, eq. 17
            decision = yield Decide(SIZE, states, context={"ratios": work})
            given.sizes = {k: names[int(place)] for k, place in decision[SIZE].items()}  # A^1, eq. 18
        if INTENSITY in server.decisions.declared and len(seconds) > 1:
            loads = {k: ratios[given.sizes[k]] * time for k, time in times.items()}
            states = {k: self._seen(load, math.log(each)) for k, load in loads.items()}  # S^2, eq. 24, 25
            total = each * len(seconds)
            decision = yield Decide(INTENSITY, states, context={"epochs": total})
            epochs = divide(list(decision[INTENSITY].values()), total)  # A^2, eq. 26, 27
            given.epochs = dict(zip(seconds, epochs, strict=True))
        return given

    def _payload(self, server: Server, size: str, epochs: int) -> Payload:
        groups = {"model": server.weights, size: server.state["hapfl"].sizes[size]}
        return Payload(groups, config={"size": size, "epochs": epochs})

    def _aggregate(self, server: Server, replies: Replies, sizes: Mapping[int, str]) -> None:
        # Deviation: w + sum_i W_i (w_i - w), which is this mean; eq. 39 would add the mean to w.
        server.weights = server.average(replies, weights=reply_weights(replies, "lite accuracy"))
        for size in server.family:
            if group := {k: reply for k, reply in replies.items() if sizes[k] == size and size in reply.groups}:
                weights = reply_weights(group, "local accuracy")
                server.state["hapfl"].sizes[size] = server.average(group, size, weights=weights)

    # On a client

    def assess(self, client: Client, payload: Payload) -> Payload:
        """Lines 9, 10: train the LiteModel for an epoch and discard it; skipped unless time is measured."""
        if client.measured:
            client.train(epochs=1)
        client.spend(TRAINING * payload.number("flops") * client.samples)
        return Payload(numbers={"samples": client.samples})

    def fit(self, client: Client) -> None:
        """Line 16: train both models."""
        self._distil(client, client.payload.config.get("epochs"))

    def _distil(self, client: Client, epochs: int | None) -> None:
        lite, local, kind = client.network, client.model, client.criterion

        def objective(_both: Network, inputs: Tensor, targets: Tensor) -> Tensor:
            x, y = local(inputs), lite(inputs)
            learned = distilled(kind, x, y, targets, hard=self.lambda1, soft=self.lambda2)  # L1, eq. 33
            return learned + distilled(kind, y, x, targets, hard=self.lambda3, soft=self.lambda4)  # L2, eq. 34

        client.train(network=SideBySide({"lite": lite, "local": local}), epochs=epochs, objective=objective)
        self.keep_statistics(client)

    def upload(self, client: Client) -> Payload:
        """Lines 17, 18: score both models and send them."""
        entropy = label_entropy(client.data("train")[1])
        lite, local = (client.evaluate("val", network).accuracy for network in (client.network, client.model))
        return Payload(self.trained(client), {"entropy": entropy, "lite accuracy": lite, "local accuracy": local})

    # The agents

    def decisions(self, server: Server) -> Sequence[Decision]:
        made, sizes = [], len(server.family)
        if self.adapts in ("both", "sizes") and sizes > 1:
            made.append(self._decision(server, SIZE, Categorical(sizes), search_sizes, Feature("log work", sizes - 1)))
        if self.adapts in ("both", "intensities"):
            made.append(self._decision(server, INTENSITY, Simplex(), search_shares, Feature("log epochs")))
        return made

    def _decision(self, server: Server, name: str, kind: Kind, search: Decider, more: Feature) -> Decision:
        features = self._seen(Feature("time", scale="" if self.state == "ratio" else "log"), more)
        slots, deciders = server.largest_cohort, {"search": search}
        return Decision(name, features, {name: kind}, self.agents.of(name), slots, deciders=deciders)

    def _seen(self, time: Any, *more: Any) -> list[Any]:
        """What agents see of a client: its time and, in the state `full`, what is the same for all clients."""
        return [time, *more] if self.state == "full" else [time]

    def rehearsal(self) -> AgentMethod:
        from fedtailor.methods.hapfl_rehearsal import HAPFLRehearsal  # which extends this class

        return HAPFLRehearsal.model_validate(dict(super().rehearsal()))

    def learned(self, server: Server) -> dict[str, Any]:
        return {}  # the timeline is not part of a policy

    def may_fit(self, shape: Mapping[str, int | str]) -> bool:
        chosen = self.adapts in ("both", "sizes") and self.size_count > 1
        return not chosen or shape.get(f"{SIZE}, actions") == f"{SIZE}: {Categorical(self.size_count).describe()}"

    def inert(self) -> str | None:
        if self.adapts in ("both", "sizes") and self.size_count < 2:
            return "there is only one size of local models: name several in method.sizes"
        return super().inert() if self.adapts != "neither" else None

    # Clients from outside the federation

    def welcome(self, server: Server, client: int) -> Steps:
        """Choose a new client's size within the latest cohort, where it replaces the client with the nearest time."""
        seconds: dict[int, float] = yield from self._assess(server, [client])
        if not seconds:
            return {}
        latest: Allocation | None = server.state["timeline"].latest
        cohort = beside(latest.seconds if latest else {}, client, seconds[client], server.largest_cohort)
        given: Allocation = yield from self._allocate(server, cohort)
        return {client: self._payload(server, given.sizes[client], given.epochs[client])}

    def adapt(self, client: Client) -> None:
        """Train both models with the same objective, for as many passes as the client makes."""
        self._distil(client, None)


HAPFL.card = Card(
    paper="Chen et al., Heterogeneity-aware Personalized Federated Learning via Adaptive Dual-Agent Reinforcement "
    "Learning",
    year=2025,
    exchanged="an assessed time up; LiteModel, local model, size and epochs down; both models, their validation "
    "accuracies and the entropy of the client's labels (one number, no histogram) up",
    server_state="the LiteModel; a model of every size; two agents: actor, critic, their moments and buffers",
    cost="as FedAvg with LiteModel and local model, one epoch of the LiteModel (on the clock only), and a "
    "forward pass of both over the validation data",
    limits=(
        "one size, equal devices and data, adapts = neither, lambda3 = 1, lambda4 = 0: FedAvg of LiteModels with "
        "the weights W",
        "adapts = sizes: the same epochs for all; adapts = intensities: the last of sizes for all",
    ),
    deviations=(
        "the mean replaces the old model; eq. 39 adds it to the old model, which would grow",
        "the accuracies in W are those of validation data",
        "the agents' slots are sorted by the assessed times, so that agents know no client ids",
        "the reward of PPO2 is in units of E epochs of the LiteModel on the fastest client",
        "whole epochs: the shares of sigma are rounded down, the rest goes to the largest remainders, and "
        "of equal ones to the fastest client's",
        "each decision is its own episode (discount 0), since allocations do not change the next cohort's times",
        "the paper does not give the agents' networks and passes over a buffer: ours are usual ones",
        "by default the agents begin with the policy of the package and do not learn; with policy = none they learn "
        "in the run, as in the paper",
        "by default there are two sizes, the run's model and one of half its width, and devices up to 3 times apart in "
        "speed; recipes/hapfl has the paper's",
    ),
    only_sums=False,
)
