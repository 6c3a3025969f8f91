"""Collects the results of a round and stores them in one transaction."""

import json
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Any

from fedtailor.devices import RoundTimes
from fedtailor.engines import Result
from fedtailor.errors import UserError
from fedtailor.learning import Score
from fedtailor.messages.digests import digest
from fedtailor.messages.trees import pack, unpack
from fedtailor.methods import AgentMethod, Decisions, Memory, Method, Moment, Policy, Server, spec
from fedtailor.runs import deployed
from fedtailor.runs.assembly import Assembly
from fedtailor.runs.callbacks import Callback, RoundClock, RoundReport
from fedtailor.runs.checkpoints import BEST, prefix
from fedtailor.runs.measures import Measures, MeasureSummary
from fedtailor.runs.stopping import VALIDATION, Keeper, best_of
from fedtailor.runs.store import Store
from fedtailor.runs.tasks import Spool

UNDONE = "the round was undone"
TRAINED = ("held", VALIDATION)  # scores of models that clients have trained: those of a failed client do not count
NOT_FINITE = "not finite after training"  # in the reason of a client whose training diverged


@dataclass
class Round:
    """The results of a round until they are stored."""

    moment: Moment
    states: Spool = field(default_factory=Spool)  # new states of the clients whose work is accepted
    failed: dict[int, str] = field(default_factory=dict)
    trained: set[int] = field(default_factory=set)  # clients whose training is accepted, even if a later task fails
    details: str = ""  # the first traceback
    tasks: dict[int, dict[str, Any]] = field(default_factory=dict)
    scores: dict[str, dict[int, Score]] = field(default_factory=dict)  # by model and client
    decisions: list[dict[str, Any]] = field(default_factory=list)
    slots: list[list[int | str | None]] = field(default_factory=list)  # of each decision: what its slots stand for
    late_rewards: list[tuple[float, int, int, str, int | None]] = field(default_factory=list)
    times: RoundTimes | None = None  # None without a clock

    def fail(self, client: int, reason: str) -> None:
        """Leave a client out. Its state is that before the round, unless its training was already accepted."""
        self.failed[client] = reason
        if client not in self.trained:
            self.states.pop(client, None)

    @property
    def diverged(self) -> bool:
        """Whether the model of every client that trained was not finite: that of the server may be useless."""
        return not self.trained and any(NOT_FINITE in reason for reason in self.failed.values())

    def undo(self, reason: str) -> None:
        """Forget what the round achieved: it stays in the records with its costs, and with a reason for each client."""
        for client in self.trained:
            self.failed[client] = f"{UNDONE}: {reason}"
        self.states, self.trained = Spool(), set()
        self.decisions, self.slots, self.late_rewards = [], [], []
        for model in TRAINED:
            self.scores.pop(model, None)

    def sent(self, client: int, nbytes: int) -> None:
        """Count the bytes that a client receives."""
        self._task(client)["bytes_down"] += nbytes

    def answered(self, client: int, nbytes: int, result: Result) -> None:
        """Count the bytes that a client sends, and its training."""
        row = self._task(client)
        row["bytes_up"] += nbytes
        samples = row["samples"] + result.trace.samples
        if samples:
            row["loss"] = (row["loss"] * row["samples"] + result.trace.loss * result.trace.samples) / samples
        row["steps"] += result.trace.steps
        row["samples"] = samples
        row["seconds"] += result.seconds

    def _task(self, client: int) -> dict[str, Any]:
        counts = {"steps": 0, "samples": 0, "loss": 0.0, "bytes_down": 0, "bytes_up": 0, "seconds": 0.0}
        return self.tasks.setdefault(client, {**place(self.moment), "client": client, **counts})


class Ledger:
    """Reads the state of a run, and stores each round in one transaction."""

    def __init__(self, store: Store, seed: int, rounds: int, episodes: int = 1, kept: str = ""):
        self.store, self.rounds, self.episodes = store, rounds, episodes
        self.prefix = prefix(kept)  # of the scopes of a kept state; empty for the latest
        self._start: dict[str, Any] = store.meta("start") or {}  # what the run started from
        check_states(store)
        self.moment = self._next(seed)
        # In the first round of a later episode, only the stored state that the method carries over is used.
        self._afresh = self.moment.round == 1 and self.moment.episode > 0
        self.stateful = self._stored("client")  # clients that have a stored state

    def server(self, made: Assembly, policy: Policy | None = None) -> Server:
        """The server as stored; before the first round, with the state carried over or with a policy."""
        known = self._stored("memory")
        memory = Memory(lambda client: self.store.state(f"{self.prefix}memory", client), known)
        pretrains = self.store.meta("episodes") is not None
        server = made.server(memory, keeps_best=pretrains and made.experiment.pretrain.keep == "best")
        kept = {key: tree["value"] for key, tree in self._read("server").items()}
        if kept:
            check_layout(self.store, made.method)
        if self._afresh:
            assert isinstance(made.method, AgentMethod)
            server.adopt({key: kept[key] for key in made.method.carries})
        elif kept:
            server.restore(kept)
        elif policy is not None:
            server.adopt(policy.parts)
            server.decisions.adopt(policy.agents)
        if kept:
            self._load_decisions(server.decisions)
        return server

    def round_end(self) -> float:
        """The time on the clock at which the latest round of this episode ended."""
        rows = self.store.read("clock", "WHERE episode = ? ORDER BY round DESC LIMIT 1", [self.moment.episode])
        return float(rows[0]["begin"] + rows[0]["seconds"]) if rows else float(self._start.get("seconds", 0.0))

    def go_back(self, server: Server) -> None:
        """Give the server its last state from which a client has trained; without one it keeps its own."""
        stored = self._read("good")
        if stored and not self._afresh:
            server.restore({key: tree["value"] for key, tree in stored.items()})

    def why_no_model(self, rounds: int) -> list[str]:
        """The reasons, if no client trained a usable model in the last ``rounds``; empty otherwise.

        Also empty if that concerns one of several clients, which alone must not end a run.
        """
        last = self.store.read("rounds", "ORDER BY episode DESC, round DESC LIMIT ?", [rounds])
        reasons: list[str] = []
        concerned: set[int] = set()
        for row in reversed(last):
            here = [row["episode"], row["round"]]
            events = self.store.read("events", "WHERE kind = 'failed' AND episode = ? AND round = ?", here)
            useless = {e["client"]: e["detail"] for e in events if NOT_FINITE in e["detail"] or UNDONE in e["detail"]}
            if not useless or {event["client"] for event in events} < set(json.loads(row["cohort"])):
                return []
            concerned |= useless.keys()
            reasons += useless.values()
        alone = len(concerned) == 1 < (self.store.meta("clients") or 1)
        return reasons if len(last) == rounds and not alone else []

    def commit(
        self,
        server: Server,
        cohort: Sequence[int],
        work: Round,
        metrics: Mapping[str, Measures],
        begin: float,
        phases: Callable[[], Mapping[str, float]] = dict,
        keeper: Keeper | None = None,
    ) -> RoundReport:
        """Store a round that began at ``begin``, a time of ``time.perf_counter``; ``phases`` measures its phases.

        The ``keeper`` may keep the state after it.
        """
        here = place(work.moment)
        down = sum(task["bytes_down"] for task in work.tasks.values())
        up = sum(task["bytes_up"] for task in work.tasks.values())
        states = {key: pack({"value": value}) for key, value in server.state.items()}
        with self.store.transaction(), ThreadPoolExecutor(1) as thread:
            digests = thread.submit(lambda: {key: digest(data) for key, data in states.items()})  # beside the copies
            if self._afresh:
                self.store.forget("client", "memory", "good")
            if work.trained:  # so the state before this round was good
                self.store.copy_states("server", to="good")
            self._store_states(server, work, states, digests.result())
            for model, scores in work.scores.items():
                self._store_scores(work.moment, model, scores)
            self._store_metrics(work.moment, metrics)
            self.store.insert("tasks", [task for _, task in sorted(work.tasks.items())])
            self._store_events(work.moment, "failed", work.failed)
            self.store.insert("decisions", work.decisions)
            self._store_slots(server, work)
            self.store.reward(work.late_rewards)
            clock = self._store_times(work)
            if keeper is not None:
                keeper.round_done(work.moment.round, metrics.get(VALIDATION))
            seconds = time.perf_counter() - begin
            row = {"cohort": json.dumps(list(cohort)), "bytes_down": down, "bytes_up": up, "seconds": seconds}
            self.store.insert("rounds", [{**here, **row}])
            spent = [{**here, "phase": name, "seconds": taken} for name, taken in phases().items()]
            self.store.insert("phases", spent)
        self._afresh = False
        server.memory.settle()
        count, total = work.moment.episode * self.rounds + work.moment.round, self.episodes * self.rounds
        rewards = _mean_rewards(work.decisions)
        failed = dict(work.failed)
        names = {client: server.names[client] for client in failed if server.names[client] != f"client-{client}"}
        return RoundReport(count, total, tuple(cohort), failed, down, up, seconds, metrics, rewards, clock, names)

    def charge(self) -> None:
        """Count a round that begins: repeated after a crash, its noise differs, so that it costs privacy twice."""
        with self.store.transaction():
            self.store.set_meta("private_rounds", (self.store.meta("private_rounds") or 0) + 1)

    def final_scores(self, round: int, model: str = "final") -> tuple[dict[int, Score], set[int]]:
        """The results that the final pass, or that of ``new`` clients, has stored: scores, and clients that failed."""
        done = self.store.scores(model, self.moment.episode, round)
        return done, {row["client"] for row in self.store.read("events", "WHERE kind = ?", [model])}

    def has_final(self, model: str = "final") -> bool:
        """Whether the final pass is complete."""
        return bool(self.store.read("metrics", "WHERE model = ?", [model]))

    def final_failures(self, model: str = "final") -> list[str]:
        """The reasons of the clients that failed in the final pass."""
        return [row["detail"] for row in self.store.read("events", "WHERE kind = ? ORDER BY client", [model])]

    def commit_final(
        self,
        moment: Moment,
        scores: Mapping[int, Score],
        failed: Mapping[int, str],
        models: Mapping[int, bytes],
        model: str = "final",
    ) -> None:
        """Store a portion of the final pass: scores, failures and the clients' models, if they are kept."""
        with self.store.transaction():
            for client, packed in models.items():
                deployed.keep(self.store, client, packed)
            self._store_scores(moment, model, scores)
            self._store_events(moment, model, failed)

    def commit_final_metrics(self, moment: Moment, metrics: Measures, model: str = "final") -> None:
        """Store the measures of the complete final pass."""
        with self.store.transaction():
            self._store_metrics(moment, {model: metrics})

    def _next(self, seed: int) -> Moment:
        """The moment of the next round: in the latest episode, or the first round of a new one."""
        last = self.store.read("rounds", "ORDER BY episode DESC, round DESC LIMIT 1")
        episode, round = (last[0]["episode"], last[0]["round"] + 1) if last else (0, self._start.get("after", 0) + 1)
        if round > self.rounds and episode + 1 < self.episodes:
            episode, round = episode + 1, 1
        return Moment(seed, episode, round, self.rounds)

    def _stored(self, scope: str) -> set[int]:
        return set() if self._afresh else {int(key) for key in self.store.state_keys(self.prefix + scope)}

    def _store_states(self, server: Server, work: Round, states: dict[str, bytes], digests: dict[str, str]) -> None:
        """Store the states of the server, with their digests, of its memory and of the clients."""
        for key in list(states):
            self.store.set_state("server", key, states.pop(key), digests[key])
        for key in set(self.store.state_keys("server")) - set(server.state):
            self.store.set_state("server", key, None)
        self._store_decisions(server.decisions)
        for client, row in sorted(server.memory.loaded.items()):
            self.store.set_state("memory", client, pack(row) if row else None)
        for client in sorted(work.states):
            state = work.states[client]
            self.store.set_state("client", client, state)
            if state is not None:
                self.stateful.add(client)

    def _store_decisions(self, decisions: Decisions) -> None:
        """Store the states of the agents; only new transitions of their replays are written."""
        rows = decisions.rows()
        for key, value in rows.items():
            self.store.set_state("decisions", key, pack({"value": value}))
        for key in set(self.store.state_keys("decisions")) - set(rows):
            self.store.set_state("decisions", key, None)
        for name, replay in decisions.replays.items():
            for index, transition in replay.take_changed().items():
                self.store.set_state(f"replay {name}", index, pack(transition))

    def _store_slots(self, server: Server, work: Round) -> None:
        """Store which client each slot of the round's decisions stands for, and what the method declared, for views."""
        if not work.decisions:
            return
        self.store.set_state("slots", f"{work.moment.episode} {work.moment.round}", pack(work.slots))
        declared = {name: one.described() for name, one in server.decisions.declared.items()}
        self.store.set_state("slots", "declared", pack(declared))

    def _load_decisions(self, decisions: Decisions) -> None:
        rows = {key: tree["value"] for key, tree in self._read("decisions").items()}
        replays = {
            name: {int(index): transition for index, transition in self._read(f"replay {name}").items()}
            for name in decisions.replays
        }
        decisions.load(rows, replays)

    def _read(self, scope: str) -> dict[str, Any]:
        """The unpacked states of a scope, by key."""
        scope = self.prefix + scope
        found = {key: self.store.state(scope, key) for key in self.store.state_keys(scope)}
        return {key: unpack(data) for key, data in found.items() if data is not None}

    def _store_scores(self, moment: Moment, model: str, scores: Mapping[int, Score]) -> None:
        self.store.set_scores({**place(moment), "model": model}, sorted(scores.items()))

    def _store_metrics(self, moment: Moment, metrics: Mapping[str, Measures]) -> None:
        for model, found in metrics.items():
            here = {**place(moment), "model": model}
            self.store.insert(
                "metrics", [{**here, **{key: v for key, v in vars(found).items() if key not in Measures.NOT_STORED}}]
            )
            more = [
                {**here, "measure": measure, **{key: getattr(values, key) for key in MeasureSummary.STORED}}
                for measure, values in found.more.items()
            ]
            self.store.insert("measures", more)

    def _store_events(self, moment: Moment, kind: str, reasons: Mapping[int, str]) -> None:
        rows = [{"client": client, "kind": kind, "detail": reason} for client, reason in sorted(reasons.items())]
        self.store.insert("events", [{**place(moment), **row} for row in rows])

    def _store_times(self, work: Round) -> RoundClock | None:
        """Store the times of the round on the clock; nothing without a clock."""
        times, here = work.times, place(work.moment)
        if times is None:
            return None
        trained = sorted(work.trained)
        clock = RoundClock(times.begin, times.seconds, times.latency(trained), times.idle(trained))
        self.store.insert("clock", [{**here, **vars(clock)}])
        self.store.insert("times", [{**here, "client": c, **vars(taken)} for c, taken in times.clients.items()])
        return clock


def deployed_ledger(store: Store, seed: int, rounds: int) -> tuple[Ledger, int | None]:
    """The ledger of the state that a run deploys: its best round, with that round, or its latest state, with None."""
    best = best_of(store)
    return Ledger(store, seed, rounds, kept=BEST if best else ""), best.round if best else None


def check_layout(store: Store, method: Method) -> None:
    """Raise a `UserError` if the stored state has another layout than this version of the method reads."""
    if (store.meta("layout") or 1) != method.layout:
        raise UserError(
            f"{store.path} keeps the state of another version of the method {spec(method)}: this version shows the run "
            "but cannot resume, export or adapt it; start it again under another name"
        )


def warn(store: Store, callbacks: Callback, sentence: str) -> None:
    """Show a warning, and store it with the run, so that every table and page can repeat it."""
    callbacks.warning(sentence)
    if not store.read("warnings", "WHERE text = ?", [sentence]):
        store.insert("warnings", [{"text": sentence}])


def check_states(store: Store) -> None:
    """Raise a `UserError` if the states of a run were deleted: it must not begin again unnoticed."""
    if "states" in (store.meta("pruned") or ()):
        raise UserError(f"{store.path.parent} has no states any more ('fedtailor prune' deleted them): it can be shown")


def place(moment: Moment) -> dict[str, int]:
    """The columns for the moment at which a row was recorded."""
    return {"episode": moment.episode, "round": moment.round}


def _mean_rewards(decisions: Sequence[Mapping[str, Any]]) -> dict[str, float]:
    rewards: dict[str, list[float]] = {}
    for decision in decisions:
        if decision["reward"] is not None:
            rewards.setdefault(decision["name"], []).append(decision["reward"])
    return {name: sum(values) / len(values) for name, values in rewards.items()}
