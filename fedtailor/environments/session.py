"""A federation that stops at every decision and waits for its action."""

import tempfile
from pathlib import Path
from queue import Queue
from threading import Thread

from torch import Tensor

from fedtailor.methods import Question, Server
from fedtailor.runs import Callback, Experiment, Resources, run


class Session(Callback):
    """A federation in its own thread. It runs only while the caller waits for the next question."""

    def __init__(self, settings: Experiment, decision: str, resources: Resources):
        self.question: Question | None = None  # None: the federation is over
        self._settings, self._resources = settings, resources
        self._decision = decision
        self._rewards: list[float] = []
        self._failure: BaseException | None = None
        self._questions: Queue[Question | None] = Queue()
        self._answers: Queue[Tensor | None] = Queue()
        self._thread = Thread(target=self._federate, daemon=True)
        self._thread.start()
        self._wait()

    def answer(self, action: Tensor) -> list[float]:
        """Answer the question and continue to the next one. Returns the rewards in between."""
        self._rewards = []
        self._answers.put(action)
        self._wait()
        return self._rewards

    def close(self) -> None:
        """End the federation at its open question."""
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
                run(
                    self._settings,
                    folder=Path(folder) / "run",
                    callbacks=self,
                    resources=self._resources,
                    deciders={self._decision: self._ask},
                )
        except _SessionClosed:
            pass
        except BaseException as failure:  # raised again in the caller's thread
            self._failure = failure
        self._questions.put(None)

    def _ask(self, _server: Server, question: Question) -> Tensor:
        self._questions.put(question)
        answer = self._answers.get()
        if answer is None:
            raise _SessionClosed
        return answer


class _SessionClosed(Exception):
    """The caller closed the session before the federation was over."""
