"""Callbacks that observe a run."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from fedtailor.runs.measures import Measures


@dataclass(frozen=True)
class RoundClock:
    """The times of a round on the clients' clock, in seconds."""

    begin: float
    seconds: float
    latency: float | None  # straggling: the slowest client's computing time minus the fastest's
    idle: float | None  # share of the round in which a client waits for others, on average

    @property
    def end(self) -> float:
        return self.begin + self.seconds


@dataclass(frozen=True)
class RoundReport:
    """The report of a round."""

    round: int  # counted over all episodes
    rounds: int  # of all episodes
    cohort: tuple[int, ...]
    failed: Mapping[int, str]  # client to reason
    bytes_down: int
    bytes_up: int
    seconds: float
    metrics: Mapping[str, Measures] = field(default_factory=dict)  # by model; empty if nothing was evaluated
    rewards: Mapping[str, float] = field(default_factory=dict)  # the mean, by decision
    clock: RoundClock | None = None  # None without devices
    names: Mapping[int, str] = field(default_factory=dict)  # of clients that failed and have names of their own


class Callback:
    """Observes a run. Every function here does nothing; a subclass overrides those it needs.

    An exception in a callback ends the run at its last complete round.

    Examples
    --------
    >>> class Bytes(fedtailor.Callback):
    ...     def round_done(self, report):
    ...         print(report.round, report.bytes_up > 0)
    >>> settings = {"rounds": 2, "data": {"clients": 4, "samples": 200}}
    >>> run = fedtailor.run(settings, folder="runs/counted", callbacks=Bytes())
    1 True
    2 True
    """

    def warning(self, sentence: str) -> None:
        """A message that the user should see.

        Parameters
        ----------
        sentence : str
            The message.
        """

    def kept(self, names: Sequence[str]) -> None:
        """These runs of a comparison were finished before; they are not run again.

        Parameters
        ----------
        names : sequence of str
            The names of the runs.
        """

    def expects(self, disk: int, seconds: float | None = None) -> None:
        """A run is about to start.

        Parameters
        ----------
        disk : int
            The bytes that it will store at least.
        seconds : float, optional
            Its estimated time; None if there is no estimate.
        """

    def begin(self, name: str, rounds: int, done: int) -> None:
        """A run starts or resumes.

        Parameters
        ----------
        name : str
            The name of the run.
        rounds : int
            The number of its rounds, over all episodes.
        done : int
            The number of complete rounds.
        """

    def task_done(self, done: int, total: int) -> None:
        """A task of a client is complete.

        Parameters
        ----------
        done, total : int
            How many tasks of those that the engine got together are complete, and their number.
        """

    def rewarded(self, name: str, value: float) -> None:
        """A decision got a reward.

        Parameters
        ----------
        name : str
            The name of the decision.
        value : float
            The reward.
        """

    def round_done(self, report: RoundReport) -> None:
        """A round is complete and stored.

        Parameters
        ----------
        report : RoundReport
            Cohort, failures, bytes, seconds, measures, rewards and clock of the round.
        """

    def final_done(self, done: int, total: int) -> None:
        """A client has finished the final pass.

        Parameters
        ----------
        done, total : int
            The number of clients that have finished, and of all.
        """

    def end(self) -> None:
        """The run ends, whether or not it is complete."""


class CallbackList(Callback):
    """Calls several callbacks in order."""

    def __init__(self, callbacks: Sequence[Callback]):
        self.callbacks = tuple(callbacks)

    def warning(self, sentence: str) -> None:
        for callback in self.callbacks:
            callback.warning(sentence)

    def kept(self, names: Sequence[str]) -> None:
        for callback in self.callbacks:
            callback.kept(names)

    def expects(self, disk: int, seconds: float | None = None) -> None:
        for callback in self.callbacks:
            callback.expects(disk, seconds)

    def begin(self, name: str, rounds: int, done: int) -> None:
        for callback in self.callbacks:
            callback.begin(name, rounds, done)

    def task_done(self, done: int, total: int) -> None:
        for callback in self.callbacks:
            callback.task_done(done, total)

    def rewarded(self, name: str, value: float) -> None:
        for callback in self.callbacks:
            callback.rewarded(name, value)

    def round_done(self, report: RoundReport) -> None:
        for callback in self.callbacks:
            callback.round_done(report)

    def final_done(self, done: int, total: int) -> None:
        for callback in self.callbacks:
            callback.final_done(done, total)

    def end(self) -> None:
        for callback in self.callbacks:
            callback.end()


Callbacks = Callback | Sequence[Callback] | None


defaults: list[Callable[[], Callback]] = []  # what observes a run for which the caller gives none, as in a notebook


def one_callback(callbacks: Callbacks) -> Callback:
    """Combine one, several or no callbacks into one."""
    if callbacks is None:
        return CallbackList([make() for make in defaults])
    return callbacks if isinstance(callbacks, Callback) else CallbackList(callbacks or ())
