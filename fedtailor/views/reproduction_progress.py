"""How far a reproduction is: one bar for all of its runs, with the time left; plain lines in a log."""

import sys
import time
from collections.abc import Sequence

from rich.progress import BarColumn, Progress, TextColumn

from fedtailor.runs import RoundReport
from fedtailor.runs.reproduce import ReproductionCallback, Step
from fedtailor.views.console import messages
from fedtailor.views.numbers import duration
from fedtailor.views.progress import EVERY, STOPPING, Display

BAR = 1000  # parts of the bar


class Overall(Display, ReproductionCallback):
    """What both displays know. By itself it shows warnings and failures only."""

    def __init__(self) -> None:
        super().__init__()
        self.weights: dict[str, float] = {}
        self.done = 0.0  # weight of all steps that are finished
        self.step: Step | None = None
        self.finished = 0
        self.share = 0.0  # of the present step
        self.awaited = 0  # runs that other processes carry out, while this one has nothing else to do
        self.skipped = 0.0  # weight of the rounds that earlier commands made
        self.since = time.monotonic()

    def __enter__(self) -> "Overall":
        return self

    def plan(self, steps: Sequence[Step], seconds: Sequence[float | None]) -> None:
        """Weigh the steps: by seconds where records tell them, else by work at the pace of those."""
        known = [(one, step.work) for one, step in zip(seconds, steps, strict=True) if one]
        pace = sum(one for one, _ in known) / sum(work for _, work in known) if known else 1.0
        self.weights = {step.key: one or step.work * pace for step, one in zip(steps, seconds, strict=True)}
        self.since = time.monotonic()

    def step_begins(self, step: Step) -> None:
        self.step, self.share, self.awaited = step, 0.0, 0

    def begin(self, name: str, rounds: int, done: int) -> None:
        super().begin(name, rounds, done)
        self.share = done / rounds
        self.skipped += self.weight * self.share
        self.show()

    def round_done(self, report: RoundReport) -> None:
        super().round_done(report)
        self.share = report.round / report.rounds
        self.show()

    def step_ends(self, step: Step) -> None:
        self.done += self.weights.get(step.key, 0.0)
        self.finished, self.share, self.step = self.finished + 1, 0.0, None
        self.show()

    def waits(self, runs: int) -> None:
        self.awaited = runs
        self.show()

    @property
    def weight(self) -> float:
        return self.weights.get(self.step.key, 0.0) if self.step else 0.0

    @property
    def part(self) -> float:
        """The share of all work that is done."""
        return (self.done + self.weight * self.share) / (sum(self.weights.values()) or 1.0)

    def text(self) -> str:
        """The runs, the present one, and the time left."""
        runs = f"{self.finished} of {len(self.weights)} runs"
        made = self.done + self.weight * self.share - self.skipped
        left = sum(self.weights.values()) * (1 - self.part)
        pace = (time.monotonic() - self.since) / made if made > 0 else None
        rest = f"about {duration(left * pace)} left" if pace is not None and left > 0 else ""
        now = f"{self.step.name}, round {self.round}/{self.rounds}" if self.step and self.share else ""
        if self.awaited:
            now, rest = f"{self.awaited} in other processes, which this one waits for", ""
        return "  ".join(filter(None, (runs, now, rest, STOPPING if self._asked else "")))

    def show(self) -> None: ...

    @property
    def _asked(self) -> bool:
        return hasattr(self, "_signals") and self.stopping


class OverallLines(Overall):
    """A line every few seconds."""

    def __init__(self) -> None:
        super().__init__()
        self._last = -EVERY

    def show(self) -> None:
        if time.monotonic() - self._last >= EVERY or self.finished == len(self.weights):
            self._last = time.monotonic()
            self.console.print(f"{100 * self.part:3.0f} %  {self.text()}")


class OverallBar(Overall):
    """One bar that moves."""

    def __init__(self) -> None:
        super().__init__()
        columns = (
            BarColumn(30),
            TextColumn("{task.percentage:3.0f} %"),
            TextColumn("{task.description}", markup=False),
        )
        self._progress = Progress(*columns, console=messages(), transient=True, refresh_per_second=4)
        self.console = self._progress.console
        self._task = self._progress.add_task("", total=BAR)

    def __enter__(self) -> "OverallBar":
        self._progress.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._progress.stop()

    def task_done(self, done: int, total: int) -> None:
        if self.stopping:
            self.show()

    def show(self) -> None:
        self._progress.update(self._task, completed=BAR * self.part, description=self.text())


def overall(*, quiet: bool = False) -> Overall:
    """The display that fits."""
    if quiet:
        return Overall()
    return OverallBar() if sys.stderr.isatty() else OverallLines()
