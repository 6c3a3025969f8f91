"""The round loop: choose a cohort, prepare, fit, finish, evaluate, commit.

Each round is one transaction, so a run that is ended at any time is at a round boundary. Results are processed in the
order of client ids. No decision depends on measured time.
"""

import time
import traceback
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from functools import partial

from fedtailor.devices import RoundTimes
from fedtailor.engines import Engine, Job
from fedtailor.errors import UserError, one_line
from fedtailor.methods import Decider, Payload, Policy
from fedtailor.runs.assembly import assemble
from fedtailor.runs.callbacks import Callback
from fedtailor.runs.cohort import choose_cohort
from fedtailor.runs.evaluation import Evaluator
from fedtailor.runs.flaws import flaw_of
from fedtailor.runs.ledger import Ledger, Round, warn
from fedtailor.runs.phases import Phases, Recorder
from fedtailor.runs.settings import Experiment
from fedtailor.runs.stopping import Keeper
from fedtailor.runs.store import Store
from fedtailor.runs.tasks import Tasks
from fedtailor.weights import Weights

ROUNDS_WITHOUT_MODEL = 3  # rounds in a row without a usable model after which a run ends


class MethodFailed(UserError):
    """A method's code failed. The run is at its last complete round."""

    def __init__(self, sentence: str, details: str):
        super().__init__(sentence)
        self.details = details


class ClientsFailed(MethodFailed):
    """Every client of a round failed with an error in the method's code."""


class NoUsableModel(UserError):
    """No client trains a usable model any more: the run would only repeat its last rounds."""


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
        self._policy = policy
        self.server = self.ledger.server(self.made, policy)
        self.keeper = Keeper(store, experiment.checkpoints, experiment.stopping)
        self.tasks = Tasks(engine, store, callbacks, self.ledger.stateful)
        self.phases = Phases(self.made, self.server, self.tasks, Recorder(deciders or {}, callbacks))
        self.evaluator = Evaluator(self.made, self.server, self.tasks, self.phases, self.ledger, callbacks)

    def run(self, stop: Callable[[], bool] = lambda: False) -> bool:
        """Run to the end of the episode. Returns False if ``stop`` ended it at an earlier round boundary."""
        while self.server.round <= self.experiment.rounds and self.keeper.stopped is None:
            if stop():
                return False
            self._one_round()
            self.server.at(round=self.server.round + 1)
        self._warn_of_attack()
        if not self.experiment.evaluation.final:
            return True
        return self.evaluator.final_pass(stop) and self.evaluator.new_pass(stop)

    def personal_model(self, client: int) -> Weights:
        """The model that this client would deploy now: it receives and trains once more."""
        return self.deployed(client)["model"]

    def deployed(self, client: int) -> Payload:
        """The same model; the config holds the name of its network in the method's family."""
        return self.evaluator.deployed(client)

    def _one_round(self) -> None:
        begin, stopwatch = time.perf_counter(), self.tasks.stopwatch
        if self.experiment.privacy.generator == "system":
            self.ledger.charge()
        stopwatch.reset()
        server, method, drive = self.server, self.method, self.phases.drive
        work = Round(server.moment)
        available = self._begin_on_the_clock(work)
        cohort = choose_cohort(self.experiment, self.made.clients, server.moment, available)

        with stopwatch.phase("server"), self._undoing("prepare"):
            server.decisions.begin_round(server)
            payloads: dict[int, Payload] = dict(sorted(drive(method.prepare(server, cohort), server, work).items()))
        with stopwatch.phase("evaluate"):
            plan = self.evaluator.plan(payloads)
        with stopwatch.phase("train"):
            replies = self.phases.fit(payloads, work, plan.measure, plan.alone)
        with stopwatch.phase("evaluate"):
            self.evaluator.score_received(plan, work)
        if replies or self.experiment.privacy.hides_clients:  # without replies there is still noise
            with stopwatch.phase("server"), self._undoing("finish"):
                drive(method.finish(server, replies), server, work)
                server.decisions.end_round(server)
                if flaw := flaw_of(server):
                    self._undo(work, flaw)
        elif work.details:
            reason = next(iter(work.failed.values()))
            raise ClientsFailed(f"every client failed in round {server.round}: {reason}", work.details)
        elif work.diverged:
            self.ledger.go_back(server)

        with stopwatch.phase("evaluate"):
            self.evaluator.score_server(work)
            metrics = self.evaluator.metrics(work)
        with stopwatch.phase("store"):
            phases = partial(stopwatch.seconds, getattr(self.tasks.engine, "workers", 1))
            report = self.ledger.commit(server, cohort, work, metrics, begin, phases, self.keeper)
        self.callbacks.round_done(report)
        if cohort and not work.trained:
            self._check_for_a_model()

    @contextmanager
    def _undoing(self, moment: str) -> Iterator[None]:
        """An error of the method, which may come from any reply, ends the run; the round was not stored."""
        try:
            yield
        except UserError:
            raise
        except Exception as error:
            what = f"{type(self.method).__name__}.{moment} failed in round {self.server.round}"
            sentence = f"{what}, which was undone ({one_line(f'{type(error).__name__}: {error}')})"
            raise MethodFailed(sentence, traceback.format_exc()) from error

    def _undo(self, work: Round, flaw: str) -> None:
        """Return server and clients to their states before the round; the round stays in the records as failed."""
        round = self.server.round
        vars(self.server).update(vars(self.ledger.server(self.made, self._policy)))
        self.server.at(round=round)
        work.undo(flaw)

    def _check_for_a_model(self) -> None:
        """End the run if no model can be trained any more: it would only repeat the last rounds.

        A simulated attack that succeeds is a result of its own, so such a run continues, and says so at its end.
        """
        if self.experiment.attack is not None:
            return
        if reasons := self.ledger.why_no_model(ROUNDS_WITHOUT_MODEL):
            raise NoUsableModel(
                f"no client has trained a usable model in {ROUNDS_WITHOUT_MODEL} rounds (last reason: {reasons[-1]}): "
                "a lower training.lr helps against divergence, robust aggregation against malicious clients"
            )

    def _warn_of_attack(self) -> None:
        if self.experiment.attack is not None and (reasons := self.ledger.why_no_model(ROUNDS_WITHOUT_MODEL)):
            sentence = (
                f"the attack ruined the model: no client trained a usable one in the last {ROUNDS_WITHOUT_MODEL} rounds"
            )
            warn(self.ledger.store, self.callbacks, f"{sentence} (last reason: {reasons[-1]})")

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
