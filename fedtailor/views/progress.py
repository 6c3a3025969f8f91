"""Progress of a run on stderr: a live display in a terminal, plain lines elsewhere."""

import signal
import sys
import threading
import time
from collections import deque
from collections.abc import Sequence
from types import FrameType
from typing import Any

from rich.console import Console
from rich.progress import BarColumn, Progress, ProgressColumn, Task, TaskID, TextColumn
from rich.text import Text

from fedtailor.records import cause
from fedtailor.runs import Callback, Measures, RoundReport
from fedtailor.views.console import messages
from fedtailor.views.numbers import duration, measured, size

EVERY = 5.0  # seconds between two plain lines
PACE = 10  # rounds whose mean time estimates the time left
STOPPING = "finishing this round... (Ctrl-C again to stop at once)"


class Display(Callback):
    """The base of all displays; on its own it shows warnings and failures only.

    It is a context manager for one run or several consecutive runs.
    """

    def __init__(self, runs: int = 1) -> None:
        self.console: Console = messages()
        self.runs, self.run = runs, 0
        self._reasons: set[str] = set()  # a failure is printed once, then counted
        self._warned: set[str] = set()  # a warning is printed once for all runs
        self.expected = ""  # what the next run will take and store

    def __enter__(self) -> "Display":
        return self

    def __exit__(self, *_: object) -> None: ...

    def warning(self, sentence: str) -> None:
        if sentence not in self._warned:
            self._warned.add(sentence)
            self.console.print(f"warning: {sentence}", style="yellow")

    def kept(self, names: Sequence[str]) -> None:
        self.console.print(f"finished before, not run again: {', '.join(names)}")

    def expects(self, disk: int, seconds: float | None = None) -> None:
        takes = "" if seconds is None else f", about {duration(max(1.0, seconds))}"
        self.expected = f"{takes}, at least {size(disk)} on disk"

    def begin(self, name: str, rounds: int, done: int) -> None:
        self.name, self.rounds, self.round = name, rounds, done
        self.run += 1
        self.bytes, self.failures = 0, 0
        self.metrics: dict[str, Measures] = {}
        self.rewards: dict[str, float] = {}
        self.clock = 0.0
        self.times: deque[float] = deque(maxlen=PACE)
        self._signals = _Signals()

    def round_done(self, report: RoundReport) -> None:
        self.round = report.round
        self.bytes += report.bytes_down + report.bytes_up
        self.failures += len(report.failed)
        self.metrics |= report.metrics
        self.rewards |= report.rewards
        self.times.append(report.seconds)
        if report.clock is not None:
            self.clock = report.clock.end
        for client, reason in sorted(report.failed.items()):
            if cause(reason) not in self._reasons:
                self._reasons.add(cause(reason))
                who = report.names.get(client, client)
                self.console.print(
                    f"{self.name}: client {who} left out of round {report.round}: {reason}", style="yellow"
                )

    def end(self) -> None:
        self._signals.close()

    @property
    def stopping(self) -> bool:
        """Whether the user asked to stop."""
        return self._signals.asked

    def state(self) -> str:
        """The latest accuracies, rewards, device time, bytes and failures as text."""
        facts = [
            f"{model} {measured(found.main.mean, found.main.percent)}{' %' * found.main.percent}"
            for model in ("received", "held", "global")
            if (found := self.metrics.get(model)) is not None and found.main.mean is not None
        ]
        facts += [f"reward {value:.3f}" for value in self.rewards.values()]
        if self.clock:
            facts.append(f"clock {duration(self.clock)}")
        if self.bytes:
            facts.append(size(self.bytes))
        if self.failures:
            facts.append(f"{self.failures} left out")
        return "  ".join(facts)

    def left(self) -> str:
        """The estimated time of the remaining rounds as text."""
        if not self.times or self.round >= self.rounds:
            return ""
        seconds = (self.rounds - self.round) * sum(self.times) / len(self.times)
        return f"{duration(seconds)} left"


class Lines(Display):
    """A line every few seconds, for logs."""

    def __init__(self, runs: int = 1) -> None:
        super().__init__(runs)
        self._last = 0.0
        self._told = False

    def begin(self, name: str, rounds: int, done: int) -> None:
        super().begin(name, rounds, done)
        place = f" ({self.run} of {self.runs})" if self.runs > 1 else ""
        start = f"resumes after round {done}" if done else "starts"
        self.console.print(f"{name}{place}: {start}, {rounds} rounds{self.expected}")
        self._last = time.monotonic()

    def task_done(self, done: int, total: int) -> None:
        if self.stopping and not self._told:
            self._told = True
            self.console.print(f"{self.name}: {STOPPING}")

    def round_done(self, report: RoundReport) -> None:
        super().round_done(report)
        if report.round == self.rounds or time.monotonic() - self._last >= EVERY:
            self._last = time.monotonic()
            facts = "  ".join(filter(None, (self.state(), self.left())))
            self.console.print(f"{self.name}: round {self.round}/{self.rounds}  {facts}")

    def final_done(self, done: int, total: int) -> None:
        if done == total or time.monotonic() - self._last >= EVERY:
            self._last = time.monotonic()
            self.console.print(f"{self.name}: final pass, {done}/{total} clients")


class Live(Display):
    """Progress bars: all runs, the rounds of this run, the tasks of this round."""

    def __init__(self, runs: int = 1) -> None:
        super().__init__(runs)
        self._progress = Progress(
            TextColumn("{task.description}", style="bold", markup=False),
            BarColumn(24),
            TextColumn("{task.completed:.0f}/{task.total:.0f}"),
            _Note(self),
            console=self.console,
            transient=True,
            refresh_per_second=8,
        )
        self.bars: dict[str, TaskID] = {}

    def __enter__(self) -> "Live":
        self._progress.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._progress.stop()

    def begin(self, name: str, rounds: int, done: int) -> None:
        super().begin(name, rounds, done)
        if self.runs > 1:
            self._bar("runs", f"{self.runs} runs", self.run - 1, self.runs, "")
        elif self.expected:
            self.console.print(f"{name}: {rounds} rounds{self.expected}")
        self._bar("rounds", name, done, rounds, "")
        self._bar("tasks", self._phase(), 0, 1, "")

    def task_done(self, done: int, total: int) -> None:
        self._bar("tasks", self._phase(), done, total, "")

    def round_done(self, report: RoundReport) -> None:
        super().round_done(report)
        facts = "  ".join(filter(None, (self.state(), self.left())))
        self._bar("rounds", self.name, self.round, self.rounds, facts)

    def end(self) -> None:
        super().end()
        if self.runs > 1:
            self._bar("runs", f"{self.runs} runs", self.run, self.runs, "")
            self.console.print(f"{self.name}: round {self.round}/{self.rounds}  {self.state()}")

    def _phase(self) -> str:
        return "final pass" if self.round >= self.rounds else f"round {self.round + 1}"

    def _bar(self, key: str, name: str, done: int, total: int, note: str) -> None:
        if key not in self.bars:
            self.bars[key] = self._progress.add_task(name, total=total, completed=done, note=note)
        else:
            self._progress.update(self.bars[key], description=name, completed=done, total=total, note=note)


def progress(*, quiet: bool = False, runs: int = 1) -> Display:
    """Return the display that fits the terminal.

    Parameters
    ----------
    quiet : bool
        Show warnings and failures only.
    runs : int
        Number of runs that the display will show.
    """
    if quiet:
        return Display(runs)
    return Live(runs) if sys.stderr.isatty() else Lines(runs)


class _Note(ProgressColumn):
    """The note beside a bar; the display's own thread draws it, so it reacts to Ctrl-C at once."""

    def __init__(self, display: Live) -> None:
        super().__init__()
        self._display = display

    def render(self, task: Task) -> Text:
        if self._display.stopping and task.id == self._display.bars.get("tasks"):
            return Text(STOPPING, style="yellow")
        return Text(task.fields["note"])


class _Signals:
    """Records that the user asked to stop, and passes the signal on to the run."""

    def __init__(self) -> None:
        self.asked = False
        self._before: dict[signal.Signals, Any] = {}
        if threading.current_thread() is threading.main_thread():
            for number in (signal.SIGINT, signal.SIGTERM):
                before = signal.getsignal(number)
                if callable(before):
                    self._before[number] = before
                    signal.signal(number, self._note)

    def close(self) -> None:
        for number, handler in self._before.items():
            signal.signal(number, handler)
        self._before = {}

    def _note(self, number: int, frame: FrameType | None) -> None:
        # No printing here: the signal may interrupt a line that is half written.
        self.asked = True
        self._before[signal.Signals(number)](number, frame)
