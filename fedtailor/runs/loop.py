"""The round loop: cohort, prepare, fit, finish, evaluate, commit.

Each round is one transaction, so a run that ends at any moment is at a round boundary. Results are taken in
the order of client ids; no measured time enters a decision.
"""

import json
import time
from collections.abc import Callable, Generator, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor

from fedtailor.devices import Phase, RoundTimes, virtual_clock
from fedtailor.engines import Engine, Job, Result, Task, family_network, shared_and_kept
from fedtailor.errors import UserError
from fedtailor.learning import Score
from fedtailor.learning.tensors import inputs_of
from fedtailor.messages.payload import Rejected, check
from fedtailor.messages.trees import pack, unpack
from fedtailor.methods import Ask, Decide, Duration, Memory, Method, Moment, Payload, Policy, Replies, Reward, Server
from fedtailor.models import Network, build
from fedtailor.runs.callbacks import Callback, RoundReport
from fedtailor.runs.measures import measures
from fedtailor.runs.scoring import Scorer
from fedtailor.runs.settings import Experiment
from fedtailor.runs.store import Store
from fedtailor.runs.tasks import Packed, Spool, Tasks
from fedtailor.seeding import numpy_stream
from fedtailor.weights import Weights

DROPPED = "dropped out"
FINAL_TOGETHER = 64  # clients of the final pass in one transaction

Decider = Callable[[Server, Decide], Tensor]


class ClientsFailed(UserError):
    """Every client of a round failed with an error in the method's code."""

    def __init__(self, sentence: str, details: str):
        super().__init__(sentence)
        self.details = details


@dataclass
class _Round:
    """What a round gathers until it is committed."""

    states: Spool = field(default_factory=Spool)  # new client states, if accepted
    failed: dict[int, str] = field(default_factory=dict)
    trained: set[int] = field(default_factory=set)  # whose training is accepted, whatever fails after it
    details: str = ""
    tasks: dict[int, dict[str, Any]] = field(default_factory=dict)
    scores: dict[str, dict[int, Score]] = field(default_factory=dict)
    decisions: list[dict[str, Any]] = field(default_factory=list)
    times: RoundTimes | None = None  # if there is a clock

    def fail(self, client: int, reason: str) -> None:
        """Leave a client out; unless its training was accepted, it is as it was before the round."""
        self.failed[client] = reason
        if client not in self.trained:
            self.states.pop(client, None)


class RoundLoop:
    """Runs the rounds of one episode from where its store stands."""

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
        torch.set_num_threads(1)
        self.experiment, self.job, self.engine, self.store, self.callbacks = experiment, job, engine, store, callbacks
        self.method = job.method
        self.deciders = dict(deciders or {})
        self.policy = policy  # what the method's agent starts with
        self.episodes = episodes
        moment = self._moment()
        # A new episode keeps nothing of the one before but what the method carries over.
        self._afresh = moment.round == 1 and moment.episode > 0
        network = build(job.model, inputs_of(job.federation.samples), moment.network_seed)
        self.shared, self.kept = shared_and_kept(job, network)
        self.family = {name: family_network(job, name, moment.network_seed) for name in job.method.family(job.model)}
        self._family_weights = {name: other.weights() for name, other in self.family.items()}
        self.clients = job.federation.clients
        self.held: dict[int, Score] = store.latest_scores("held", moment.episode)
        stateful = set() if self._afresh else {int(key) for key in store.state_keys("client")}
        self.tasks = Tasks(engine, store, callbacks, stateful)
        together = experiment.evaluation.together
        self.scorer = Scorer(self.tasks, job.federation.test.sizes, moment, self.family, together)
        sizes = job.federation.train.sizes.tolist()
        self.clock = None if experiment.devices is None else virtual_clock(experiment.devices, sizes, job.seed)
        self.server = self._server(network, moment)

    def run(self, stop: Callable[[], bool] = lambda: False) -> bool:
        """Go on to the end; False when ``stop`` asked to end at a round boundary before it."""
        while self.server.round <= self.experiment.rounds:
            if stop():
                return False
            self._one_round()
            self.server.at(round=self.server.round + 1)
        return not self.experiment.evaluation.final or self._final_pass(stop)

    def personal_model(self, client: int) -> Weights:
        """The model this client would deploy now: it receives and trains once more."""
        return self.deployed(client)["model"]

    def deployed(self, client: int) -> Payload:
        """That model with, in the config, the name of its network in the method's family."""
        server = self._preview_server(self.experiment.rounds + 1)
        # as the final pass does: what one client gets may depend on the others
        payload = self._payloads_for(range(self.clients), server)[client]
        task = self.tasks.later("final", client, payload, Packed(), server.moment, greedy=True, want_model=True)
        (result,) = self.tasks.execute([task])
        if result.failure is not None or result.reply is None:
            raise UserError(f"client {client} has no model to export: {result.failure}")
        return Payload.unpack(result.reply)

    # One round

    def _one_round(self) -> None:
        begin = time.perf_counter()
        server, work = self.server, _Round()
        available = self._wait_for_clients(work)
        cohort = choose_cohort(self.experiment, self.clients, server.moment, available)
        due = self._due(server.round)
        payloads = dict(sorted(self._drive(self.method.prepare(server, cohort), server, work).items()))
        measured: set[str] = set(self.experiment.evaluation.models) if self.experiment.evaluation.every else set()
        look = due and "received" in measured
        alike, alone = self._plan_received(payloads) if look else ({}, [])
        replies = self._fit(payloads, measured if look else measured - {"received"}, alike, alone, work)
        if replies:
            self._drive(self.method.finish(server, replies), server, work)
        elif work.details:
            reason = next(iter(work.failed.values()))
            raise ClientsFailed(f"every client failed in round {server.round}: {reason}", work.details)
        self.held.update(work.scores.get("held", {}))
        if due and "global" in measured:
            work.scores.update(self.scorer.models(self.method.models(server)))
        report = self._commit(cohort, work, due, begin)
        self.callbacks.round_done(report)

    def _wait_for_clients(self, work: _Round) -> list[int] | None:
        """Begin the round on the clock when the one before has ended and somebody is there; who, if not everyone."""
        if self.clock is None and not self.engine.remote:
            return None
        rows = self.store.rows(
            "SELECT begin, seconds FROM clock WHERE episode = ? ORDER BY round DESC LIMIT 1",
            [self.server.moment.episode],
        )
        now = rows[0]["begin"] + rows[0]["seconds"] if rows else 0.0
        if self.clock is None:
            work.times = RoundTimes(now)
            return None
        begin, available = self.clock.availability.first(now)
        work.times = RoundTimes(begin, self.clock.deadline)
        return available

    def _fit(
        self,
        payloads: Mapping[int, Payload],
        measured: set[str],
        alike: Mapping[bytes, list[int]],
        alone: Sequence[tuple[int, Payload]],
        work: _Round,
    ) -> Replies:
        """The cohort trains; who does not receive what others receive is scored beside it."""
        packed = Packed()
        moment = self.server.moment
        dropped = dict.fromkeys(drop_outs(self.experiment, payloads, moment), DROPPED)
        if self.clock is not None:
            now = self.clock.at(moment)
            dropped |= {client: "its device failed" for client in payloads if now.fails(client)}
        phase = Phase(self.server.clock, payloads, work.times)
        together = {client for clients in alike.values() for client in clients}
        tasks: list[Callable[[int], Task]] = []
        for client in sorted(payloads, key=lambda c: (-self.server.sizes[c], c)):  # the longest first
            self._count(work, client, down=payloads[client].nbytes)
            if client in work.failed:
                continue
            if client in dropped:
                work.fail(client, dropped[client])
                if "received" in measured and client not in together:
                    alone = [*alone, (client, payloads[client])]
                continue
            measure = tuple(sorted((measured - {"received"} if client in together else measured) - {"global"}))
            tasks.append(
                self.tasks.later("fit", client, payloads[client], packed, moment, work.states, measure=measure)
            )
        fits = len(tasks)
        for client, payload in alone:
            tasks.append(self.tasks.later("preview", client, payload, packed, moment, greedy=True))
        answers: dict[int, Payload] = {}
        for result in self.tasks.execute(tasks):
            for model, score in result.scores.items():
                work.scores.setdefault(model, {})[result.client] = score
            if result.index < fits and (reply := self._accept(result, work, phase, trained=True)) is not None:
                answers[result.client] = reply
        for weights, clients in alike.items():
            work.scores.setdefault("received", {}).update(self.scorer.scores(weights, clients))
        for client in work.failed:
            work.scores.get("held", {}).pop(client, None)
        work.trained = set(answers)
        return Replies(answers, work.failed, phase.times)

    def _accept(self, result: Result, work: _Round, phase: Phase, trained: bool = False) -> Payload | None:
        """The reply of a task that went well; a client that failed is as it was before the round."""
        client = result.client
        reason, reply = result.failure, None
        if reason is None:
            assert result.reply is not None
            try:
                reply = Payload.unpack(result.reply)
                check(reply, self.server.initial, self._family_weights)
                if trained:
                    self._check_complete(reply)
            except Rejected as refusal:
                reason = str(refusal)
        measured = Duration(result.seconds, result.transfer) if self.engine.remote else None
        late = phase.answered(client, result.work, 0 if reply is None else reply.nbytes, measured)
        reason = reason or late
        if reason is not None or reply is None:
            work.fail(client, reason or "no answer")
            work.details = work.details or result.details
            return None
        work.states[client] = result.state
        self._count(work, client, up=reply.nbytes, result=result)
        return reply

    def _check_complete(self, reply: Payload) -> None:
        """Refuse a model in which a tensor that travels is missing."""
        wanted = {"model": self.shared}
        averaged = self.job.model.running_statistics == "averaged"
        for name, network in self.family.items():
            wanted[name] = frozenset(network.names) - (frozenset() if averaged else network.statistics)
        for group, names in wanted.items():
            if group in reply.groups and not names <= reply[group].keys():
                raise Rejected(f"the {group} lacks {min(names - reply[group].keys())}")

    # Requests of a method

    def _drive(self, steps: Any, server: Server, work: _Round, preview: bool = False) -> Any:
        """Answer what a method's generator asks for, until it returns."""
        if not isinstance(steps, Generator):
            return steps
        answer: Any = None
        while True:
            try:
                request = steps.send(answer)
            except StopIteration as end:
                return end.value
            if isinstance(request, Ask):
                answer = self._ask(request, server, work, preview)
            elif isinstance(request, Decide):
                answer = self._decide(request, server, work, preview)
            elif isinstance(request, Reward):
                answer = None
                _reward(request, work)
                self.callbacks.rewarded(request.name, float(request.value))
            else:
                raise TypeError(f"{type(self.method).__name__} yielded {request!r}; yield Ask, Decide or Reward")

    def _ask(self, ask: Ask, server: Server, work: _Round, preview: bool) -> Replies:
        packed = Packed()
        failed = {client: work.failed[client] for client in ask.payloads if client in work.failed}
        phase = Phase(server.clock, ask.payloads, work.times)
        tasks = []
        absent = self.experiment.participation.absent_in(server.round)
        for client, payload in sorted(ask.payloads.items()):
            if client in absent and client not in failed and not preview:
                work.fail(client, DROPPED)
                failed[client] = DROPPED
            if client not in failed:
                if not preview:
                    self._count(work, client, down=payload.nbytes)
                more = {"question": ask.name, "greedy": server.greedy}
                tasks.append(self.tasks.later("ask", client, payload, packed, server.moment, work.states, **more))
        answers: dict[int, Payload] = {}
        for result in self.tasks.execute(tasks):
            if (reply := self._accept(result, work, phase)) is not None:
                answers[result.client] = reply
            else:
                failed[result.client] = work.failed[result.client]
        return Replies(answers, failed, phase.times)

    def _decide(self, question: Decide, server: Server, work: _Round, preview: bool) -> Tensor:
        script = self.deciders.get(question.name, self.method.decide)
        action = script(server, question)
        if not preview:
            work.decisions.append(
                {
                    **_place(server.moment),
                    "name": question.name,
                    "about": question.about,
                    "observation": pack(question.observation),
                    "mask": None if question.mask is None else pack(question.mask),
                    "action": pack(action),
                    "reward": None,
                }
            )
        return action

    # Evaluation

    def _due(self, round: int) -> bool:
        every = self.experiment.evaluation.every
        return every > 0 and (round % every == 0 or round == self.experiment.rounds)

    def _plan_received(
        self, payloads: Mapping[int, Payload]
    ) -> tuple[dict[bytes, list[int]], list[tuple[int, Payload]]]:
        """Whose received model is the same (by its weights), and who else must be looked at one by one."""
        everyone = dict(payloads)
        if self.experiment.evaluation.clients == "all":
            others = [client for client in range(self.clients) if client not in payloads]
            pure = type(self.method).prepare is Method.prepare
            everyone |= self._payloads_for(others, self.server if pure else self._preview_server(self.server.round))
        alike: dict[bytes, list[int]] = {}
        alone: list[tuple[int, Payload]] = []
        whole: dict[int, bytes] = {}
        for client, payload in sorted(everyone.items()):
            if self._receives_alike(client):
                if id(payload) not in whole:
                    whole[id(payload)] = pack({**self.server.initial, **payload["model"]})
                alike.setdefault(whole[id(payload)], []).append(client)
            elif client not in payloads:
                alone.append((client, payload))
        return alike, alone

    def _receives_alike(self, client: int) -> bool:
        """Whether the received model depends on the payload alone."""
        kind = type(self.method)
        plain = kind.receive is Method.receive and kind.start_client is Method.start_client
        return plain and (not self.kept or client not in self.tasks.stateful)

    def _payloads_for(self, clients: Sequence[int], server: Server) -> dict[int, Payload]:
        """What these clients would receive now; nothing of it is kept unless ``server`` is the real one."""
        if not clients:
            return {}
        return dict(self._drive(self.method.prepare(server, clients), server, _Round(), preview=True))

    def _preview_server(self, round: int) -> Server:
        server = self.server.preview(self.method.start_server)
        server.at(round=round)
        return server

    def _final_pass(self, stop: Callable[[], bool]) -> bool:
        """Every client receives and trains once more; committed in portions, so it can be resumed."""
        last = self.experiment.rounds
        place = Moment(self.job.seed, self.server.moment.episode, last)
        done = self.store.scores("final", place.episode, last)
        failed = {row["client"] for row in self.store.rows("SELECT client FROM events WHERE kind = 'final'")}
        missing = [client for client in range(self.clients) if client not in done and client not in failed]
        if not missing and self.store.rows("SELECT 1 FROM metrics WHERE model = 'final'"):
            return True
        server = self._preview_server(last + 1)
        payloads, packed = self._payloads_for(range(self.clients), server), Packed()
        for start in range(0, len(missing), FINAL_TOGETHER):
            if stop():
                return False
            portion = missing[start : start + FINAL_TOGETHER]
            events = []
            tasks = [
                self.tasks.later("final", client, payloads[client], packed, server.moment, greedy=True)
                for client in portion
                if client in payloads
            ]
            for result in self.tasks.execute(tasks):
                if result.failure is not None:
                    events.append(_event(place, result.client, "final", result.failure))
                else:
                    done[result.client] = result.scores["final"]
            self.callbacks.final_done(len(done), self.clients)
            with self.store.transaction():
                fresh = {client: done[client] for client in portion if client in done}
                self.store.insert("scores", _score_rows(place, "final", fresh))
                self.store.insert("events", sorted(events, key=lambda event: event["client"]))
        with self.store.transaction():
            self.store.insert("metrics", [{**_place(place), "model": "final", **measures(done)}])
        return True

    # Storing

    def _commit(self, cohort: Sequence[int], work: _Round, due: bool, begin: float) -> RoundReport:
        server = self.server
        metrics = self._metrics(work, due)
        down = sum(task["bytes_down"] for task in work.tasks.values())
        up = sum(task["bytes_up"] for task in work.tasks.values())
        row = {**_place(server.moment), "cohort": json.dumps(list(cohort)), "bytes_down": down}
        with self.store.transaction():
            if self._afresh:
                self.store.forget("client", "memory")
            self._store_states(work)
            for model, scores in work.scores.items():
                self.store.insert("scores", _score_rows(server.moment, model, scores))
            self.store.insert("metrics", [{**_place(server.moment), "model": m, **v} for m, v in metrics.items()])
            self.store.insert("tasks", [task for _, task in sorted(work.tasks.items())])
            self.store.insert("events", [_event(server.moment, c, "failed", r) for c, r in sorted(work.failed.items())])
            self.store.insert("decisions", work.decisions)
            clock = self._store_times(work)
            seconds = time.perf_counter() - begin
            self.store.insert("rounds", [{**row, "bytes_up": up, "seconds": seconds}])
        self._afresh = False
        server.memory.settle()
        rounds = self.experiment.rounds
        return RoundReport(
            server.moment.episode * rounds + server.round,
            self.episodes * rounds,
            tuple(cohort),
            dict(work.failed),
            down,
            up,
            seconds,
            metrics,
            _mean_rewards(work.decisions),
            clock,
        )

    def _store_times(self, work: _Round) -> dict[str, Any]:
        """What the round took on the clock; nothing where there is none."""
        times, place = work.times, _place(self.server.moment)
        if times is None:
            return {}
        trained = sorted(work.trained)
        row: dict[str, Any] = {"begin": times.begin, "seconds": times.seconds}
        row |= {"latency": times.latency(trained), "idle": times.idle(trained)}
        self.store.insert("clock", [{**place, **row}])
        self.store.insert("times", [{**place, "client": c, **vars(taken)} for c, taken in times.clients.items()])
        return row

    def _store_states(self, work: _Round) -> None:
        for key, value in self.server.state.items():
            self.store.set_state("server", key, pack({"value": value}))
        for key in set(self.store.state_keys("server")) - set(self.server.state):
            self.store.set_state("server", key, None)
        for client, row in sorted(self.server.memory.loaded.items()):
            self.store.set_state("memory", client, pack(row) if row else None)
        for client in sorted(work.states):
            state = work.states[client]
            self.store.set_state("client", client, state)
            if state is not None:
                self.tasks.stateful.add(client)

    def _metrics(self, work: _Round, due: bool) -> dict[str, dict[str, Any]]:
        if not due:
            return {}
        found = {model: measures(scores) for model, scores in work.scores.items() if model != "held"}
        if "held" in self.experiment.evaluation.models:
            never = {c: s for c, s in work.scores.get("received", {}).items() if c not in self.held}
            found["held"] = measures({**self.held, **never}, untrained=self.clients - len(self.held))
        return found

    # Small things

    def _server(self, network: Network, moment: Moment) -> Server:
        """The server as stored, or at its start; at the start of a later episode, with what is carried over."""
        job = self.job
        sizes = tuple(int(size) for size in job.federation.train.sizes)
        known = set() if self._afresh else {int(key) for key in self.store.state_keys("memory")}
        memory = Memory(lambda client: self.store.state("memory", client), known)
        most = largest_cohort(self.experiment, self.clients)
        server = Server(
            network,
            sizes,
            job.training,
            moment,
            self.shared,
            memory,
            largest_cohort=most,
            clock=self.clock,
            family=self.family,
        )
        self.method.start_server(server)
        stored = {key: self.store.state("server", key) for key in self.store.state_keys("server")}
        kept = {key: unpack(data)["value"] for key, data in stored.items() if data is not None}
        if self._afresh:
            server.adopt({key: kept[key] for key in self.method.carries})
        elif kept:
            server.restore(kept)
        elif self.policy is not None:
            server.adopt(self.policy.parts)
        return server

    def _moment(self) -> Moment:
        """The next round: of the episode that was left, or the first of a new one."""
        last = self.store.rows("SELECT episode, round FROM rounds ORDER BY episode DESC, round DESC LIMIT 1")
        episode, round = (last[0]["episode"], last[0]["round"] + 1) if last else (0, 1)
        if round > self.experiment.rounds and episode + 1 < self.episodes:
            episode, round = episode + 1, 1
        return Moment(self.job.seed, episode, round, self.experiment.rounds)

    def _count(self, work: _Round, client: int, down: int = 0, up: int = 0, result: Result | None = None) -> None:
        row = work.tasks.setdefault(client, _no_task(client, self.server.moment))
        row["bytes_down"] += down
        row["bytes_up"] += up
        if result is not None:
            seen = row["samples"] + result.trace.samples
            if seen:
                row["loss"] = (row["loss"] * row["samples"] + result.trace.loss * result.trace.samples) / seen
            row["steps"] += result.trace.steps
            row["samples"] = seen
            row["seconds"] += result.seconds


def choose_cohort(
    experiment: Experiment, clients: int, moment: Moment, available: Sequence[int] | None = None
) -> list[int]:
    """The clients of a round, by id; fewer than wanted, if fewer are available."""
    settings = experiment.participation
    stream = numpy_stream(moment.seed, moment.episode, moment.round, "cohort")
    if settings.clients is not None:
        size = min(settings.clients, clients)
    else:
        ratio = settings.ratio
        if isinstance(ratio, tuple):
            ratio = ratio[0] + (ratio[1] - ratio[0]) * stream.random_sample()
        size = max(1, round(ratio * clients))
    order = stream.permutation(clients).tolist()
    if available is not None:
        there = set(available)
        order = [client for client in order if client in there]
    return sorted(order[:size])


def largest_cohort(experiment: Experiment, clients: int) -> int:
    """The number of clients that a round has at most."""
    settings = experiment.participation
    if settings.clients is not None:
        return min(settings.clients, clients)
    highest = settings.ratio[1] if isinstance(settings.ratio, tuple) else settings.ratio
    return max(1, round(highest * clients))


def drop_outs(experiment: Experiment, cohort: Iterable[int], moment: Moment) -> list[int]:
    """The clients of a cohort that will not answer."""
    rate, absent = experiment.participation.dropout, experiment.participation.absent_in(moment.round)
    found = [client for client in cohort if client in absent]
    if not rate:
        return found
    return found + [
        client
        for client in cohort
        if client not in absent
        and numpy_stream(moment.seed, moment.episode, moment.round, client, "dropout").random_sample() < rate
    ]


def _reward(reward: Reward, work: _Round) -> None:
    for decision in reversed(work.decisions):
        if (decision["name"], decision["about"]) == (reward.name, reward.about):
            decision["reward"] = float(reward.value)
            return
    about = "" if reward.about is None else f" about {reward.about}"
    raise ValueError(f"a reward for {reward.name!r}{about}, which was not decided in this round")


def _no_task(client: int, moment: Moment) -> dict[str, Any]:
    return {
        **_place(moment),
        "client": client,
        "steps": 0,
        "samples": 0,
        "loss": 0.0,
        "bytes_down": 0,
        "bytes_up": 0,
        "seconds": 0.0,
    }


def _mean_rewards(decisions: Sequence[Mapping[str, Any]]) -> dict[str, float]:
    rewards: dict[str, list[float]] = {}
    for decision in decisions:
        if decision["reward"] is not None:
            rewards.setdefault(decision["name"], []).append(decision["reward"])
    return {name: sum(values) / len(values) for name, values in rewards.items()}


def _place(moment: Moment) -> dict[str, int]:
    return {"episode": moment.episode, "round": moment.round}


def _score_rows(moment: Moment, model: str, scores: Mapping[int, Score]) -> list[dict[str, Any]]:
    return [
        {**_place(moment), "model": model, "client": client, **vars(score)} for client, score in sorted(scores.items())
    ]


def _event(moment: Moment, client: int, kind: str, detail: str) -> dict[str, Any]:
    return {**_place(moment), "client": client, "kind": kind, "detail": detail}
