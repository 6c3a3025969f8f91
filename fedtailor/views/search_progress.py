"""Progress of a search on stderr: a bar in a terminal, plain lines elsewhere."""

import sys
import time

from rich.progress import BarColumn, Progress, TextColumn

from fedtailor.runs.trials import Reading, SearchCallback, Trial
from fedtailor.views.console import messages
from fedtailor.views.numbers import duration
from fedtailor.views.progress import EVERY


class SearchDisplay(SearchCallback):
    """The base of both displays; on its own it shows notes only."""

    def __init__(self) -> None:
        self.console = messages()

    def __enter__(self) -> "SearchDisplay":
        return self

    def __exit__(self, *_: object) -> None: ...

    def note(self, sentence: str) -> None:
        self.console.print(f"note: {sentence}", style="yellow")

    def begin(self, what: str, trials: int, rounds: int) -> None:
        self.what, self.trials, self.rounds = what, trials, rounds
        self.read, self.round, self.since = 0, 0, time.monotonic()

    def round_done(self) -> None:
        self.round += 1

    def trial_done(self, trial: Trial, reading: Reading) -> None:
        self.read += 1

    def text(self) -> str:
        """How far the present trials are, and the time that they still need."""
        passed, left = time.monotonic() - self.since, self.rounds - self.round
        rest = f"about {duration(passed / self.round * left)} left" if self.round and left > 0 else ""
        return "  ".join(filter(None, (f"{self.what}: {self.read} of {self.trials} runs", rest)))


class SearchLines(SearchDisplay):
    """A line every few seconds, for logs."""

    def __init__(self) -> None:
        super().__init__()
        self._last = time.monotonic()

    def estimated(self, what: str, seconds: float) -> None:
        self.console.print(f"{what} take about {duration(seconds)}")

    def round_done(self) -> None:
        super().round_done()
        if time.monotonic() - self._last >= EVERY:
            self._last = time.monotonic()
            self.console.print(self.text())

    def end(self) -> None:
        self.console.print(f"{self.what}: {self.read} of {self.trials} runs")


class SearchBar(SearchDisplay):
    """A bar for the present trials."""

    def __init__(self) -> None:
        super().__init__()
        columns = (BarColumn(24), TextColumn("{task.description}", markup=False))
        self._progress = Progress(*columns, console=self.console, transient=True, refresh_per_second=8)
        self._task = self._progress.add_task("", total=1)

    def __enter__(self) -> "SearchBar":
        self._progress.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._progress.stop()

    def estimated(self, what: str, seconds: float) -> None:
        self.console.print(f"{what} take about {duration(seconds)}")

    def begin(self, what: str, trials: int, rounds: int) -> None:
        super().begin(what, trials, rounds)
        self._show()

    def round_done(self) -> None:
        super().round_done()
        self._show()

    def _show(self) -> None:
        self._progress.update(self._task, completed=self.round, total=max(1, self.rounds), description=self.text())


def search_progress(*, quiet: bool = False) -> SearchDisplay:
    """Return the display that fits the terminal."""
    if quiet:
        return SearchDisplay()
    return SearchBar() if sys.stderr.isatty() else SearchLines()
