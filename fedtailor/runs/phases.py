"""The phases of a round: run a method's generators, send tasks to clients, process their results."""

from collections.abc import Callable, Generator, Mapping, Sequence
from typing import Any

from fedtailor.devices import Phase
from fedtailor.engines import Result, Task
from fedtailor.errors import UserError, one_line
from fedtailor.messages.trees import pack
from fedtailor.methods import Ask, Decide, Decided, Decider, Duration, Payload, Replies, Reward, Server
from fedtailor.records import DROPPED
from fedtailor.runs.assembly import Assembly
from fedtailor.runs.border import Border
from fedtailor.runs.callbacks import Callback
from fedtailor.runs.cohort import unanswered
from fedtailor.runs.defence import Defence
from fedtailor.runs.ledger import TRAINED, Round, place
from fedtailor.runs.tasks import Packed, Tasks


class Phases:
    """Runs a method's tasks on its clients, and answers the requests of its generators."""

    def __init__(self, made: Assembly, server: Server, tasks: Tasks, recorder: "Recorder"):
        self.experiment, self.method, self.server, self.tasks = made.experiment, made.method, server, tasks
        self.recorder = recorder
        self.clock = made.clock
        self.border = Border(made)
        statistics = made.network.statistics.union(*(network.statistics for network in made.family.values()))
        self._defence = Defence(made.experiment.aggregation, {"model", *made.family}, statistics)

    def drive(self, steps: Any, server: Server, work: Round, preview: bool = False) -> Any:
        """Answer the requests of a method's generator until it returns. A preview records nothing."""
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
            elif isinstance(request, Decide | Reward):
                answer = self.recorder.answer(request, server, work, preview)
            else:
                raise TypeError(f"{type(self.method).__name__} yielded {request!r}; yield Ask, Decide or Reward")

    def fit(
        self,
        payloads: Mapping[int, Payload],
        work: Round,
        measure: Mapping[int, tuple[str, ...]],
        previews: Sequence[tuple[int, Payload]] = (),
    ) -> Replies:
        """Let the cohort receive and train. Other clients receive ``previews`` only to score them.

        ``measure`` names the models of each client that its task scores.
        """
        packed, moment = Packed(), self.server.moment
        dropped = unanswered(self.experiment, payloads, moment, self.clock)
        phase = Phase(self.server.clock, payloads, work.times)
        tasks: list[Callable[[int], Task]] = []
        lengths = {client: _length(self.server.sizes[client], payload) for client, payload in payloads.items()}
        for client in sorted(payloads, key=lambda c: (-lengths[c], c)):  # the longest first, so that none is left over
            payload = payloads[client]
            work.sent(client, payload.nbytes)
            if client in work.failed:
                continue
            if client in dropped:
                work.fail(client, dropped[client])
                if "received" in measure[client]:
                    previews = [*previews, (client, payload)]
                continue
            more = {"measure": measure[client]}
            tasks.append(self.tasks.later("fit", client, payload, packed, moment, work.states, **more))
        fits = len(tasks)
        for client, payload in previews:
            tasks.append(self.tasks.later("preview", client, payload, packed, moment, greedy=True))
        answers: dict[int, Payload] = {}
        for result in self.tasks.execute(tasks):
            for model, score in result.scores.items():
                work.scores.setdefault(model, {})[result.client] = score
            if result.index < fits and (reply := self._accept(result, work, phase, self.server)) is not None:
                answers[result.client] = reply
        answers = self._defend(answers, payloads, work)
        for client in work.failed:
            for model in TRAINED:
                work.scores.get(model, {}).pop(client, None)
        work.trained = set(answers)
        return Replies(answers, work.failed, phase.times)

    def _ask(self, ask: Ask, server: Server, work: Round, preview: bool) -> Replies:
        packed = Packed()
        failed = {client: work.failed[client] for client in ask.payloads if client in work.failed}
        phase = Phase(server.clock, ask.payloads, work.times, ask.name)
        tasks = []
        absent = self.experiment.participation.absent_in(server.round)
        for client, payload in sorted(ask.payloads.items()):
            if client in absent and client not in failed and not preview:
                work.fail(client, DROPPED)
                failed[client] = DROPPED
            if client not in failed:
                work.sent(client, payload.nbytes)
                more = {"question": ask.name, "greedy": server.greedy}
                tasks.append(self.tasks.later("ask", client, payload, packed, server.moment, work.states, **more))
        answers: dict[int, Payload] = {}
        with self.tasks.stopwatch.phase("train"):
            for result in self.tasks.execute(tasks):
                if (reply := self._accept(result, work, phase, server, ask.name)) is not None:
                    answers[result.client] = reply
        answers = self._defend(answers, ask.payloads, work, ask.name)
        failed |= {client: work.failed[client] for client in ask.payloads if client in work.failed}
        return Replies(answers, failed, phase.times)

    def _defend(
        self, replies: Mapping[int, Payload], sent: Mapping[int, Payload], work: Round, question: str = ""
    ) -> dict[int, Payload]:
        """The replies after the defence; a client whose reply is rejected is left out of the round."""
        if not self.experiment.aggregation.filters:
            return dict(replies)
        try:
            kept, reasons = self._defence.filter(dict(sorted(replies.items())), sent, self.border.schema(question))
        except Exception as error:  # the cause may be any reply
            why = one_line(f"{type(error).__name__}: {error}")
            raise UserError(
                f"aggregation: the replies of round {work.moment.round} cannot be clipped or compared, and the round "
                f"was undone ({why})"
            ) from error
        for client, reason in reasons.items():
            work.fail(client, reason)
        return {client: kept[client] for client in replies if client in kept}

    def _accept(self, result: Result, work: Round, phase: Phase, server: Server, question: str = "") -> Payload | None:
        """The reply of a successful task; None if it failed, and the client's state is then that before the round."""
        client = result.client
        with self.tasks.stopwatch.phase("codec"):
            read = self.border.admit(result, server, question)
        reply, remote = read.value, self.tasks.engine.remote
        measured = Duration(result.seconds, result.transfer) if remote else None
        late = phase.answered(client, result.work, 0 if reply is None else reply.nbytes, measured)
        reason = read.reason or late
        if reason is not None or reply is None:
            work.fail(client, reason or "no answer")
            # what a node sends is no reason to look for an error in the method
            work.details = work.details or ("" if remote else read.details)
            return None
        work.states[client] = result.state
        work.answered(client, reply.nbytes, result)
        return reply


def _length(samples: int, payload: Payload) -> float:
    """How long a client trains, in samples: a method may send it a number of epochs. Only the order depends on it."""
    epochs = payload.config.get("epochs")
    return samples * epochs if isinstance(epochs, int | float) and epochs > 0 else samples


class Recorder:
    """Passes requests to ``server.decisions``, and records observation, action and reward."""

    def __init__(self, deciders: Mapping[str, Decider], callbacks: Callback):
        self.deciders, self.callbacks = deciders, callbacks

    def answer(self, request: Decide | Reward, server: Server, work: Round, preview: bool) -> Decided | None:
        """Answer a request: the decision for a `Decide`, None for a `Reward`."""
        if isinstance(request, Decide):
            return self._decide(request, server, work, preview)
        if not preview:
            self._reward(request, server, work)
        return None

    def _decide(self, asked: Decide, server: Server, work: Round, preview: bool) -> Decided:
        decided = server.decisions.decide(server, asked, self.deciders.get(asked.name))
        if not preview:
            question = decided.question
            row: dict[str, Any] = {"observation": pack(question.observation), "mask": pack(question.mask)}
            row |= {"action": pack(decided.action), "reward": None}
            work.decisions.append({**place(server.moment), "name": question.name, "about": question.about, **row})
            work.slots.append(question.slots())
        return decided

    def _reward(self, reward: Reward, server: Server, work: Round) -> None:
        decided, value = reward.decision, float(reward.value)
        server.decisions.reward(server, decided, value, reward.objective)
        if decided.round == server.round:
            row = next(r for r in work.decisions if (r["name"], r["about"]) == (decided.name, decided.about))
            row["reward"] = value
        else:
            work.late_rewards.append((value, server.moment.episode, decided.round, decided.name, decided.about))
        self.callbacks.rewarded(decided.name, value)
