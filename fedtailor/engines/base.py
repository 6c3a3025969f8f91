"""How client tasks are executed: the types that every engine shares.

A task is a pure function of its bytes and its job, so an engine may run it anywhere, in any order, twice.
"""

from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import ClassVar, Literal

from fedtailor.data import Federation
from fedtailor.learning import Score, Trace, TrainingSettings
from fedtailor.methods import Method, Moment
from fedtailor.models import ModelSettings


@dataclass(frozen=True)
class Job:
    """What stays the same for all tasks of a run."""

    method: Method
    model: ModelSettings
    training: TrainingSettings
    seed: int
    federation: Federation
    device: str = "cpu"
    counts_work: bool = False  # whether results tell the work of their task
    measured: bool = False  # whether the time of tasks is measured, on devices of the clients' own


@dataclass(frozen=True)
class Task:
    """Something to do on a client.

    ``fit``: receive, train, upload. ``final``: receive and train once more, change nothing.
    ``preview``: receive and score, change nothing. ``ask``: a method's own question.
    ``score``: test the weights in the payload, as they are, on the test sets of several clients.
    """

    kind: Literal["fit", "final", "preview", "ask", "score"]
    index: int  # names the task among those handed over together
    moment: Moment
    client: int = -1
    payload: bytes = b""
    state: bytes | None = None  # the client's, as stored
    question: str = ""  # of an ask
    clients: tuple[int, ...] = ()  # of a score
    measure: tuple[str, ...] = ()  # which of received, held to test
    greedy: bool = False
    want_model: bool = False  # whether a final task returns the personal model
    network: str = ""  # of a score: the name in the method's family; the run's own without one


@dataclass(frozen=True)
class Result:
    """What came of a task."""

    index: int
    client: int = -1
    reply: bytes | None = None
    state: bytes | None = None
    scores: dict[str, Score] = field(default_factory=dict)  # by model; of a score: by client id
    trace: Trace = field(default_factory=Trace)
    failure: str | None = None  # one sentence
    details: str = ""  # a traceback, for the author of a method
    seconds: float = 0.0
    work: float = 0.0  # multiply-adds of the method's own part of a fit or ask, if the job counts them
    transfer: float = 0.0  # seconds on the way, measured where clients are elsewhere


class Engine(ABC):
    """Executes tasks. Warm: one engine serves several jobs, one after the other."""

    remote: ClassVar[bool] = False  # whether clients are on machines of their own: times are measured, tests may fail

    @abstractmethod
    def start(self, job: Job) -> None:
        """Make ready for the tasks of a job."""

    @abstractmethod
    def run(self, tasks: Iterable[Task]) -> Iterator[Result]:
        """Execute the tasks and give their results in any order; tasks are taken as they are needed."""

    @abstractmethod
    def close(self) -> None:
        """Release everything."""

    def __enter__(self) -> "Engine":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
