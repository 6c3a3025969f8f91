from collections.abc import Mapping, Sequence
from importlib.util import find_spec
from typing import Any, ClassVar

import torch
from torch import Tensor

from fedtailor.errors import UserError
from fedtailor.methods.base import Card
from fedtailor.methods.bwa import Adjusted
from fedtailor.parties import Decide, Server

Trial = dict[str, Any]  # batch, a weight for every client of the federation, and at its end value

LEAST = 0.01  # of the numbers that weights are made from: zeros for all of them would be no weights


class BoBWA(Adjusted):
    """One batch size and fixed aggregation weights, found by Bayesian optimisation (Bang et al., 2024).

    Exchanged and client: those of BWA.
    Server: an episode is an evaluation: b and lambda stay the same in all its rounds, and its value is the objective
    P0 = sum_t alpha^{phi^t} (eq. 7) of the validation accuracy phi. A Gaussian process is fitted to all evaluations so
    far, and the next b and lambda are those of the largest expected improvement. The policy is the best evaluation.
    """

    name: ClassVar = "bo-bwa"
    card: ClassVar = Card(
        paper="Bang, Woo and Lee, DRL-empowered joint batch size and weighted aggregation adjustment mechanism for "
        "federated learning on non-IID data, ICT Express",
        year=2024,
        exchanged="the model and a batch size down, the model and three numbers up (below the threshold only the "
        "numbers); the new model down, its loss and accuracy up",
        server_state="the global model; all evaluations; six numbers of every client",
        cost="that of FedAvg with the chosen batch size, and two forward passes over the validation data; a Gaussian "
        "process once in an episode",
        limits=("one batch size and weights by data size: FedAvg with that batch size",),
        deviations=(
            "the objective is divided by alpha, and its accuracy is that of validation data",
            "weights are searched as numbers in [0.01, 1] to be divided by their sum, batch sizes by their logarithm",
            "the paper does not name its optimiser: ours is Optuna's GPSampler, its first ten evaluations random",
        ),
        only_sums=False,
    )
    carries: ClassVar = ("trials",)

    def check(self) -> None:
        if self.learns and (find_spec("optuna") is None or find_spec("greenlet") is None):
            raise UserError("bo-bwa needs optuna: pip install 'fedtailor[bo]'")

    def start_server(self, server: Server) -> None:
        super().start_server(server)
        server.state["trials"] = []  # all evaluations
        server.state["trial"] = None  # the one of this episode
        server.state["value"] = 0.0

    def shape(self, server: Server) -> dict[str, int | str]:
        return {"controls": self.controls, "clients": server.clients}

    def decide(self, server: Server, question: Decide) -> Tensor:
        trial: Trial = server.state["trial"]
        own = [trial["weights"][k] for k in server.state["open"]["clients"]]
        weights = torch.zeros(server.largest_cohort)
        weights[: len(own)] = torch.tensor(own) / sum(own)
        batch = torch.tensor([float(trial["batch"])])
        return {"both": torch.cat([batch, weights]), "batch": batch, "weights": weights}[self.controls]

    def _begin(self, server: Server) -> None:
        trials: Sequence[Trial] = server.state["trials"]
        if self.learns:
            seed = int(torch.randint(2**31, (), generator=server.stream("trial")))
            server.state["trial"] = self._suggestion(trials, server.clients, seed)
        elif trials:
            server.state["trial"] = max(trials, key=lambda trial: trial["value"])
        else:
            equal = [1.0] * server.clients
            server.state["trial"] = {"batch": server.training.batch_size, "weights": equal}

    def _observe(self, server: Server, decision: Mapping[str, Any], reward: float) -> None:
        server.state["value"] += reward

    def _end(self, server: Server) -> None:
        server.state["trials"].append({**server.state["trial"], "value": server.state["value"]})

    def _suggestion(self, trials: Sequence[Trial], clients: int, seed: int) -> Trial:
        """What to evaluate next: a function of the evaluations and the seed alone, so that it can be resumed.

        A study is made anew for it: a sampler that lives on starts the fit from that of the evaluation before.
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
            known = {"batch": trial["batch"], **{str(k): weight for k, weight in enumerate(trial["weights"])}}
            params = {name: known[name] for name in space}
            study.add_trial(optuna.create_trial(params=params, distributions=space, value=trial["value"]))
        found = study.ask(space).params
        weights = [found.get(str(k), 1.0) for k in range(clients)]
        return {"batch": found.get("batch", self.smallest), "weights": weights}
