from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from importlib.util import find_spec
from typing import Any, ClassVar, Literal

import torch
from pydantic import Field
from torch import Tensor

from fedtailor.agents import AgentSettings
from fedtailor.errors import UserError
from fedtailor.methods.adjustment import Adjusted
from fedtailor.methods.base import Card
from fedtailor.parties import AgentTables, Decider, Question, Replies, Server, State, Steps

LEAST = 0.01  # smallest number before normalisation: weights cannot all be 0


@dataclass
class Trial(State):
    """An evaluation of the search."""

    batch: int
    weights: list[float]  # one for every client of the federation
    value: float = 0.0  # the objective so far


@dataclass
class Trials(State):
    """The evaluations of the search: ``server.state["trials"]``."""

    complete: list[Trial] = field(default_factory=list)
    present: Trial | None = None  # the evaluation of this episode


class SearchSettings(AgentSettings):
    """Settings of the search, which replaces an agent."""

    decider: Literal["search", "uniform", "random"] = Field(
        "search",
        description="what makes the decision: the search, equal weights with the run's batch size, or a random choice",
    )


class BoBWAAgents(AgentTables):
    """The search decides; there is no agent."""

    rules: ClassVar = ("search",)

    adjustment: SearchSettings = SearchSettings()


class BoBWA(Adjusted):
    """One batch size and fixed aggregation weights, found by Bayesian optimisation (Bang et al., 2024).

    Exchanged and client: those of BWA.
    Server: an episode is an evaluation: b and lambda stay the same in all its rounds, and its value is the objective
    P0 = sum_t alpha^{phi^t} (eq. 7) of the validation accuracy phi. A Gaussian process is fitted to all evaluations so
    far, and the next b and lambda are those of the largest expected improvement. The policy is the best evaluation.
    """

    name: ClassVar = "bo-bwa"
    carries: ClassVar = ("trials",)
    layout: ClassVar = 3

    agents: BoBWAAgents = BoBWAAgents()

    def check(self) -> None:
        super().check()
        if self._learns and (find_spec("optuna") is None or find_spec("greenlet") is None):
            raise UserError("bo-bwa needs optuna: pip install 'fedtailor[bo]'")

    def idle_settings(self) -> frozenset[str]:
        return super().idle_settings() | {"spread"}

    def total(self) -> str | None:
        return "an evaluation of the search ends with the last round"

    # On the server

    def start_server(self, server: Server) -> None:
        super().start_server(server)
        server.state["trials"] = Trials()

    def prepare(self, server: Server, cohort: Sequence[int]) -> Steps:
        if server.round == 1 and not server.greedy:
            server.state["trials"].present = self._trial(server)
        return (yield from super().prepare(server, cohort))

    def finish(self, server: Server, replies: Replies) -> Steps:
        reward: float | None = yield from super().finish(server, replies)
        trials: Trials = server.state["trials"]
        assert trials.present is not None
        trials.present.value += reward or 0.0
        if self._learns and server.round == server.rounds:
            trials.complete.append(trials.present)

    def learned(self, server: Server) -> dict[str, Any]:
        return {"trials": Trials(server.state["trials"].complete)}

    def shape(self, server: Server) -> dict[str, int | str]:
        return {"controls": self.controls, "clients": server.clients, "layout": self.layout}

    @property
    def _learns(self) -> bool:
        return self.agents.adjustment.learns_with(self.has_policy)

    def _deciders(self) -> Mapping[str, Decider | None]:
        return {"search": _as_evaluated}

    def _trial(self, server: Server) -> Trial:
        """The evaluation of a new episode: the next one of the search or, if it does not learn, the best so far."""
        trials: Sequence[Trial] = server.state["trials"].complete
        if self._learns:
            seed = int(torch.randint(2**31, (), generator=server.stream("trial")))
            return self._suggestion(trials, server.clients, seed)
        equal = Trial(server.training.batch_size, [1.0] * server.clients)
        return replace(max(trials, key=lambda trial: trial.value, default=equal), value=0.0)

    def _suggestion(self, trials: Sequence[Trial], clients: int, seed: int) -> Trial:
        """Suggest the next evaluation. It depends only on earlier evaluations and the seed, so that runs can resume.

        Each call makes a new study: a sampler that is reused would start its fit from the previous one.
        """
        import optuna
        from optuna.distributions import BaseDistribution, FloatDistribution, IntDistribution

        optuna.logging.set_verbosity(optuna.logging.WARNING)
        space: dict[str, BaseDistribution] = {}
        if self.controls != "weights":
            space["batch"] = IntDistribution(self.smallest, self.largest, log=True)
        if self.controls != "batch":
            space |= {str(k): FloatDistribution(LEAST, 1.0) for k in range(clients)}
        study = optuna.create_study(direction="maximize", sampler=optuna.samplers.GPSampler(seed=seed))
        for trial in trials:
            known = {"batch": trial.batch, **{str(k): weight for k, weight in enumerate(trial.weights)}}
            params = {name: known[name] for name in space}
            study.add_trial(optuna.create_trial(params=params, distributions=space, value=trial.value))
        found = study.ask(space).params
        weights = [found.get(str(k), 1.0) for k in range(clients)]
        return Trial(found.get("batch", self.smallest), weights)


def _as_evaluated(server: Server, question: Question) -> Tensor:
    """The action of the evaluation: its batch size, and its weights of the present clients."""
    trial: Trial = server.state["trials"].present
    own = [trial.weights[int(k)] for k in question.keys]
    weights = torch.zeros(len(question.mask))
    weights[list(question.places)] = torch.tensor(own) / sum(own)
    numbers = {"batch": torch.tensor([float(trial.batch)]), "weights": weights}
    return torch.cat([numbers[action] for action in question.declared.actions])


BoBWA.card = Card(
    paper="Bang, Woo and Lee, DRL-empowered joint batch size and weighted aggregation adjustment mechanism for "
    "federated learning on non-IID data, ICT Express",
    year=2024,
    exchanged="the model and a batch size down, the model and three numbers up (below the threshold only the "
    "numbers); the new model down, its loss and accuracy up",
    server_state="the global model; all evaluations; six numbers of every client",
    cost="as FedAvg with the chosen batch size, plus two forward passes over the validation data; a Gaussian "
    "process once in an episode",
    limits=("one batch size and weights by data size: FedAvg with that batch size",),
    deviations=(
        "the objective is divided by alpha, and its accuracy is that of validation data",
        "weights are searched as numbers in [0.01, 1] and divided by their sum, batch sizes by their logarithm",
        "the paper does not name its optimiser: ours is Optuna's GPSampler, its first ten evaluations random",
    ),
    only_sums=False,
)
