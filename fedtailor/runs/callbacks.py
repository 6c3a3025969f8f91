"""Who looks on while a run goes."""

from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True)
class RoundReport:
    """What happened in a round."""

    round: int  # of all episodes together
    rounds: int
    cohort: tuple[int, ...]
    failed: dict[int, str]
    bytes_down: int
    bytes_up: int
    seconds: float
    metrics: dict[str, dict[str, Any]] = field(default_factory=dict)  # by model
    rewards: dict[str, float] = field(default_factory=dict)  # the mean, by decision
    clock: dict[str, Any] = field(default_factory=dict)  # begin, seconds, latency, idle; empty without devices


class Callback:
    """Does nothing; views override what they show."""

    def warning(self, sentence: str) -> None: ...

    def begin(self, name: str, rounds: int, done: int) -> None: ...

    def task_done(self, done: int, total: int) -> None: ...

    def rewarded(self, name: str, value: float) -> None: ...

    def round_done(self, report: RoundReport) -> None: ...

    def final_done(self, done: int, total: int) -> None: ...

    def end(self) -> None: ...
