"""The round loop: choose a cohort, prepare, fit, finish, evaluate, commit.

Each round is one transaction, so a run that is ended at any time is at a round boundary. Results are processed in the
order of client ids. No decision depends on measured time.
"""

import time
from collections.abc import Callable, Mapping
from functools import partial

from fedtailor.devices import RoundTimes
from fedtailor.engines import Engine, Job
from fedtailor.errors import UserError
from fedtailor.methods import Decider, Payload, Policy
from fedtailor.runs.assembly import assemble
from fedtailor.runs.callbacks import Callback
from fedtailor.runs.cohort import choose_cohort
from fedtailor.runs.evaluation import Evaluator
from fedtailor.runs.ledger import Ledger, Round
from fedtailor.runs.phases import Phases, Recorder
from fedtailor.runs.settings import Experiment
from fedtailor.runs.store import Store
from fedtailor.runs.tasks import Tasks
from fedtailor.weights import Weights


class ClientsFailed(UserError):
    """Every client of a round failed with an error in the method's code."""

    def __init__(self, sentence: str, details: str):
        super().__init__(sentence)
        self.details = details


class RoundLoop:
    """Runs the rounds of one episode, from the last stored round on."""

    def __init__(
        self,
        experiment: Experiment,
        job: Job,
        engine: Engine,
        store: Store,
        callbacks: Callback,
        deciders: Mapping[str, Decider] | None = None,
        policy: Policy | None = None,
        episodes: int = 1,
    ):
        self.experiment, self.method, self.callbacks = experiment, job.method, callbacks
        self.ledger = Ledger(store, job.seed, experiment.rounds, episodes)
        self.made = assemble(experiment, job, self.ledger.moment)
        self.server = self.ledger.server(self.made, policy)
        self.tasks = Tasks(engine, store, callbacks, self.ledger.stateful)
        self.phases = Phases(self.made, self.server, self.tasks, Recorder(deciders or {}, callbacks))
        self.evaluator = Evaluator(self.made, self.server, self.tasks, self.phases, self.ledger, callbacks)

    def run(self, stop: Callable[[], bool] = lambda: False) -> bool:
        """Run to the end of the episode. Returns False if ``stop`` ended it at an earlier round boundary."""
        while self.server.round <= self.experiment.rounds:
            if stop():
                return False
            self._one_round()
            self.server.at(round=self.server.round + 1)
        return not self.experiment.evaluation.final or self.evaluator.final_pass(stop)

    def personal_model(self, client: int) -> Weights:
        """The model that this client would deploy now: it receives and trains once more."""
        return self.deployed(client)["model"]

    def deployed(self, client: int) -> Payload:
        """The same model; the config holds the name of its network in the method's family."""
        return self.evaluator.deployed(client)

    def _one_round(self) -> None:
        begin, watch = time.perf_counter(), self.tasks.watch
        watch.reset()
        server, method, drive = self.server, self.method, self.phases.drive
        work = Round(server.moment)
        available = self._begin_on_the_clock(work)
        cohort = choose_cohort(self.experiment, self.made.clients, server.moment, available)

        with watch.phase("server"):
            server.decisions.begin_round(server)
            payloads: dict[int, Payload] = dict(sorted(drive(method.prepare(server, cohort), server, work).items()))
        with watch.phase("evaluate"):
            plan = self.evaluator.plan(payloads)
        with watch.phase("train"):
            replies = self.phases.fit(payloads, work, plan.measure, plan.alone)
        with watch.phase("evaluate"):
            self.evaluator.score_received(plan, work)
        if replies:
            with watch.phase("server"):
                drive(method.finish(server, replies), server, work)
                server.decisions.end_round(server)
        elif work.details:
            reason = next(iter(work.failed.values()))
            raise ClientsFailed(f"every client failed in round {server.round}: {reason}", work.details)

        with watch.phase("evaluate"):
            self.evaluator.score_server(work)
            metrics = self.evaluator.metrics(work)
        with watch.phase("store"):
            phases = partial(watch.seconds, getattr(self.tasks.engine, "workers", 1))
            report = self.ledger.commit(server, cohort, work, metrics, begin, phases)
        self.callbacks.round_done(report)

    def _begin_on_the_clock(self, work: Round) -> list[int] | None:
        """Find the time on the clock at which the previous round has ended and a client is available.

        Returns the available clients; None if all are available.
        """
        clock = self.made.clock
        if clock is None:
            if self.tasks.engine.remote:
                work.times = RoundTimes(self.ledger.round_end())
            return None
        begin, available = clock.availability.first(self.ledger.round_end())
        work.times = RoundTimes(begin, clock.deadline)
        return available
