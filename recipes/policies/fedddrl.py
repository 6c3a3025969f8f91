"""Trains an agent pair for FedDdrl on small federations with devices, and compares it with rules.

A client's training does not depend on what the agents decide for the others. So the models after every epoch are made
once for each state, and a joint decision costs a mean of models and its scores. In each state many decisions are drawn,
and both networks follow the gradient of the method's own reward, each draw against the mean of the others (common
random numbers). Accuracies are those of many held-out samples of all clients.
"""

import math
import random
from collections.abc import Callable, Mapping
from dataclasses import dataclass

import federations as sim
import torch
from federations import Model
from torch import Tensor

from fedtailor.agents import VDN, VDNSettings
from fedtailor.learning.optimisers import Adam

FEATURES = 4  # log loss, log time, log transfer, log samples
STOP, EPOCHS = "termination", "epochs"
OPTIONS = {STOP: 2, EPOCHS: 3}
W1, W2, W3, CHANGE = 10.0, 0.2, 0.1, 0.5  # the method's defaults
POINT = W1 / 100  # the reward for a point of accuracy
ROUNDS = 12
DRAWS, STATES = 24, 12  # joint decisions in a state, and states in a step
FEDERATIONS = 400

Choice = Callable[["Federation", Tensor], tuple[Tensor, Tensor]]  # from the state to options of both agents


def build(seed: int) -> dict[str, VDN]:
    """Two agents that do not look at numbers of samples, which are equal here."""
    stream = torch.Generator().manual_seed(seed)
    agents = {name: VDN(1, FEATURES, options, VDNSettings(), stream) for name, options in OPTIONS.items()}
    for agent in agents.values():
        with torch.no_grad():
            agent.network.parameters[0][:, FEATURES - 1] = 0.0
    return agents


@dataclass
class Federation:
    """A federation between two rounds."""

    made: sim.Scenario
    seconds: Tensor  # (clients,) of an epoch
    transfers: Tensor
    model: Model
    seed: int
    round: int = 0

    @classmethod
    def drawn(cls, data: tuple[Tensor, Tensor], draws: random.Random) -> "Federation":
        made = sim.scenario(data, draws)
        spread = math.exp(draws.uniform(0.0, math.log(30)))
        seconds = torch.tensor([spread ** draws.random() for _ in range(made.clients)])
        transfers = torch.tensor([math.exp(draws.gauss(0, 0.5)) for _ in range(made.clients)])
        return cls(made, seconds, transfers, sim.initial(made, draws), draws.getrandbits(30))

    def snapshots(self) -> list[Model]:
        """All clients' models after 0, 1, 2, ... epochs of this round."""
        made, found = self.made, [sim.spread_out(self.model, self.made.clients)]
        for epoch in range(self.epochs(torch.tensor([2]))[0]):
            found.append(sim.trained(found[-1], made, made.batch, 1, self.seed + 100 * self.round + int(epoch)))
        return found

    def epochs(self, pace: Tensor) -> Tensor:
        usual = self.made.epochs
        steps = [max(1, round(usual * (1 + step * CHANGE))) for step in (-1, 0, 1)]
        return torch.tensor(steps)[pace.long()]

    def state(self, snapshots: list[Model]) -> Tensor:
        """What the agents see (clients, features)."""
        losses = [sim.scores(models, self.made.train)[0] for models in snapshots[:2]]
        loss = torch.stack(losses).mean(0)  # about that of the first epoch
        relative = [(values / values.mean()).log() for values in (self.seconds, self.transfers)]
        return torch.stack([loss.log1p(), *relative, torch.zeros_like(loss)], 1)

    def outcome(self, snapshots: list[Model], stop: Tensor, pace: Tensor) -> tuple[Model, float, float]:
        """The next model, its reward, and the time of the round, relative to FedAvg's."""
        goes = stop < 0.5
        if not goes.any():
            goes = self.seconds == self.seconds.min()
        epochs = self.epochs(pace)
        kept = torch.nonzero(goes).flatten().tolist()
        parts = range(len(self.model))
        model = [torch.stack([snapshots[int(epochs[k])][i][k] for k in kept]).mean(0, keepdim=True) for i in parts]
        ends = (epochs * self.seconds)[goes]
        usual = self.made.epochs * float(self.seconds.max())
        time, idle = float(ends.max()) / usual, float((ends.max() - ends).mean()) / usual
        gain = self.accuracy(model) - self.accuracy(self.model)
        if not all(bool(torch.isfinite(part).all()) for part in model):
            return self.model, -W2 * time - W3 * idle, time
        return model, W1 * gain - W2 * time - W3 * idle, time

    def accuracy(self, model: Model) -> float:
        return float(sim.scores(sim.spread_out(model, self.made.clients), self.made.held)[1].mean())


def greedy(agents: Mapping[str, VDN]) -> Choice:
    def choose(_one: Federation, state: Tensor) -> tuple[Tensor, Tensor]:
        with torch.no_grad():
            return agents[STOP].network(state).argmax(-1), agents[EPOCHS].network(state).argmax(-1)

    return choose


def stopping_those(slower: float, pace: int = 1) -> Choice:
    """A rule stops the clients that take over ``slower`` times the median time; ``pace`` sets the others' epochs."""

    def choose(one: Federation, _state: Tensor) -> tuple[Tensor, Tensor]:
        stop = one.seconds > slower * one.seconds.median()
        return stop.float(), torch.full((one.made.clients,), pace)

    return choose


RULES = {
    "prior": stopping_those(math.inf),
    "fewer epochs": stopping_those(math.inf, 0),
    "more epochs": stopping_those(math.inf, 2),
    "without slow": stopping_those(1.5),
    "without slow, fewer": stopping_those(1.5, 0),
}


def train(
    pools: Mapping[str, tuple[Tensor, Tensor]], seed: int = 100, federations: int = FEDERATIONS
) -> dict[str, VDN]:
    """Follow the exact reward's gradient through the rounds of many federations."""
    draws, stream, agents = random.Random(seed), torch.Generator().manual_seed(seed), build(seed)
    networks = [agents[STOP].network, agents[EPOCHS].network]
    parameters = [parameter for network in networks for parameter in network.parameters]
    optimiser = Adam(parameters, 5e-3)
    losses: list[Tensor] = []
    done, steps = 0, federations * ROUNDS // STATES
    for _ in range(federations):
        one = Federation.drawn(pools[draws.choice(list(pools))], draws)
        for _ in range(ROUNDS):
            snapshots = one.snapshots()
            state = one.state(snapshots)
            if not bool(torch.isfinite(state).all()):
                break  # it diverged
            likely = [network(state).log_softmax(-1) for network in networks]
            tried, rewards = [], []
            for _ in range(DRAWS):
                stop, pace = (torch.multinomial(part.detach().exp(), 1, generator=stream)[:, 0] for part in likely)
                rewards.append(one.outcome(snapshots, stop, pace)[1])
                tried.append((stop, pace))
            gained = torch.tensor(rewards)
            gained = (gained - gained.mean()) * DRAWS / (DRAWS - 1) / POINT
            loss = torch.zeros(())
            for (stop, pace), gain in zip(tried, gained, strict=True):
                taken = [
                    part.gather(1, chosen[:, None]).sum() for part, chosen in zip(likely, (stop, pace), strict=True)
                ]
                loss = loss - gain * (taken[0] + taken[1]) / DRAWS
            entropy = -sum((part.exp() * part).sum(1).mean() for part in likely)
            losses.append(loss - 0.02 * entropy)
            one.model = one.outcome(snapshots, *tried[0])[0]
            one.round += 1
            if len(losses) == STATES:
                optimiser.lr = 5e-3 * (1 - done / max(steps, done + 1)) + 1e-5
                gradients = torch.autograd.grad(torch.stack(losses).mean(), parameters)
                norm = torch.stack([gradient.norm() for gradient in gradients]).norm()
                optimiser.step([gradient * (1.0 / (norm + 1e-6)).clamp(max=1.0) for gradient in gradients])
                losses, done = [], done + 1
                if done % 50 == 0:
                    print("steps", done, "of", steps, flush=True)
    for agent in agents.values():
        agent.target.load_state_dict(agent.network.state_dict())
    return agents


def judge(
    agents: Mapping[str, VDN], data: tuple[Tensor, Tensor], seed: int, federations: int
) -> dict[str, dict[str, list[float]]]:
    """By measure and row, a number for each federation: the return in points of accuracy, accuracy and time."""
    rows = {"agents": greedy(agents), "from scratch": greedy(build(1)), **RULES}
    found: dict[str, dict[str, list[float]]] = {"return": {}, "accuracy": {}, "time": {}}
    with torch.no_grad():
        for number in range(federations):
            for name, choose in rows.items():
                one = Federation.drawn(data, random.Random(seed + number))
                total, spent = 0.0, 0.0
                for _ in range(ROUNDS):
                    snapshots = one.snapshots()
                    one.model, reward, time = one.outcome(snapshots, *choose(one, one.state(snapshots)))
                    one.round, total, spent = one.round + 1, total + reward, spent + time
                for measure, value in (
                    ("return", total / POINT),
                    ("accuracy", 100 * one.accuracy(one.model)),
                    ("time", 100 * spent / ROUNDS),
                ):
                    found[measure].setdefault(name, []).append(value)
    return found
