"""The framework's side of decisions: it builds agents, answers questions, passes on rewards and lets agents learn.

A method declares its decisions (`Decision`) and writes ``decision = yield Decide(name, rows)`` and later
``yield Reward(decision, value)``. ``server.decisions`` is a `Decisions`: it builds the agents, pads and masks the
slots, answers with the agent or with a rule that replaces it, keeps the decisions that have no reward yet, hands
transitions to the agents and lets them learn when learning is due.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from copy import copy
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from fedtailor.agents import Agent, BestPolicy
from fedtailor.agents.actions import Kind
from fedtailor.agents.replay import Replay
from fedtailor.errors import UserError
from fedtailor.parties.decision import Decided, Decider, Decision, Question
from fedtailor.parties.requests import Decide

if TYPE_CHECKING:
    from fedtailor.parties.server import Server


class Decisions(Mapping[tuple[str, int | None], Decided]):
    """The decisions of a federation: ``server.decisions``.

    As a mapping it holds the decisions without a reward, by name and client: ``server.decisions[name, client]``, or
    ``server.decisions[name, None]`` for a decision about all clients.
    """

    def __init__(self, declared: Sequence[Decision], server: "Server", policy: bool = False, keeps_best: bool = False):
        self.declared = {decision.name: decision for decision in declared}
        built = {one.name: one.build(server.stream(one.stream("start"))) for one in declared}
        self.agents = {name: agent for name, agent in built.items() if agent is not None}
        self.best = {name: BestPolicy() for name in self.agents} if keeps_best else {}
        self._policy = policy  # whether the agents start with a policy
        self._open: dict[tuple[str, int | None], Decided] = {}
        self._streams: dict[str, torch.Generator] = {}  # learning streams of this round, by purpose

    def __getitem__(self, key: tuple[str, int | None]) -> Decided:
        return self._open[key]

    def __iter__(self) -> Iterator[tuple[str, int | None]]:
        return iter(self._open)

    def __len__(self) -> int:
        return len(self._open)

    # In a round

    def begin_round(self, server: "Server") -> None:
        """Called before a method prepares a round: drop decisions that can get no reward any more; begin an episode."""
        first = server.round == 1
        self._open = {key: d for key, d in self._open.items() if d.question.declared.rewarded_later and not first}
        self._streams = {}
        if first:
            for name, agent in self.agents.items():
                if name in self.best:
                    self.best[name].begin_episode()
                if self.learns(name):
                    agent.begin_episode(self._draws(server, name))

    def decide(self, server: "Server", asked: Decide, rule: Decider | None = None) -> Decided:
        """Answer a question with ``rule`` or, without one, with the decider that the settings name."""
        if (declared := self.declared.get(asked.name)) is None:
            known = ", ".join(self.declared) or "none"
            raise UserError(f"the method asks for a decision {asked.name!r} that it does not declare (known: {known})")
        question = Question.of(declared, asked)
        if self.learns(asked.name) and not server.greedy:
            agent = self.agents[asked.name]
            agent.follow(declared.seen(question.observation), question.mask, self._draws(server, asked.name))
        action = rule(server, question) if rule is not None else self._answer(server, question)
        decided = Decided(question, action, server.round)
        self._open[asked.name, asked.about] = decided
        return decided

    def reward(self, server: "Server", decided: Decided, value: float, objective: float | None = None) -> None:
        """Close a decision with its reward, and let the agent observe it."""
        self._open.pop((decided.name, decided.about), None)
        if not self.learns(decided.name):
            return
        declared, asked = decided.question.declared, decided.question
        last = server.round == server.rounds and not declared.endless
        done = last or not declared.whole_federation
        seen = declared.seen(asked.observation)
        self.agents[decided.name].observe(seen, decided.action, value, asked.mask, done=done)
        if decided.name in self.best:
            self.best[decided.name].add(value if objective is None else objective)

    def end_round(self, server: "Server") -> None:
        """Called after a method finished a round: let agents learn if learning is due."""
        for name, agent in self.agents.items():
            if not self.learns(name):
                continue
            if name in self.best and server.round == server.rounds:
                self.best[name].end_episode(agent, server.moment.episode)
            if not self.warming(server, name):
                agent.end_round(server.round, server.rounds, self._draws(server, name))

    def learns(self, name: str) -> bool:
        """Whether the agent of a decision learns, and so explores, in this run."""
        return self.declared[name].agent.learns(self._policy)

    def warming(self, server: "Server", name: str) -> bool:
        """Whether this is a warm-up round, in which the agent does not decide yet."""
        return not self._policy and server.moment.episode == 0 and server.round <= self.declared[name].agent.warmup

    def untrained(self, server: "Server") -> bool:
        """Whether this is the first round of agents that decide and begin from scratch: they may be taught now."""
        first = server.moment.episode == 0 and server.round == 1 and not server.greedy
        return first and not self._policy and any(one.agent.decider == "agent" for one in self.declared.values())

    def due(self, server: "Server", name: str) -> bool:
        """Whether training is due at the end of this round, should the agent of this decision learn at all."""
        return not self.warming(server, name) and self.agents[name].due(server.round, server.rounds)

    def _answer(self, server: "Server", question: Question) -> Tensor:
        declared, name = question.declared, question.name
        if (decider := declared.agent.decider) != "agent":
            return _rule_action(server, question, decider)
        seen, mask = declared.seen(question.observation), question.mask
        if server.greedy:
            return self.agents[name].act(seen, mask)
        draws = server.stream(declared.stream("exploration", question.about))
        if self.warming(server, name):
            return _joined([_before_learning(kind, declared, mask, draws) for kind in declared.actions.values()])
        return self.agents[name].act(seen, mask, draws if self.learns(name) else None)

    def _draws(self, server: "Server", name: str) -> Callable[[], torch.Generator]:
        purpose = self.declared[name].stream("learning")

        def stream() -> torch.Generator:
            if purpose not in self._streams:
                self._streams[purpose] = server.stream(purpose)
            return self._streams[purpose]

        return stream

    # State and policy

    def preview(self) -> "Decisions":
        """A copy with the same agents; its decisions have no consequences."""
        other = copy(self)
        other._open, other._streams = {}, {}
        return other

    def rows(self) -> dict[str, Any]:
        """The states to store after a round, by name, without replays."""
        rows: dict[str, Any] = {f"agent {name}": _without_replay(agent) for name, agent in self.agents.items()}
        rows |= {f"best {name}": best.state_dict() for name, best in self.best.items()}
        # The next round drops all other open decisions.
        if waiting := [d.packed() for d in self._open.values() if d.question.declared.rewarded_later]:
            rows["open decisions"] = waiting
        return rows

    @property
    def replays(self) -> dict[str, Replay]:
        """The replays of the agents that have one, which are stored row by row."""
        found = {name: getattr(agent, "replay", None) for name, agent in self.agents.items()}
        return {name: replay for name, replay in found.items() if isinstance(replay, Replay)}

    def load(self, rows: Mapping[str, Any], replays: Mapping[str, Mapping[int, Mapping[str, Tensor]]]) -> None:
        """Load a stored state: ``rows``, and the transitions of every replay by index."""
        for name, agent in self.agents.items():
            state = dict(rows[f"agent {name}"])
            if "replay" in state:
                state["replay"] = Replay.stored(replays.get(name, {}), state["replay"])
            agent.load_state_dict(state)
        for name, best in self.best.items():
            best.load_state_dict(rows[f"best {name}"])
        opened = [Decided.unpacked(tree, self.declared) for tree in rows.get("open decisions", [])]
        self._open = {(decided.name, decided.about): decided for decided in opened}

    def policy(self) -> dict[str, Any]:
        """What the agents have learned, for other runs: the best policy if it was kept, otherwise the present one."""
        kept = {name: best.kept["agent"] for name, best in self.best.items() if best.kept is not None}
        return {name: kept.get(name) or agent.policy() for name, agent in self.agents.items()}

    def adopt(self, policy: Mapping[str, Any]) -> None:
        """Start with the policy of another run."""
        for name, agent in self.agents.items():
            # a built-in policy is only what acts: critic and optimiser begin anew
            agent.load_state_dict({**agent.state_dict(), **policy[name]})

    def shape(self) -> dict[str, int | str]:
        """The properties that another run must share to use the policy."""
        return {f"{name}, {key}": value for name in self.agents for key, value in self.declared[name].shape().items()}


def _joined(parts: Sequence[Tensor]) -> Tensor:
    return parts[0] if len(parts) == 1 else torch.cat(list(parts), -1)


def _before_learning(kind: Kind, declared: Decision, mask: Tensor, draws: torch.Generator) -> Tensor:
    return kind.random(mask, draws) if declared.warming == "random" else kind.neutral(mask)


def _rule_action(server: "Server", question: Question, decider: str) -> Tensor:
    """The action of the decider that replaces the agent."""
    declared, mask = question.declared, question.mask
    if decider in declared.deciders:
        rule = declared.deciders[decider]
        if rule is not None:
            return rule(server, question)
        return question.placed(question.context[decider])
    if decider == "uniform":
        return _joined([kind.neutral(mask) for kind in declared.actions.values()])
    draws = server.stream(declared.stream("exploration", question.about))
    return _joined([kind.random(mask, draws) for kind in declared.actions.values()])


def _without_replay(agent: Agent) -> dict[str, Any]:
    state = agent.state_dict()
    return {**state, "replay": state["replay"]["next"]} if "replay" in state else state
