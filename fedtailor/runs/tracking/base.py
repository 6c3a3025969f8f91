"""What a tracker is, and what it is told."""

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

Value = str | int | float | bool


@dataclass(frozen=True)
class Subject:
    """A run or a comparison, as trackers name it."""

    folder: Path
    id: str  # the same in every tracker, for as long as the folder exists
    name: str
    kind: str  # "run" or "comparison"
    method: str  # of a run
    settings: Mapping[str, Value]  # by dotted name
    parent: "Subject | None" = None  # the comparison of a run

    @property
    def top(self) -> Path:
        """The folder of the comparison, or of a run that belongs to none."""
        return self.folder if self.parent is None else self.parent.folder


@dataclass(frozen=True)
class Point:
    """The values of a round, by names such as ``held/accuracy``."""

    step: int  # the round, counted over all episodes
    values: Mapping[str, float]


@dataclass(frozen=True)
class Ending:
    """What a tracker is told when a run ends or stops, or a comparison is complete."""

    finished: bool
    step: int  # rounds that are complete
    values: Mapping[str, float]  # of the final pass, or of a comparison's table
    texts: Mapping[str, str] = field(default_factory=dict)  # files to write, by name
    files: Sequence[Path] = ()  # files of the folder that exist


class Tracker(ABC):
    """One tracker's copy of a run or comparison.

    The constructor opens the copy, or makes it if there is none. No function adds what the copy has already. Any of
    them may raise any exception: it never reaches the run.
    """

    @abstractmethod
    def __init__(self, subject: Subject): ...

    @abstractmethod
    def log(self, points: Sequence[Point]) -> None:
        """Add rounds, in order."""

    @abstractmethod
    def finish(self, ending: Ending) -> None:
        """Add the end of the run, or of what there is of it."""

    @abstractmethod
    def close(self) -> None:
        """Release what the tracker holds, also after a failure. The copy can be opened again."""
