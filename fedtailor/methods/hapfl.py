from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any, ClassVar, Literal

import torch
from pydantic import Field, field_validator
from torch import Tensor

from fedtailor.agents import PPO, Head, MultiCategoricalHead, PPOSettings, SimplexHead
from fedtailor.learning import TrainingSettings
from fedtailor.messages.payload import Payload
from fedtailor.messages.trees import Stored
from fedtailor.methods.allocation import best_epochs, best_sizes, divide, even_shares
from fedtailor.methods.base import AgentMethod, Card
from fedtailor.methods.distillation import distilled
from fedtailor.models import TRAINING, ModelSettings, Network, SideBySide, count_flops
from fedtailor.parties import Ask, Client, Decide, Replies, Reward, Server, Steps
from fedtailor.weights import Weights, mean, select

SIZE, INTENSITY = "size", "intensity"  # the names of the decisions
AGENTS = {SIZE: "ppo1", INTENSITY: "ppo2"}  # and where in server.state their agents are
IMITATED = 32  # allocations in a step of the warm start
IMITATION_LR = 0.01  # of its first step; it falls to 0, for shares need to be precise
WIDEST = 1000.0  # the largest ratio of two clients' times in them


class HAPFL(AgentMethod):
    """Two agents choose every client's model size and number of epochs, so that nobody waits (Chen et al., 2025).

    The run's model is the LiteModel, which all clients train beside a local model of one of ``sizes``.
    Exchanged: first, the time T^d of an epoch of the LiteModel up; then the LiteModel, the model of the chosen size and
    the number of epochs tau down; both models, their accuracies and the entropy H of the labels up.
    Server: PPO1 chooses sizes a from T^d' = T^d / min T^d (eq. 16, 17), rewarded with MD - max / min of the time of an
    epoch (eq. 23). PPO2 chooses shares sigma of the epochs from M(a) T^d' (eq. 24, 25), rewarded with min - max of the
    training times T^l (eq. 28); everyone trains one epoch, and sigma divides the other k E - k (eq. 12, 13, 27). The
    new LiteModel and, apart from it, the new model of each size is the mean of its cohort's, weighted with
    W = (softmax(H) + softmax(acc)) / 2 (eq. 38).
    Client: minimises L1 = lambda1 CE + lambda2 D_KL(local || lite) over the local model and L2 = lambda3 CE + lambda4
    D_KL(lite || local) over the LiteModel, at once and each with the other's outputs as given (eq. 33, 34).
    Models: ``global`` is the LiteModel, those of the sizes have their names; received, held and final are a client's
    local model, the one it would deploy.
    """

    name: ClassVar = "hapfl"
    card: ClassVar = Card(
        paper="Chen et al., Heterogeneity-aware Personalized Federated Learning via Adaptive Dual-Agent Reinforcement "
        "Learning",
        year=2025,
        exchanged="an assessed time up; LiteModel, local model, size and epochs down; both models, their validation "
        "accuracies and the entropy of the client's labels (one number, no histogram) up",
        server_state="the LiteModel; a model of every size; two agents: actor, critic, their moments and buffers",
        cost="that of FedAvg with LiteModel and local model, one epoch of the LiteModel (on the clock only), and a "
        "forward pass of both over the validation data",
        limits=(
            "one size, equal devices and data, adapts = neither, lambda3 = 1, lambda4 = 0: FedAvg of LiteModels with "
            "the weights W",
            "adapts = sizes: the same epochs for all; adapts = intensities: the last of sizes for all",
        ),
        deviations=(
            "eq. 39 adds the mean to the old model, which would grow: it takes its place",
            "the accuracies in W are those of validation data",
            "the slots of the agents are in the order of the assessed times, so that they know no client ids",
            "the reward of PPO2 is in units of E epochs of the LiteModel on the fastest client",
            "whole epochs: the shares of sigma are rounded down, the rest goes to the largest remainders, and "
            "of equal ones to the fastest client's",
            "a decision is an episode of its own (discount 0), since allocations do not change the next cohort's times",
            "the networks of the agents and their passes over a buffer are not in the paper: they are usual ones",
        ),
        only_sums=False,
    )
    needs_validation: ClassVar = True
    uses_clock: ClassVar = True
    carries: ClassVar = ("ppo1", "ppo2", "warm", "timeline")

    sizes: tuple[str | dict[str, Any], ...] = Field(
        (),
        max_length=64,
        description="the local models, smallest first: names of 'fedtailor models' or tables as [model]; "
        "none: one like the run's own",
    )
    adapts: Literal["both", "sizes", "intensities", "neither"] = Field(
        "both", description="what is decided anew in each round; fixed are the last of the sizes, and equal epochs"
    )
    by: Literal["agents", "search"] = Field(
        "agents", description="who decides: the two agents, or a search for the best allocation by the assessed times"
    )
    learn: Literal["auto", "always", "never"] = Field(
        "auto", description="auto learns if there is no policy; who does not learn does not explore either"
    )
    lambda1: float = Field(0.4, ge=0, le=1000, description="weight of the labels for the local model")
    lambda2: float = Field(0.6, ge=0, le=1000, description="weight of the LiteModel's outputs for the local model")
    lambda3: float = Field(0.5, ge=0, le=1000, description="weight of the labels for the LiteModel")
    lambda4: float = Field(0.5, ge=0, le=1000, description="weight of the local model's outputs for the LiteModel")
    md: float = Field(10.0, ge=0, description="ratio MD of the slowest to the fastest for which PPO1's reward is 0")
    size_lr: float = Field(0.02, gt=0, le=1, description="learning rate of PPO1")
    intensity_lr: float = Field(3e-4, gt=0, le=1, description="learning rate of PPO2")
    critic_lr: float | None = Field(None, gt=0, le=1, description="learning rate of their critics; none: the same")
    buffer: int = Field(5, ge=1, le=1_000_000, description="decisions that an agent learns from at once")
    updates: int = Field(10, ge=0, le=10_000, description="passes over them; 0 never learns")
    clip: float = Field(0.2, gt=0, lt=1, description="how far an action's probability may move and still gain")
    hidden: int = Field(64, ge=1, le=100_000, description="units of a hidden layer: two of PPO1, three of PPO2")
    network: Literal["flat", "per-slot"] = Field(
        "flat", description="the agents' networks: flat is the paper's; per-slot serves any number of clients"
    )
    state: Literal["ratio", "log"] = Field("ratio", description="how the agents see times: T / min T, or its logarithm")
    warm: int = Field(
        0, ge=0, le=1_000_000, description="steps in which the agents imitate the search before the first round"
    )
    clock_only: bool = Field(
        False, description="nothing is trained or sent, only times are computed: what pre-training needs"
    )

    @field_validator("sizes")
    @classmethod
    def _models(cls, sizes: tuple[str | dict[str, Any], ...]) -> tuple[str | dict[str, Any], ...]:
        for size in sizes:
            ModelSettings.model_validate({"name": size} if isinstance(size, str) else size)
        return sizes

    @property
    def learns(self) -> bool:
        chosen = self.learn == "always" or (self.learn == "auto" and self.policy is None)
        return chosen and self.by == "agents" and self.updates > 0

    def inert(self) -> str | None:
        if self.adapts in ("both", "sizes") and len(self.sizes) < 2:
            return "there is one size of local models only: name several in method.sizes"
        if self.adapts != "neither" and self.by == "agents" and not self.learns and self.policy is None:
            return "the agents have no policy and do not learn"
        return None

    def rehearsal(self) -> "HAPFL":
        """Rewards depend on times alone, so nothing need be trained; a policy is what learning starts from."""
        return self.model_copy(update={"learn": "always", "clock_only": True})

    def misfit(self, training: TrainingSettings, network: Network) -> str | None:
        if training.steps is not None:
            return "training.steps does not count: intensities are epochs, training.epochs on average"
        return None

    def passes(self, epochs: int) -> float:
        return 2.0 * epochs  # of the LiteModel and of the local model

    def family(self, model: ModelSettings) -> dict[str, ModelSettings]:
        if not self.sizes:
            return {"local": model}
        tables = [{"name": size} if isinstance(size, str) else size for size in self.sizes]
        common = {"running_statistics": model.running_statistics}
        made = [ModelSettings.model_validate({**table, **common}) for table in tables]
        times = Counter(size.name for size in made)
        return {
            size.name if times[size.name] == 1 else f"{size.name}-{place}": size for place, size in enumerate(made, 1)
        }

    # On the server

    def start_server(self, server: Server) -> None:
        lite = count_flops(server.network, server.network.inputs)
        # Multiply-adds of a sample's forward pass through both models; M(a) is their ratio to the LiteModel's.
        server.state["flops"] = {name: lite + count_flops(n, n.inputs) for name, n in server.family.items()}
        server.state["lite"] = max(lite, 1)
        models = {} if self.clock_only else server.family
        server.state["sizes"] = {name: network.weights() for name, network in models.items()}
        server.state["timeline"] = {}  # what the clients did in the first and in the latest round
        server.state["warm"] = False
        lrs = {SIZE: self.size_lr, INTENSITY: self.intensity_lr}
        depths = {SIZE: 2, INTENSITY: 3}
        heads: dict[str, Head] = {SIZE: MultiCategoricalHead(len(server.family)), INTENSITY: SimplexHead()}
        for decision, agent in AGENTS.items():
            settings = PPOSettings(
                hidden=(self.hidden,) * depths[decision],
                network=self.network,
                actor_lr=lrs[decision],
                critic_lr=self.critic_lr or lrs[decision],
                buffer=self.buffer,
                epochs=self.updates,
                clip=self.clip,
                discount=0.0,
            )
            head = {decision: heads[decision]}
            server.state[agent] = PPO(server.largest_cohort, 1, head, settings, server.stream(agent))

    def learned(self, server: Server) -> dict[str, Any]:
        return {agent: Stored({**server.state[agent].state_dict(), "buffer": {}}) for agent in AGENTS.values()}

    def shape(self, server: Server) -> dict[str, int | str]:
        shape: dict[str, int | str] = {
            "sizes": len(server.family),
            "state": self.state,
            "network": f"{self.network} with {self.hidden} hidden units",
        }
        return shape if self.network == "per-slot" else {**shape, "clients in a round": server.largest_cohort}

    def prepare(self, server: Server, cohort: Sequence[int]) -> Steps:
        if self.warm and self.by == "agents" and not server.state["warm"] and self.policy is None:
            self._warm_up(server)
            server.state["warm"] = True
        lite: int = server.state["lite"]
        assessed: Replies = yield Ask("assess", dict.fromkeys(cohort, Payload(numbers={"flops": lite})))
        seconds = {k: assessed.computed(k, TRAINING * lite * reply.number("samples")) for k, reply in assessed.items()}
        order = sorted(seconds, key=lambda k: (seconds[k], k))
        # The final pass prepares more clients than a round has: groups of fast and slow ones, as cohorts are.
        groups = -(-len(order) // server.largest_cohort)
        payloads: dict[int, Payload] = {}
        for place in range(groups):
            payloads |= yield from self._allocated(server, {k: seconds[k] for k in order[place::groups]})
        return payloads

    def decide(self, server: Server, question: Decide) -> Tensor:
        assert question.mask is not None
        if self.by == "search":
            return self._search(server, question.name, question.observation[question.mask, 0].tolist())
        agent: PPO = server.state[AGENTS[question.name]]
        stream = server.stream(f"exploration of {question.name}") if self.learns and not server.greedy else None
        return agent.act(self._seen(question.observation), question.mask, stream)

    def finish(self, server: Server, replies: Replies) -> Steps:
        decided = server.state.pop("open")
        yield from self._rewards(server, replies, decided)
        models = {k: reply for k, reply in replies.items() if "model" in reply.groups}
        if models:
            # Deviation: w + sum_i W_i (w_i - w), which is this mean; eq. 39 would add the mean to w.
            server.weights = _aggregate([reply["model"] for reply in models.values()], list(models.values()), "lite")
        for size in server.family:
            group = [reply for k, reply in models.items() if decided["size"][k] == size and size in reply.groups]
            if group:
                server.state["sizes"][size] = _aggregate([reply[size] for reply in group], group, "local")

    def models(self, server: Server) -> dict[str, Weights]:
        sizes = server.state["sizes"]
        return super().models(server) | {name: {**server.family[name].weights(), **sizes[name]} for name in sizes}

    # Allocation and rewards

    def _allocated(self, server: Server, seconds: Mapping[int, float]) -> Steps:
        """Size and epochs of these clients, who come in the order of their assessed times T^d."""
        clients, names = list(seconds), list(server.family)
        ratios = [server.state["flops"][name] / server.state["lite"] for name in names]  # M(a)
        fastest = _positive(min(seconds.values()))
        relative = [_positive(seconds[k]) / fastest for k in clients]  # T^d'
        each = max(1, server.training.epochs)
        plan: dict[str, Any] = {"seconds": dict(seconds), "unit": each * fastest, "decisions": {}}
        sizes = [len(names) - 1] * len(clients)
        if self.adapts in ("both", "sizes") and len(names) > 1:
            action = yield from self._decision(server, plan, SIZE, relative)
            sizes = [int(number) for number in action[: len(clients)].tolist()]
        epochs = [each] * len(clients)
        if self.adapts in ("both", "intensities") and len(clients) > 1:
            loads = [ratios[a] * time for a, time in zip(sizes, relative, strict=True)]  # T^m
            action = yield from self._decision(server, plan, INTENSITY, loads)
            epochs = divide(action[: len(clients)].tolist(), each * len(clients))
        plan["size"] = {k: names[a] for k, a in zip(clients, sizes, strict=True)}
        plan["epochs"] = dict(zip(clients, epochs, strict=True))
        server.state["open"] = plan
        return {k: self._payload(server, plan["size"][k], plan["epochs"][k]) for k in clients}

    def _decision(self, server: Server, plan: dict[str, Any], name: str, times: Sequence[float]) -> Steps:
        """Ask for a decision about clients with these times, one in a slot; what it was is kept for its reward."""
        slots = server.largest_cohort
        observation, mask = torch.zeros(slots, 1), torch.arange(slots) < len(times)
        observation[: len(times), 0] = torch.tensor(times)
        action: Tensor = yield Decide(name, observation, mask)
        plan["decisions"][name] = {"observation": observation, "mask": mask, "action": action}
        return action

    def _payload(self, server: Server, size: str, epochs: int) -> Payload:
        config = {"size": size, "epochs": epochs}
        if self.clock_only:
            return Payload(numbers={"flops": server.state["flops"][size]}, config=config)
        return Payload({"model": server.weights, size: server.state["sizes"][size]}, config=config)

    def _search(self, server: Server, name: str, times: list[float]) -> Tensor:
        """The best decision by the times of the present slots."""
        if name == SIZE:
            chosen = best_sizes(times, [flops / server.state["lite"] for flops in server.state["flops"].values()])
        else:
            chosen = [n - 1 for n in best_epochs(times, max(1, server.training.epochs) * len(times))]
        numbers = torch.zeros(server.largest_cohort)
        numbers[: len(times)] = torch.tensor(chosen, dtype=torch.float)
        return numbers if name == SIZE else numbers / max(1.0, float(numbers.sum()))

    def _rewards(self, server: Server, replies: Replies, decided: Mapping[str, Any]) -> Steps:
        """Eq. 23 and 28 over the clients that answered, and what the agents learn from it."""
        flops: Mapping[str, int] = server.state["flops"]
        sizes, epochs = decided["size"], decided["epochs"]
        seconds = {}
        for k in replies:
            work = TRAINING * flops[sizes[k]] * server.sizes[k] * epochs[k]
            seconds[k] = _positive(replies.computed(k, work))
        rows = [
            {
                "client": k,
                "size": sizes[k],
                "epochs": epochs[k],
                "assessment": decided["seconds"][k],
                "training": seconds[k],
            }
            for k in decided["seconds"]
            if k in seconds
        ]
        server.state["timeline"] = {"first": server.state["timeline"].get("first", rows), "latest": rows}
        if len(seconds) < 2:
            return
        rates = [seconds[k] / epochs[k] for k in seconds]
        # Deviation: PPO2's in units of E epochs of the LiteModel on the fastest client, whatever the data set is.
        values = {
            SIZE: self.md - max(rates) / min(rates),
            INTENSITY: (min(seconds.values()) - max(seconds.values())) / decided["unit"],
        }
        for name, decision in decided["decisions"].items():
            yield Reward(name, values[name])
            if self.learns:
                agent: PPO = server.state[AGENTS[name]]
                seen = self._seen(decision["observation"])
                agent.observe(seen, decision["action"], values[name], decision["mask"], done=True)
                if agent.ready:
                    agent.learn(server.stream(f"learning of {name}"))

    def _seen(self, observation: Tensor) -> Tensor:
        """Times as the agents see them; empty slots are 0 in both ways."""
        return observation.clamp(min=1e-6).log() * (observation > 0) if self.state == "log" else observation

    def _warm_up(self, server: Server) -> None:
        """Let the agents imitate the search for clients with times as different as may be."""
        slots, draws = server.largest_cohort, server.stream("warm start")
        ratios = [flops / server.state["lite"] for flops in server.state["flops"].values()]
        mask = torch.ones(IMITATED, slots, dtype=torch.bool)
        for step in range(self.warm):
            lr = IMITATION_LR * (1 - step / self.warm)
            spread = WIDEST ** torch.rand(IMITATED, 1, generator=draws)
            times = (spread ** torch.rand(IMITATED, slots, generator=draws)).sort(1).values
            times = times / times[:, :1]
            rows: list[list[float]] = times.tolist()
            sizes = [best_sizes(row, ratios) for row in rows]
            wanted = torch.tensor(sizes, dtype=torch.float)
            server.state["ppo1"].imitate(self._seen(times[..., None]), mask, wanted, lr)
            loads = times * torch.tensor(ratios)[torch.tensor(sizes)]
            total = max(1, server.training.epochs) * slots
            shares = torch.tensor([even_shares(row, total) for row in loads.tolist()])
            server.state["ppo2"].imitate(self._seen(loads[..., None]), mask, shares, lr)

    # On a client

    def assess(self, client: Client, payload: Payload) -> Payload:
        """An epoch of the LiteModel, whose weights are thrown away: where no time is measured it need not be run."""
        if client.measured:
            client.train(epochs=1)
        client.spend(TRAINING * payload.number("flops") * client.samples)
        return Payload(numbers={"samples": client.samples})

    def receive(self, client: Client, payload: Payload) -> None:
        if self.clock_only:
            return
        client.load(payload["model"])
        size = payload.config.get("size", next(iter(self.family(ModelSettings()))))
        client.deploy(size)
        client.model.load({**payload.groups.get(size, {}), **client.state.get(f"statistics of {size}", {})})

    def fit(self, client: Client) -> None:
        epochs: int | None = client.payload.config.get("epochs")
        if self.clock_only:
            client.spend(TRAINING * client.payload.number("flops") * client.samples * (epochs or 0))
            return
        lite, local, kind = client.network, client.model, client.training.loss

        def objective(_both: Network, inputs: Tensor, targets: Tensor) -> Tensor:
            x, y = local(inputs), lite(inputs)
            learned = distilled(kind, x, y, targets, hard=self.lambda1, soft=self.lambda2)  # L1, eq. 33
            return learned + distilled(kind, y, x, targets, hard=self.lambda3, soft=self.lambda4)  # L2, eq. 34

        client.train(network=SideBySide({"lite": lite, "local": local}), epochs=epochs, objective=objective)
        if client.statistics == "local" and local.statistics:
            client.state[f"statistics of {client.deployed}"] = select(local.weights(), local.statistics)

    def upload(self, client: Client) -> Payload:
        if self.clock_only:
            return Payload()
        size = client.deployed
        groups = {
            "model": select(client.weights(), client.shared),
            size: select(client.model.weights(), client.shared_of(size)),
        }
        numbers: dict[str, Any] = {"entropy": label_entropy(client.data("train")[1])}
        for name, network in (("lite", client.network), ("local", client.model)):
            score = client.evaluate("val", network)
            numbers[f"{name} accuracy"] = score.correct / max(score.samples, 1)
        return Payload(groups, numbers)


def label_entropy(labels: Tensor) -> float:
    """H of eq. 37, in bits; 0 in a regression, which has no labels."""
    if labels.is_floating_point() or not len(labels):
        return 0.0
    counts = labels.bincount()
    shares = counts[counts > 0].double() / len(labels)
    return float(-(shares * shares.log2()).sum())


def aggregation_weights(entropies: Sequence[float], accuracies: Sequence[float]) -> list[float]:
    """W of eq. 38, which sums to one over the models that are aggregated."""
    both = torch.tensor([entropies, accuracies], dtype=torch.double).softmax(1).mean(0)
    weights: list[float] = both.tolist()
    return weights


def _aggregate(models: Sequence[Weights], replies: Sequence[Payload], which: str) -> Weights:
    entropies = [reply.number("entropy") for reply in replies]
    accuracies = [reply.number(f"{which} accuracy") for reply in replies]
    return mean(models, aggregation_weights(entropies, accuracies))


def _positive(seconds: float) -> float:
    """A client without data takes no time; a ratio needs some."""
    return max(seconds, 1e-12)
