from collections.abc import Mapping, Sequence
from typing import Any, ClassVar, Literal

import torch
from pydantic import Field
from torch import Tensor

from fedtailor.agents.replay import Replay
from fedtailor.agents.vdn import VDN, VDNSettings
from fedtailor.learning import TrainingSettings
from fedtailor.messages.payload import Payload
from fedtailor.messages.trees import Stored
from fedtailor.methods.base import AgentMethod, Card
from fedtailor.models import Network
from fedtailor.parties import Ask, Client, Decide, Replies, Reward, Server, Steps
from fedtailor.weights import select

STOP, EPOCHS = "termination", "epochs"  # the names of the decisions
AGENTS = {STOP: 2, EPOCHS: 3}  # the options of their agents: go on or stop; fewer epochs, the same, more
FEATURES = 4  # loss and time of the first epoch, time of a transfer, number of samples


class FedDdrl(AgentMethod):
    """FedAvg whose clients train one epoch and are then stopped, or go on for a chosen time (Wong et al., 2023).

    Exchanged: the model down, the loss and time of an epoch of probing up; then, to those who go on, a number of epochs
    down, the model up; the new global model down to all once more, its accuracy up.
    Client k: one epoch; if it goes on, E_k - 1 more.
    Server: state s_k = loss and time of the probing, time of a transfer, n_k; two agents with Q(s, a) = sum_k q(s_k,
    a_k) choose for every client whether it is terminated and whether E_k is smaller than, equal to or larger than E;
    the new global model is the mean of those who went on, by data size; the reward of both agents is w1 times the gain
    in accuracy, minus w2 times the time of the round, minus w3 times the share of clients that upload.
    """

    name: ClassVar = "fedddrl"
    card: ClassVar = Card(
        paper="Wong et al., FedDdrl: Federated Double Deep Reinforcement Learning for Heterogeneous IoT with Adaptive "
        "Early Client Termination and Local Epoch Adjustment, Sensors",
        year=2023,
        exchanged="the model down, two numbers up; a number of epochs down and, unless terminated, the model up; the "
        "new model down, its accuracy up",
        client_state="of a client that was terminated: the model it was sent, and its own after the first epoch",
        server_state="the global model; two agents: network, target network, moments, replay",
        cost="that of FedAvg with the chosen numbers of epochs, and two forward passes over the validation data",
        limits=("warmup of all rounds: FedAvg, whose first epoch is a task of its own",),
        deviations=(
            "Balanced-MixUp, with which the paper changes the training data, is left out: it fits any method",
            "accuracy is that of validation data, pooled over all clients that probed, before and after: the server "
            "has no test data",
            "the gain is that of the accuracy itself, and the time is relative to FedAvg's round: the slowest client's "
            "E epochs",
            "without a policy, the first rounds of a run are FedAvg's; the paper trains the agents before",
            "if all were to be terminated, the fastest goes on",
            "the final pass trains E epochs",
        ),
        only_sums=False,
    )
    needs_validation: ClassVar = True
    uses_clock: ClassVar = True
    carries: ClassVar = tuple(AGENTS)

    w1: float = Field(10.0, ge=0, description="weight of the gain in accuracy (0 to 1)")
    w2: float = Field(0.2, ge=0, description="weight of the round's time, relative to FedAvg's")
    w3: float = Field(0.1, ge=0, description="weight of the share of clients that upload a model")
    change: float = Field(0.5, ge=0, le=1, description="share of E by which the number of epochs may differ from it")
    warmup: int = Field(10, ge=0, description="rounds in which nobody is stopped and all train E epochs; 0 with policy")
    epsilon: float = Field(0.1, ge=0, le=1, description="probability of an option at random, while it learns")
    learn: Literal["auto", "always", "never"] = Field(
        "auto", description="auto learns if there is no policy; who does not learn does not explore either"
    )
    updates: int = Field(10, ge=0, le=10_000, description="steps of each agent's learning in a round")
    hidden: int = Field(64, ge=1, le=100_000, description="units of each of the two hidden layers")
    lr: float = Field(1e-3, gt=0, le=1, description="learning rate of the agents")
    discount: float = Field(0.9, ge=0, lt=1, description="weight of the next round's value")
    batch: int = Field(32, ge=1, le=100_000, description="rounds in a step of learning")
    capacity: int = Field(10_000, ge=1, description="rounds in the replay")

    @property
    def learns(self) -> bool:
        return self.updates > 0 and (self.learn == "always" or (self.learn == "auto" and self.policy is None))

    def inert(self) -> str | None:
        if self.policy is None and not self.learns:
            return "the agents have no policy and do not learn"
        return None

    def rehearsal(self) -> "FedDdrl":
        """Without FedAvg's rounds at the start; a policy is what learning starts from."""
        return self.model_copy(update={"learn": "always", "warmup": 0})

    def misfit(self, training: TrainingSettings, network: Network) -> str | None:
        if training.steps is not None:
            return "training.steps does not count: clients train a number of epochs, training.epochs without decisions"
        return None

    # On the server

    def start_server(self, server: Server) -> None:
        settings = VDNSettings(
            hidden=(self.hidden, self.hidden),
            lr=self.lr,
            batch=self.batch,
            capacity=self.capacity,
            discount=self.discount,
        )
        for name, options in AGENTS.items():
            server.state[name] = VDN(server.largest_cohort, FEATURES, options, settings, server.stream(name))
        server.state["before"] = None  # the last round's decisions, which wait for the state after them

    def shape(self, server: Server) -> dict[str, int | str]:
        return {"network": f"{self.hidden} hidden units"}

    def learned(self, server: Server) -> dict[str, Any]:
        empty = Replay(1).state_dict()
        return {name: Stored({**server.state[name].state_dict(), "replay": empty}) for name in AGENTS}

    def prepare(self, server: Server, cohort: Sequence[int]) -> Steps:
        each = max(1, server.training.epochs)
        if server.greedy:
            return dict.fromkeys(cohort, Payload({"model": server.weights}, config={"epochs": each}))
        probed: Replies = yield Ask("probe", dict.fromkeys(cohort, Payload({"model": server.weights})))
        if not probed:
            return {}
        clients = list(probed)
        seconds = {k: probed.computed(k, reply.number("samples")) for k, reply in probed.items()}
        state, mask = _state(server, probed, seconds)
        self._learn(server, state, mask)
        actions = {}
        for name in AGENTS:
            actions[name] = yield Decide(name, state, mask)
        stopped = {k for k, stop in zip(clients, actions[STOP].tolist(), strict=False) if stop}
        if len(stopped) == len(clients):
            stopped.remove(min(clients, key=lambda k: (seconds[k], k)))
        steps = dict(zip(clients, actions[EPOCHS].tolist(), strict=False))
        epochs = {k: max(1, round(each * (1 + (steps[k] - 1) * self.change))) for k in clients if k not in stopped}
        server.state["open"] = {
            "decision": {"state": state, "mask": mask, **actions},
            "seconds": seconds,
            "before": {k: [reply.number(name) for name in ("correct", "validation")] for k, reply in probed.items()},
        }
        return {k: Payload(config={"epochs": number}) for k, number in epochs.items()}

    def decide(self, server: Server, question: Decide) -> Tensor:
        assert question.mask is not None
        if self.policy is None and server.moment.episode == 0 and server.round <= self.warmup:
            return question.mask.float() if question.name == EPOCHS else torch.zeros(len(question.mask))
        agent: VDN = server.state[question.name]
        stream = server.stream(f"exploration of {question.name}") if self.learns else None
        return agent.act(question.observation, question.mask, self.epsilon, stream)

    def finish(self, server: Server, replies: Replies) -> Steps:
        opened = server.state.pop("open")
        super().finish(server, replies)
        # by all clients: if those who went on judged alone, one of them alone would gain most
        judged: Replies = yield Ask("judge", dict.fromkeys(opened["before"], Payload({"model": server.weights})))
        after = [[reply.number(name) for name in ("correct", "validation")] for reply in judged.values()]
        gain = _accuracy(after) - _accuracy([opened["before"][k] for k in judged])
        # what a round of FedAvg takes: its slowest client's E epochs
        usual = max(1, server.training.epochs) * max(opened["seconds"].values())
        ends = [
            opened["seconds"][k] + replies.computed(k, (reply.number("epochs") - 1) * reply.number("samples"))
            for k, reply in replies.items()
        ]
        uploads = len(replies) / len(opened["seconds"])
        reward = self.w1 * gain - self.w2 * max(ends) / max(usual, 1e-12) - self.w3 * uploads
        for name in AGENTS:
            yield Reward(name, reward)
        server.state["before"] = {**opened["decision"], "reward": reward}

    def _learn(self, server: Server, state: Tensor, mask: Tensor) -> None:
        """Now that the state after the last round's decisions is known, learn from them."""
        before: Mapping[str, Any] | None = server.state["before"]
        server.state["before"] = None
        if before is None or not self.learns:
            return
        draws = server.stream("replay")
        for name in AGENTS:
            agent: VDN = server.state[name]
            agent.observe(before["state"], before["mask"], before[name], before["reward"], state, mask)
            for _ in range(self.updates):
                agent.learn(draws)

    # On a client

    def probe(self, client: Client, payload: Payload) -> Payload:
        """One epoch, kept for `fit`; and how good the received model is."""
        client.load(payload["model"])
        score = client.evaluate("val")
        trace = client.train(epochs=1)
        trained = select(client.weights(), client.shared)
        client.state["probed"] = {"round": client.round, "received": payload["model"], "trained": trained}
        numbers = {"correct": score.correct, "validation": score.samples}
        return Payload(numbers={"loss": trace.loss, "samples": client.samples, **numbers})

    def receive(self, client: Client, payload: Payload) -> None:
        probed = client.state.get("probed", {})
        if "model" in payload.groups or probed.get("round") != client.round:
            client.state.pop("probed", None)  # of a round in which it was stopped
            client.load(payload.groups.get("model", {}))
        else:
            client.load(probed["received"])

    def fit(self, client: Client) -> None:
        epochs: int = client.payload.config.get("epochs", max(1, client.training.epochs))
        probed = client.state.pop("probed", None)
        if probed is not None:
            client.load(probed["trained"])
        client.train(epochs=epochs if probed is None else epochs - 1)

    def upload(self, client: Client) -> Payload:
        epochs = client.payload.config.get("epochs", max(1, client.training.epochs))
        numbers = {"samples": client.samples, "epochs": epochs}
        return Payload({"model": select(client.weights(), client.shared)}, numbers)

    def judge(self, client: Client, payload: Payload) -> Payload:
        """How good the new global model is."""
        client.load(payload["model"])
        score = client.evaluate("val")
        return Payload(numbers={"correct": score.correct, "validation": score.samples})


def _state(server: Server, probed: Replies, seconds: Mapping[int, float]) -> tuple[Tensor, Tensor]:
    """The state (slots, 4) of the clients that answered, first slots first, and the mask of their slots.

    Of one order in every federation: the logarithm of losses, and of all else relative to its mean.
    """
    transfers = {k: probed.times[k].transfer if k in probed.times else 0.0 for k in probed}
    columns = [
        torch.tensor([probed[k].number("loss") for k in probed]).clamp(min=0).log1p(),
        _relative([seconds[k] for k in probed]),
        _relative([transfers[k] for k in probed]),
        _relative([probed[k].number("samples") for k in probed]),
    ]
    state = torch.zeros(server.largest_cohort, FEATURES)
    state[: len(probed)] = torch.stack(columns, 1).float()
    return state, torch.arange(server.largest_cohort) < len(probed)


def _relative(values: Sequence[float]) -> Tensor:
    known = torch.tensor(values, dtype=torch.double).clamp(min=1e-12)
    return (known / known.mean()).log()


def _accuracy(counts: Sequence[Sequence[float]]) -> float:
    """Right ones of all samples, pooled; 0 without samples."""
    return sum(row[0] for row in counts) / max(sum(row[1] for row in counts), 1)
