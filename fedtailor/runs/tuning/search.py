"""The search for settings: batches of trials, of which those below the median end early."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from statistics import fmean, median
from typing import Any

from fedtailor.errors import UserError
from fedtailor.runs.settings import Experiment, experiment
from fedtailor.runs.trials import Reading, Trial, TrialRunner
from fedtailor.runs.trials.plan import rungs, trial_of, trial_settings
from fedtailor.runs.tuning.results import TrialRow
from fedtailor.runs.tuning.sampling import Observation, suggest
from fedtailor.runs.tuning.space import Dimension, value_at

BATCH = 8  # trials that are asked for together; fixed, because they must not depend on the number of workers


@dataclass
class Search:
    """The search for the settings of one method, so far."""

    label: str
    settings: Experiment
    space: list[Dimension]
    seeds: tuple[int, ...]
    better: int = 1  # -1 if less is better
    rows: list[TrialRow] = field(default_factory=list)

    def next(self, count: int) -> list["_Candidate"]:
        """The next trials: first the experiment's own settings, then what the sampler suggests."""
        if not self.rows:
            return [self._candidate(0, {one.key: value_at(self.settings, one.key) for one in self.space})]
        chosen = suggest(self.space, self.observations, count, self.better, self.seeds[0])
        return [self._candidate(number, values) for number, values in enumerate(chosen, len(self.rows))]

    def _candidate(self, number: int, values: dict[str, Any]) -> "_Candidate":
        try:
            return _Candidate(self, number, values, experiment(self.settings, values))
        except UserError as error:  # values that do not fit together
            return _Candidate(self, number, values, self.settings, str(error))

    @property
    def observations(self) -> list[Observation]:
        """The trials as the sampler sees them."""
        return [Observation(dict(row.values), dict(row.curve), row.value) for row in self.rows]

    @property
    def stops(self) -> list[int]:
        """The rounds at which trials are read."""
        return [*rungs(self.settings.rounds), self.settings.rounds]


def carry_out(runner: TrialRunner, searches: Sequence[Search], trials: int, minutes: float | None) -> Iterator[str]:
    """Carry out batches until every search has ``trials`` or the time is over. Yields notes for the reader."""
    while (count := len(searches[0].rows)) < trials:
        size = min(BATCH, trials - count) if count else 1
        batch = [one for search in searches for one in search.next(size)]
        if minutes is not None and count and not runner.knows(_first(batch)):
            expected = runner.estimate(_cost(batch))
            if expected is not None and runner.seconds + expected > 60 * minutes:
                yield (
                    f"--minutes {minutes:g} ended the search after {count} of {trials} trials: the next {size} would "
                    f"take about {expected / 60:.1f} minutes more; the same command with more minutes continues it"
                )
                return
        _run_batch(runner, batch, f"trials {count} to {count + size - 1}" if count else "trial 0, your settings")
        if not count and trials > 1 and (expected := runner.estimate(_cost(batch))) is not None:
            each = " of each method" * (len(searches) > 1)
            runner.callback.estimated(f"{trials - 1} more trials{each}", expected * (trials - 1) * _share(searches[0]))


@dataclass
class _Candidate:
    """A trial of a batch while it runs: a run for every seed."""

    search: Search
    number: int
    values: dict[str, Any]
    settings: Experiment
    failure: str = ""
    curve: dict[int, float] = field(default_factory=dict)
    value: float | None = None
    rounds: int = 0
    seconds: float = 0.0

    def trials(self, until: int) -> list[Trial]:
        return [trial_of(self.search.label, trial_settings(self.settings, s), until) for s in self.search.seeds]

    def take(self, readings: Sequence[Reading], until: int, end: bool) -> None:
        self.rounds, self.seconds = until, sum(one.seconds for one in readings)
        self.failure = next((one.failure for one in readings if one.failure), "")
        values = [one.value for one in readings if one.value is not None]
        if self.failure or not values:
            return
        if end:
            self.value = fmean(values)
        else:
            self.curve[until] = fmean(values)

    def row(self) -> TrialRow:
        state = "failed" if self.failure else "stopped" if self.value is None else "complete"
        return TrialRow(
            self.number, self.values, state, self.value, self.curve, self.rounds, self.seconds, self.failure
        )


def _run_batch(runner: TrialRunner, batch: Sequence[_Candidate], what: str) -> None:
    """Carry out the trials of a batch, and end those that are below the median of their method's trials so far."""
    alive, stops = [one for one in batch if not one.failure], batch[0].search.stops
    for until in stops:
        end = until == stops[-1]
        trials = [one.trials(until) for one in alive]
        readings = iter(runner.read(f"{what}, to round {until}", [trial for own in trials for trial in own]))
        for one, own in zip(alive, trials, strict=True):
            one.take([next(readings) for _ in own], until, end)
        going = [
            one for one in alive if not (end or one.failure) and (one.number == 0 or _promising(one, batch, until))
        ]
        runner.forget(trial for one, own in zip(alive, trials, strict=True) if one not in going for trial in own)
        alive = going
    for one in batch:
        one.search.rows.append(one.row())


def _promising(one: _Candidate, batch: Sequence[_Candidate], until: int) -> bool:
    """Whether a trial is at least as good as the median of its method's trials at this round."""
    curves = [row.curve for row in one.search.rows] + [other.curve for other in batch if other.search is one.search]
    known = [one.search.better * curve[until] for curve in curves if until in curve]
    return one.search.better * one.curve[until] >= median(known)


def _first(batch: Sequence[_Candidate]) -> list[Trial]:
    return [trial for one in batch if not one.failure for trial in one.trials(one.search.stops[0])]


def _cost(batch: Sequence[_Candidate]) -> float:
    """The rounds that a batch will probably run."""
    shares = [_share(one.search) if one.number else 1.0 for one in batch]  # trial 0 runs to its end
    return sum(
        share * one.search.settings.rounds * len(one.search.seeds) for one, share in zip(batch, shares, strict=True)
    )


def _share(search: Search) -> float:
    """The share of its rounds that a trial runs on average, if half of the trials end at each comparison."""
    total, before, going = 0.0, 0, 1.0
    for until in search.stops:
        total, before, going = total + going * (until - before), until, going / 2
    return total / search.settings.rounds
