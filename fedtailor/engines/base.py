"""The types that all engines share: jobs, tasks, results, and the interface of an engine.

The result of a task depends on its bytes and its job only. So an engine may run tasks anywhere, in any order, and
repeat them.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from typing import ClassVar, Literal

from fedtailor.data import Federation
from fedtailor.engines.attacks import Attack
from fedtailor.learning import Score, Trace, TrainingSettings
from fedtailor.methods import Method, Moment
from fedtailor.models import ModelSettings


@dataclass(frozen=True)
class Job:
    """What all tasks of a run have in common."""

    method: Method
    model: ModelSettings
    training: TrainingSettings
    seed: int
    federation: Federation
    device: str = "cpu"
    counts_work: bool = False  # whether results include the work of their task
    measures: tuple[str, ...] = ()  # measures beside accuracy and loss
    measured: bool = False  # whether the engine measures how long tasks take on the clients' own devices
    attack: Attack | None = None  # what malicious clients send; their data are in the federation
    initial: bytes | None = None  # the packed initial weights; None: those of the seed
    together: int = 1  # clients that a worker trains at once, at most


TRAINING = ("fit", "final")  # the kinds of tasks in which clients can train together


@dataclass(frozen=True)
class Task:
    """Work for a client.

    ``fit``: receive, train and upload. ``final``: receive and train once more without a change of state.
    ``preview``: receive and score without a change of state. ``ask``: a method's own question.
    ``adapt``: receive, score, adapt and score, as a client that was not in the federation.
    ``score``: test the weights in the payload on the test sets of several clients.
    """

    kind: Literal["fit", "final", "preview", "ask", "score", "adapt"]
    index: int  # identifies the task among those that the engine gets together
    moment: Moment
    client: int = -1
    payload: bytes = b""
    state: bytes | None = None  # the client's stored state
    question: str = ""  # ask: the name of the method's function
    clients: tuple[int, ...] = ()  # score: the clients whose test sets are used
    measure: tuple[str, ...] = ()  # fit: which of the models received and held to test; validation: held on val data
    greedy: bool = False
    want_model: bool = False  # final, adapt: whether to return the personal model
    passes: int | None = None  # adapt: passes over the client's data, instead of the run's epochs
    network: str = ""  # score: a network of the method's family; empty: the run's own


@dataclass(frozen=True)
class Result:
    """The result of a task."""

    index: int
    client: int = -1
    reply: bytes | None = None
    state: bytes | None = None
    scores: dict[str, Score] = field(default_factory=dict)  # by model; for a score task by client id
    trace: Trace = field(default_factory=Trace)
    failure: str | None = None  # why the task failed, in one sentence
    details: str = ""  # the traceback of a failure, for the author of a method
    seconds: float = 0.0  # wall time of the task on its worker
    work: float = 0.0  # multiply-adds of the method in a fit or ask, if the job counts work
    transfer: float = 0.0  # seconds in transit, if clients are remote
    worker: int = 0  # which of the engine's workers did it; only for the record of time


class Engine(ABC):
    """Executes tasks. An engine can serve several jobs, one after the other, and keeps its workers between them.

    ``remote`` says that clients are on other machines: their times are measured, and testing a client can fail.
    """

    remote: ClassVar[bool] = False
    # Whether the user asked to stop. The round loop looks at its boundaries, an engine while it waits for clients.
    stop: Callable[[], bool] = staticmethod(lambda: False)

    def warm(self) -> None:  # noqa: B027
        """Begin what takes time and needs no job, such as starting workers; returns at once."""

    @abstractmethod
    def start(self, job: Job) -> None:
        """Prepare for the tasks of a job."""

    @abstractmethod
    def run(self, tasks: Iterable[Task]) -> Iterator[Result]:
        """Execute tasks, taken one by one as workers become free, and yield their results in any order."""

    @abstractmethod
    def close(self) -> None:
        """Release everything."""

    def __enter__(self) -> "Engine":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
