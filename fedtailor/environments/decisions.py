"""A federation as an environment: it goes on until it needs a decision, and waits for it."""

import tempfile
from abc import abstractmethod
from collections.abc import Mapping
from pathlib import Path
from queue import Queue
from threading import Thread
from typing import Any, ClassVar

import gymnasium
import numpy as np
from torch import Tensor

from fedtailor.methods import Decide, Server
from fedtailor.runs import Callback, Experiment, Resources, experiment, run
from fedtailor.runs.settings import Evaluation

Observation = np.ndarray[Any, np.dtype[np.float32]]


class Decisions(gymnasium.Env[Observation, Any]):
    """One step is one decision of a method's agent; everything else in the federation is the environment.

    ``reset`` with a seed starts a federation of that seed. Where each decision is an episode of its own
    (``single``), ``reset`` without a seed goes on with the federation to its next decision, and only after its last
    round starts another one; otherwise an episode is a whole federation.
    """

    decision: ClassVar[str]  # the name of the decision
    single: ClassVar[bool]
    question: Decide  # the one that waits for an action

    def __init__(self, settings: "str | Path | Mapping[str, Any] | Experiment | None" = None):
        made = self.prepared(experiment(settings))
        changes: dict[str, Any] = {"evaluation": Evaluation(every=0, final=False)}
        # the same clients and data whatever the seed of an episode
        changes["data"] = made.data.model_copy(update={"seed": made.partition_seed})
        changes["engine"] = made.engine.model_copy(update={"kind": "inline"})
        self.settings = made.model_copy(update=changes)
        self._resources = Resources()
        self._talk: _Talk | None = None
        self._last: Observation | None = None

    @abstractmethod
    def prepared(self, settings: Experiment) -> Experiment:
        """The experiment with the method that asks for the decision, set up for an environment."""

    @abstractmethod
    def seen(self, question: Decide) -> Observation:
        """The observation of a question."""

    @abstractmethod
    def chosen(self, question: Decide, action: Any) -> Tensor:
        """The method's action for an action of this environment."""

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[Observation, dict[str, Any]]:
        super().reset(seed=seed)
        waiting = self._talk is not None and self._talk.question is not None
        if seed is not None or not self.single or not waiting:
            self._start(int(self.np_random.integers(2**31)) if seed is None else seed)
        return self._look()

    def step(self, action: Any) -> tuple[Observation, float, bool, bool, dict[str, Any]]:
        if self._talk is None or self._talk.question is None:
            raise gymnasium.error.ResetNeeded("call reset before step, and after the end of an episode")
        rewards = self._talk.answer(self.chosen(self._talk.question, action))
        over = self._talk.question is None
        observation, information = self._look()
        return observation, sum(rewards), over or self.single, False, information

    def close(self) -> None:
        if self._talk is not None:
            self._talk.leave()
        self._talk = None
        self._resources.close()

    def _start(self, seed: int) -> None:
        if self._talk is not None:
            self._talk.leave()
        self._talk = _Talk(self.settings.model_copy(update={"seed": seed}), self.decision, self._resources)

    def _look(self) -> tuple[Observation, dict[str, Any]]:
        assert self._talk is not None
        if self._talk.question is not None:
            self.question = self._talk.question
            self._last = self.seen(self.question)
        assert self._last is not None, "the federation asked for no decision"
        return self._last, {"about": self.question.about}  # after the end: the last one again


class _Closed(Exception):
    """Nobody wants the rest of the federation."""


class _Talk(Callback):
    """A federation in a thread of its own, which only ever runs while somebody waits for it."""

    def __init__(self, settings: Experiment, decision: str, resources: Resources):
        self.question: Decide | None = None  # None: the federation is over
        self._settings, self._resources = settings, resources
        self._decision = decision
        self._rewards: list[float] = []
        self._failure: BaseException | None = None
        self._questions: Queue[Decide | None] = Queue()
        self._answers: Queue[Tensor | None] = Queue()
        self._thread = Thread(target=self._federate, daemon=True)
        self._thread.start()
        self._wait()

    def answer(self, action: Tensor) -> list[float]:
        """Go on to the next question; the rewards that came on the way."""
        self._rewards = []
        self._answers.put(action)
        self._wait()
        return self._rewards

    def leave(self) -> None:
        if self._thread.is_alive():
            self._answers.put(None)
            self._thread.join()
        self.question = None

    def rewarded(self, name: str, value: float) -> None:
        if name == self._decision:
            self._rewards.append(value)

    def _wait(self) -> None:
        self.question = self._questions.get()
        if self.question is None:
            self._thread.join()
        if self._failure is not None:
            raise self._failure

    def _federate(self) -> None:
        try:
            with tempfile.TemporaryDirectory(prefix="fedtailor-") as folder:
                deciders = {self._decision: self._ask}
                run(
                    self._settings,
                    folder=Path(folder) / "run",
                    callbacks=self,
                    resources=self._resources,
                    deciders=deciders,
                )
        except _Closed:
            pass
        except BaseException as failure:  # told to whoever waits
            self._failure = failure
        self._questions.put(None)

    def _ask(self, _server: Server, question: Decide) -> Tensor:
        self._questions.put(question)
        answer = self._answers.get()
        if answer is None:
            raise _Closed
        return answer
