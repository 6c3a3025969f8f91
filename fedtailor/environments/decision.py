"""A declared decision of a method as a gymnasium environment."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
import torch
from gymnasium import spaces
from torch import Tensor

from fedtailor.agents import Categorical
from fedtailor.environments.session import Session
from fedtailor.errors import UserError
from fedtailor.methods import AgentMethod, Decision, Question, find
from fedtailor.runs import Experiment, Resources, experiment
from fedtailor.runs.assembly import assemble, job_of
from fedtailor.runs.sections import Evaluation

Observation = np.ndarray[Any, np.dtype[np.float32]]


class DecisionEnvironment(gymnasium.Env[Observation, Any]):
    """One step is one decision of a method; everything else in the federation is the environment.

    An observation is the flattened rows of features of all slots; each row ends with 1 if the slot is present and 0 if
    it is empty. If the decision is a single categorical one, an action is an option for every slot. Otherwise it is
    numbers in [-1, 1], from which `fedtailor.agents.Kind` makes the action: weights are the softmax of ``bound`` times
    the numbers, an integer divides [-1, 1] into equal parts. The numbers of several kinds are concatenated.

    ``reset`` with a seed starts a federation with that seed. An episode is a whole federation or a single decision
    (`Decision.whole_federation`). If it is a single decision, ``reset`` without a seed continues the federation to its
    next decision, and starts another federation after the last round.

    The method runs as in pre-training (`AgentMethod.environment`). Its settings determine how its other decisions are
    made; its agents do not learn.

    Parameters
    ----------
    settings
        The experiment.
    decision
        The name of the decision.
    method
        The name of the method that the environment is for. An experiment without a method uses it.

    Examples
    --------
    >>> environment = DecisionEnvironment("phones.toml", decision="size")  # doctest: +SKIP
    >>> observation, information = environment.reset(seed=0)  # doctest: +SKIP
    >>> observation, reward, over, *_ = environment.step(environment.action_space.sample())  # doctest: +SKIP
    """

    question: Question  # the question that waits for an action

    def __init__(
        self,
        settings: "str | Path | Mapping[str, Any] | Experiment | None" = None,
        *,
        decision: str,
        method: str | None = None,
    ):
        made = experiment(settings)
        asked = _method(made, method)
        changes: dict[str, Any] = {"method": asked.environment()}
        changes["evaluation"] = Evaluation(every=0, final=False)
        changes |= {"stopping": None, "checkpoints": None}  # as nothing is evaluated
        # clients and data do not depend on the seed of an episode
        changes["data"] = made.data.model_copy(update={"seed": made.partition_seed})
        changes["engine"] = made.engine.model_copy(update={"kind": "inline"})
        self.settings = made.model_copy(update=changes)
        self.decision = decision
        self._resources = Resources()
        self._session: Session | None = None
        self._last: Observation | None = None
        self.declared = self._declared(asked.name)
        size = self.declared.all_slots * (self.declared.width + 1)
        self.observation_space = spaces.Box(-np.inf, np.inf, (size,), np.float32)
        self.action_space = _action_space(self.declared)

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[Observation, dict[str, Any]]:
        super().reset(seed=seed)
        waiting = self._session is not None and self._session.question is not None
        if seed is not None or self.declared.whole_federation or not waiting:
            self._start(int(self.np_random.integers(2**31)) if seed is None else seed)
        return self._observe()

    def step(self, action: Any) -> tuple[Observation, float, bool, bool, dict[str, Any]]:
        if self._session is None or self._session.question is None:
            raise gymnasium.error.ResetNeeded("call reset before step, and after the end of an episode")
        rewards = self._session.answer(self.chosen(self._session.question, action))
        over = self._session.question is None
        observation, information = self._observe()
        return observation, sum(rewards), over or not self.declared.whole_federation, False, information

    def close(self) -> None:
        if self._session is not None:
            self._session.close()
        self._session = None
        self._resources.close()

    def seen(self, question: Question) -> Observation:
        """The observation of a question."""
        rows: Observation = torch.cat([question.observation, question.mask[:, None].float()], 1).flatten().numpy()
        return rows

    def chosen(self, question: Question, action: Any) -> Tensor:
        """Turn an action of this environment into an action of the method."""
        given, mask = torch.as_tensor(np.asarray(action), dtype=torch.float32), question.mask
        kinds = list(self.declared.actions.values())
        if _options(self.declared):
            return given.masked_fill(~mask, 0.0)
        numbers = given.clamp(-1.0, 1.0).split_with_sizes([kind.units(len(mask)) for kind in kinds])
        parts = [kind.from_units(own, mask) for kind, own in zip(kinds, numbers, strict=True)]
        return parts[0] if len(parts) == 1 else torch.cat(parts)

    def _declared(self, method: str) -> Decision:
        declared = assemble(self.settings, job_of(self.settings, self._resources)).server().decisions.declared
        if self.decision not in declared:
            self.close()
            there = f"it decides: {', '.join(declared)}" if declared else "it decides nothing"
            raise UserError(f"with these settings {method} has no decision {self.decision!r}: {there}")
        return declared[self.decision]

    def _start(self, seed: int) -> None:
        if self._session is not None:
            self._session.close()
        self._session = Session(self.settings.model_copy(update={"seed": seed}), self.decision, self._resources)

    def _observe(self) -> tuple[Observation, dict[str, Any]]:
        assert self._session is not None
        if self._session.question is not None:
            self.question = self._session.question
            self._last = self.seen(self.question)
        assert self._last is not None, "the federation asked for no decision"
        return self._last, {"about": self.question.about}  # after the end, the last observation is repeated


def _method(settings: Experiment, name: str | None) -> AgentMethod:
    """The method of an experiment. With ``name``, it must be the method of that name."""
    method = settings.method
    if name is not None and not isinstance(method, find(name)):
        if type(method) is not find("fedavg"):  # the default of an experiment that names no method
            raise UserError(f"this environment is for {name}, but the experiment's method is {method.name}")
        method = find(name)()
    if not isinstance(method, AgentMethod):
        raise UserError(f"{method.name} has no agents whose decisions an environment could ask for")
    return method


def _options(declared: Decision) -> int:
    """The number of options per slot if the decision is a single categorical one; otherwise 0."""
    kind, *others = declared.actions.values()
    return kind.options if isinstance(kind, Categorical) and not others else 0


def _action_space(declared: Decision) -> "spaces.Space[Any]":
    if options := _options(declared):
        return spaces.MultiDiscrete([options] * declared.all_slots)
    numbers = sum(kind.units(declared.all_slots) for kind in declared.actions.values())
    return spaces.Box(-1.0, 1.0, (numbers,), np.float32)
