"""Evaluates received, held and global models during a run, and does the final pass at its end."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from fedtailor.errors import UserError
from fedtailor.learning import Score
from fedtailor.messages.trees import pack
from fedtailor.methods import Moment, Payload, Server
from fedtailor.runs.assembly import Assembly, newcomers_clock
from fedtailor.runs.callbacks import Callback
from fedtailor.runs.deployed import largest_models
from fedtailor.runs.fitting import measuring_of
from fedtailor.runs.ledger import TRAINED, Ledger, Round, deployed_ledger, warn
from fedtailor.runs.measures import Measures, population
from fedtailor.runs.measuring import measures
from fedtailor.runs.newcomers import Welcome
from fedtailor.runs.phases import Phases
from fedtailor.runs.scoring import Scorer
from fedtailor.runs.stopping import VALIDATION
from fedtailor.runs.tasks import Packed, Tasks

FINAL_TOGETHER = 64  # clients of the final pass in one transaction
NO_MODEL = "the method sent it no model"


@dataclass(frozen=True)
class Plan:
    """How a round's models are scored."""

    measure: Mapping[int, tuple[str, ...]]  # by client of the cohort: the models that its training task scores
    alike: Mapping[bytes, list[int]] = field(default_factory=dict)  # received weights to the clients that share them
    alone: Sequence[tuple[int, Payload]] = ()  # clients outside the cohort that are scored one by one


class Evaluator:
    """Evaluates the models of a run. Evaluation never changes training."""

    def __init__(
        self, made: Assembly, server: Server, tasks: Tasks, phases: Phases, ledger: Ledger, callbacks: Callback
    ):
        self.made, self.server, self.tasks, self.phases = made, server, tasks, phases
        self.ledger, self.callbacks = ledger, callbacks
        self.settings, self.method = made.experiment.evaluation, made.method
        self.held: dict[int, Score] = ledger.store.latest_scores("held", made.moment.episode)
        self._validated = ledger.store.latest_scores(VALIDATION, made.moment.episode)
        self._last: int | None = None  # the round whose state is deployed, once it is loaded
        measuring = measuring_of(made.experiment, made.job.federation)
        drawn_from = population(self.settings.clients, made.clients)
        self._measures = partial(measures, measuring=measuring, population=drawn_from)
        sizes = made.job.federation.test.sizes[: made.clients]
        self.scorer = Scorer(tasks, sizes, made.moment, made.family, self.settings.together, made.tested)
        self._tested = frozenset(made.tested) if drawn_from else range(made.clients)  # whose models are scored

    def due(self, round: int) -> bool:
        """Whether this round is evaluated."""
        every = self.settings.every
        return every > 0 and (round % every == 0 or round == self.made.experiment.rounds)

    def plan(self, payloads: Mapping[int, Payload]) -> Plan:
        """Plan how this round's models are scored; held models are scored in every round, since scores are kept."""
        measured = {str(model) for model in self.settings.models} - {"global"} if self.settings.every else set()
        if not self.due(self.server.round) or "received" not in measured:
            return Plan(self._measure(payloads, measured - {"received"}))
        alike, alone = self._plan_received(payloads)
        together = {client for clients in alike.values() for client in clients}
        measure = {
            **self._measure(payloads, measured),
            **self._measure(together & payloads.keys(), measured - {"received"}),
        }
        return Plan(measure, alike, alone)

    def _measure(self, clients: Iterable[int], models: set[Any]) -> dict[int, tuple[str, ...]]:
        """By client, what its training task scores: no models of clients that are not tested; all are validated."""
        always = () if self.made.experiment.stopping is None else (VALIDATION,)
        named = (*sorted(models), *always)
        return {client: named if client in self._tested else always for client in clients}

    def score_received(self, plan: Plan, work: Round) -> None:
        """Score the received models that several clients share."""
        for weights, clients in plan.alike.items():
            work.scores.setdefault("received", {}).update(self.scorer.scores(weights, clients))

    def score_server(self, work: Round) -> None:
        """Score the models of the server, and store the clients' held scores."""
        self.held.update(work.scores.get("held", {}))
        self._validated.update(work.scores.get(VALIDATION, {}))
        if self.due(self.server.round) and "global" in self.settings.models:
            work.scores.update(self.scorer.models(self.method.models(self.server)))

    def metrics(self, work: Round) -> dict[str, Measures]:
        """The measures of a round, by model; empty if the round is not evaluated, but for those that stop a run."""
        round, found = work.moment.round, {}
        if self.made.experiment.stopping is not None:
            untrained = self.made.clients - len(self._validated)
            found[VALIDATION] = self._measures(self._validated, round, untrained, population=0)
        if not self.due(round):
            return found
        found |= {model: self._measures(scores, round) for model, scores in work.scores.items() if model not in TRAINED}
        if "held" in self.settings.models:
            never = {c: s for c, s in work.scores.get("received", {}).items() if c not in self.held}
            found["held"] = self._measures({**self.held, **never}, round, len(self._tested) - len(self.held))
        return found

    def final_pass(self, stop: Callable[[], bool]) -> bool:
        """Let every tested client receive and train once more. Results are stored in portions, so it can be resumed.

        Returns False if ``stop`` ended it before it was complete.
        """
        last, clients = self._deploy(), self.made.tested
        moment = Moment(self.made.job.seed, self.server.moment.episode, last)
        done, failed = self.ledger.final_scores(last)
        missing = [client for client in clients if client not in done and client not in failed]
        if not missing and self.ledger.has_final():
            return True
        server = self._preview_server(last + 1)
        work, packed = Round(server.moment), Packed()
        payloads, keeps = self._payloads_for(clients, server, work), self._keeps
        for start in range(0, len(missing), FINAL_TOGETHER):
            if stop():
                return False
            portion = missing[start : start + FINAL_TOGETHER]
            failures = {client: work.failed.get(client, NO_MODEL) for client in portion if client not in payloads}
            models: dict[int, bytes] = {}
            later = partial(self.tasks.later, "final", moment=server.moment, greedy=True, want_model=keeps)
            tasks = [later(client, payloads[client], packed) for client in portion if client in payloads]
            for result in self.tasks.execute(tasks):
                if result.failure is not None:
                    failures[result.client] = result.failure
                else:
                    done[result.client] = result.scores["final"]
                    if keeps and result.reply is not None:
                        models[result.client] = result.reply
            self.callbacks.final_done(len(done), len(clients))
            scores = {client: done[client] for client in portion if client in done}
            self.ledger.commit_final(moment, scores, failures, models)
        self._warn_of_failures(len(done))
        self.ledger.commit_final_metrics(moment, self._measures(done, last))
        return True

    def new_pass(self, stop: Callable[[], bool]) -> bool:
        """Let every new client receive and adapt; like the final pass, it can be resumed."""
        clients, last = self.made.tested_newcomers, self._deploy()
        moment = Moment(self.made.job.seed, self.server.moment.episode, last)
        done, failed = self.ledger.final_scores(last, "new")
        missing = [client for client in clients if client not in done and client not in failed]
        if not clients or (not missing and self.ledger.has_final("new")):
            return True
        clock = newcomers_clock(self.made.experiment, self.made.job)
        welcome = Welcome(self.made, self.server, self.phases, self.tasks, clock)
        for start in range(0, len(missing), FINAL_TOGETHER):
            if stop():
                return False
            results = list(welcome.adapt(missing[start : start + FINAL_TOGETHER], [None], self._keeps))
            scores = {result.client: result.scores["new"] for result in results if result.failure is None}
            failures = {result.client: result.failure for result in results if result.failure is not None}
            models = {result.client: result.reply for result in results if result.reply is not None}
            done |= scores
            self.ledger.commit_final(moment, scores, failures, models, "new")
        if reasons := self.ledger.final_failures("new"):
            count = f"{len(reasons)} of {len(clients)} new clients failed"
            sentence = f"{count} and are not in its numbers (first reason: {reasons[0]})"
            warn(self.ledger.store, self.callbacks, sentence)
        drawn_from = population(self.settings.clients, self.made.job.federation.new)
        self.ledger.commit_final_metrics(moment, self._measures(done, last, population=drawn_from), "new")
        return True

    def _deploy(self) -> int:
        """Load the state that the run deploys, that of its best or of its last round; return the round."""
        if self._last is None:
            store, seed, rounds = self.ledger.store, self.made.job.seed, self.made.experiment.rounds
            chosen, best = deployed_ledger(store, seed, rounds)
            self._last = best or store.meta("stopped") or rounds
            if best is not None:
                self.server = chosen.server(self.made)
                self.server.at(round=best + 1)
                self.tasks.scope, self.tasks.stateful = f"{chosen.prefix}client", chosen.stateful
        return self._last

    @property
    def _keeps(self) -> bool:
        """Whether the models of the final pass are stored."""
        return not self.tasks.engine.remote and largest_models(self.made) <= self.settings.keep_models * 1e6

    def _warn_of_failures(self, done: int) -> None:
        """Say in the result itself whose models are missing in it."""
        reasons = self.ledger.final_failures()
        if reasons and not done:
            sentence = (
                f"every client failed in the final pass: the run has no model to deploy (first reason: {reasons[0]})"
            )
            warn(self.ledger.store, self.callbacks, sentence)
        elif reasons:
            count = f"{len(reasons)} of {len(self.made.tested)} clients failed in the final pass"
            sentence = f"{count} and are not in its numbers (first reason: {reasons[0]})"
            warn(self.ledger.store, self.callbacks, sentence)

    def deployed(self, client: int) -> Payload:
        """The model that a client would deploy now: it receives and trains once more.

        The config holds the name of its network in the method's family; empty: the run's own network.
        """
        server = self._preview_server(self._deploy() + 1)
        # prepare for all tested clients, as the final pass does: a client's payload may depend on the others
        others = self.made.tested
        everyone = others if client in self._tested else sorted([*others, client])
        payload = self._payloads_for(everyone, server)[client]
        task = self.tasks.later("final", client, payload, Packed(), server.moment, greedy=True, want_model=True)
        (result,) = self.tasks.execute([task])
        if result.failure is not None or result.reply is None:
            raise UserError(f"client {client} has no model to export: {result.failure}")
        return Payload.unpack(result.reply)

    def _plan_received(
        self, payloads: Mapping[int, Payload]
    ) -> tuple[dict[bytes, list[int]], list[tuple[int, Payload]]]:
        """Group clients that receive the same model, by its weights; list the other clients outside the cohort."""
        everyone = {client: payload for client, payload in payloads.items() if client in self._tested}
        tested = () if self.settings.clients == "cohort" else self.made.tested
        others = [client for client in tested if client not in payloads]
        if others:
            server = self.server if self.method.pure_prepare else self._preview_server(self.server.round)
            everyone |= self._payloads_for(others, server)
        alike: dict[bytes, list[int]] = {}
        alone: list[tuple[int, Payload]] = []
        whole: dict[int, bytes] = {}
        for client, payload in sorted(everyone.items()):
            if self._receives_the_payload(client):
                if id(payload) not in whole:
                    whole[id(payload)] = pack({**self.server.initial, **payload["model"]})
                alike.setdefault(whole[id(payload)], []).append(client)
            elif client not in payloads:
                alone.append((client, payload))
        return alike, alone

    def _receives_the_payload(self, client: int) -> bool:
        """Whether the client's received model depends only on the payload."""
        private = bool(self.made.kept) and client in self.ledger.stateful
        return self.method.received_from_payload and not private

    def _payloads_for(self, clients: Sequence[int], server: Server, work: Round | None = None) -> dict[int, Payload]:
        """The payloads that these clients would receive now; ``work`` records the clients that failed before."""
        prepared = self.method.prepare(server, clients)
        return dict(self.phases.drive(prepared, server, work or Round(server.moment), preview=True))

    def _preview_server(self, round: int) -> Server:
        """A copy of the server. Its changes have no consequences."""
        server = self.server.preview(self.method.start_server)
        server.at(round=round)
        return server
