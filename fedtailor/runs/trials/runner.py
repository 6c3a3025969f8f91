"""Runs the trials of a search in parallel, remembers their readings, and estimates time."""

import os
import shutil
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from functools import cache
from pathlib import Path
from typing import Any

from fedtailor.data import Federation
from fedtailor.engines import EngineSettings, cores
from fedtailor.errors import UserError
from fedtailor.runs import toml
from fedtailor.runs.drafts import lock_folder
from fedtailor.runs.reading import Run
from fedtailor.runs.resources import Resources
from fedtailor.runs.settings import read_toml
from fedtailor.runs.trials.processes import TrialProcesses
from fedtailor.runs.trials.records import Records
from fedtailor.runs.trials.trial import Reading, Trial, carry_out


class SearchCallback:
    """Observes a search. Every function here does nothing; a subclass overrides those it needs."""

    def note(self, sentence: str) -> None:
        """A message that the user should see."""

    def begin(self, what: str, trials: int, rounds: int) -> None:
        """Some trials begin; ``rounds`` is their total number of rounds."""

    def estimated(self, what: str, seconds: float) -> None:
        """An estimate of the time that something will take."""

    def round_done(self) -> None:
        """A trial has finished a round."""

    def trial_done(self, trial: Trial, reading: Reading) -> None:
        """A trial has been read."""

    def end(self) -> None:
        """The trials that began have ended, whether or not all are complete."""


class TrialRunner:
    """The folder of a search and the processes that carry out its trials.

    A trial that was read before is not carried out again, and one that was stopped resumes. So a search that is a
    function of readings can be killed at any time, and the same call finishes it with the same result.

    Parameters
    ----------
    folder : Path
        The folder of the search: new, or that of the same search.
    plan : dict
        All that determines the search, as TOML can hold it; a folder with another plan is refused.
    engine : EngineSettings
        Where trials run: side by side in ``workers`` processes or, with other engines, one after the other.
    data : callable
        The federation of a seed.
    callback : SearchCallback
        Observes the search.
    """

    PLAN = "plan.toml"

    def __init__(
        self,
        folder: Path,
        plan: dict[str, Any],
        engine: EngineSettings,
        data: Callable[[int], Federation],
        callback: SearchCallback,
    ):
        self.folder, self.callback, self.engine, self._data = folder, callback, engine, cache(data)
        self.workers = (engine.workers or cores()) if engine.kind == "processes" else 1
        self._claim(plan)
        self._records = Records(folder)
        self._processes = TrialProcesses(folder / "trials", self._data)
        self._resources = Resources()
        self._begun = time.monotonic()
        self._pace: tuple[float, float] = (0.0, 0.0)  # cost and seconds of trials so far

    def __enter__(self) -> "TrialRunner":
        return self

    def __exit__(self, *_: object) -> None:
        self._processes.close()
        self._resources.close()
        os.close(self._lock)

    @property
    def seconds(self) -> float:
        """The time since this runner was opened."""
        return time.monotonic() - self._begun

    def read(self, what: str, trials: Sequence[Trial], costs: Sequence[float] | None = None) -> list[Reading]:
        """The readings of trials, in their order.

        Parameters
        ----------
        what
            What they are, for the progress.
        trials
            The trials.
        costs
            What they cost in any unit, by default rounds; the pace in this unit estimates later trials.
        """
        missing = [trial for trial in trials if trial.name not in self._records.readings]
        if missing:
            known = dict(zip((trial.name for trial in trials), costs or [t.until for t in trials], strict=True))
            left = {trial.name: self._rounds_left(trial) for trial in missing}
            # what was run before is no work of this call
            cost = sum(known[trial.name] * left[trial.name] / trial.until for trial in missing)
            begin = time.monotonic()
            self.callback.begin(what, len(missing), sum(left.values()))
            try:
                for trial, reading in zip(missing, self._carry_out(missing), strict=True):
                    self._records.add(trial.name, reading)
                    self.callback.trial_done(trial, reading)
            finally:
                self.callback.end()
            self._pace = (self._pace[0] + cost, self._pace[1] + time.monotonic() - begin)
        return [self._records.readings[trial.name] for trial in trials]

    def knows(self, trials: Iterable[Trial]) -> bool:
        """Whether all these trials were read before."""
        return all(trial.name in self._records.readings for trial in trials)

    def estimate(self, cost: float) -> float | None:
        """The seconds that trials of this cost take, at the pace of those so far; None before there were any."""
        return cost * self._pace[1] / self._pace[0] if self._pace[0] else None

    def forget(self, trials: Iterable[Trial]) -> None:
        """Remove the folders of trials that will not be resumed; their readings stay."""
        for trial in trials:
            shutil.rmtree(self.folder / "trials" / trial.key, ignore_errors=True)

    def _carry_out(self, trials: Sequence[Trial]) -> Iterator[Reading]:
        (self.folder / "trials").mkdir(exist_ok=True)
        processes = min(self.workers, len(trials))
        if processes > 1:
            each = self.workers // processes
            where = {"kind": "processes", "workers": each} if each > 1 else {"kind": "inline", "workers": None}
            return self._processes.carry_out(
                [_on(trial, where) for trial in trials], processes, self.callback.round_done
            )
        return (self._here(trial) for trial in trials)

    def _here(self, trial: Trial) -> Reading:
        """Carry out a trial in this process, whose engine trains clients side by side."""
        if self.workers == 1 and self.engine.kind == "processes":
            trial = _on(trial, {"kind": "inline"})
        data = self._data(trial.settings.seed)
        if self._resources.given is not data:
            self._resources = Resources(data, self._resources.engine)
        return carry_out(trial, self.folder / "trials" / trial.key, self._resources, self.callback.round_done)

    def _rounds_left(self, trial: Trial) -> int:
        """The rounds that a trial lacks: after its last reading, and after those that its folder holds."""
        earlier = [name for name in self._records.readings if name.startswith(f"{trial.key}@")]
        done = max((int(name.rpartition("@")[2]) for name in earlier), default=0)
        folder = self.folder / "trials" / trial.key
        if folder.exists():
            with suppress(UserError), Run(folder) as run:  # carrying it out says what is wrong with the folder
                done = max(done, run.rounds_done)
        return max(0, trial.until - done)

    def _claim(self, plan: dict[str, Any]) -> None:
        """Make the folder, or check that it holds this search; lock it."""
        file, text = self.folder / self.PLAN, toml.dumps(plan)
        begun = os.path.lexists(self.folder) and (not self.folder.is_dir() or any(self.folder.iterdir()))
        if begun and (not file.is_file() or toml.dumps(read_toml(file)) != text):
            what = "another search, with other settings or data" if file.is_file() else "something else"
            raise UserError(f"{self.folder} exists and holds {what}: choose another name with --name")
        try:
            self.folder.mkdir(parents=True, exist_ok=True)
            self._lock = lock_folder(self.folder)
        except BlockingIOError:
            raise UserError(f"{self.folder} is in use: another process carries out this search") from None
        except OSError as error:
            raise UserError(f"{self.folder} cannot be made: {error.strerror}") from None
        if not file.exists():
            draft = self.folder.with_name(f".{self.folder.name}-{self.PLAN}")
            draft.write_text(text, encoding="utf-8")
            os.replace(draft, file)  # the plan is whole or not there


def _on(trial: Trial, where: dict[str, Any]) -> Trial:
    engine = trial.settings.engine.model_copy(update=where)
    return Trial(trial.key, trial.settings.model_copy(update={"engine": engine}), trial.until)
