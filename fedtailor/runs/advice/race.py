"""Successive halving over methods and their main settings: short paired trials, of which the better continue."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from statistics import fmean
from typing import Any

from fedtailor.errors import UserError
from fedtailor.methods import spec
from fedtailor.runs.advice.rules import REFERENCES
from fedtailor.runs.settings import Experiment, experiment
from fedtailor.runs.trials import Reading, Trial, TrialRunner
from fedtailor.runs.trials.plan import trial_of, trial_settings
from fedtailor.runs.tuning.space import Dimension, space_of, value_at

PARTS = (8, 8, 4, 2, 1)  # the stages run an eighth, an eighth, a fourth, half and all of the rounds
LEAST = 3  # rounds below which trials say nothing about an exchange
METHODS = 6  # methods whose settings are varied
ARMS = (8, 4)  # arms that continue to a fourth and to half of the rounds
FINALISTS = 3  # methods, besides the references, that run all rounds
EACH = 2  # most arms of one method that continue
STEP, WHOLE_STEP = 3.0, 2.0  # a setting is tried at its value divided and multiplied by this


@dataclass(frozen=True)
class Arm:
    """A method with settings: what is compared."""

    settings: Experiment
    changes: Mapping[str, Any] = field(default_factory=dict)  # settings that are not the experiment's own

    @property
    def method(self) -> str:
        return spec(self.settings.method)

    @property
    def work(self) -> float:
        """The passes over a client's data in a round, compared with FedAvg."""
        epochs = self.settings.training.epochs
        return self.settings.method.passes(epochs) / epochs if epochs else 1.0

    def __str__(self) -> str:
        said = ", ".join(f"{key} = {value:.4g}" for key, value in self.changes.items())
        return f"{self.method} with {said}" if said else self.method


@dataclass(frozen=True)
class Result:
    """What an arm reached in the trials of a stage."""

    arm: Arm
    rounds: int
    values: Mapping[int, float]  # by seed
    clients: Mapping[int, Mapping[int, float]]  # by seed and client
    megabytes: float
    seconds: float
    failure: str = ""

    @property
    def value(self) -> float | None:
        return fmean(self.values.values()) if self.values and not self.failure else None


@dataclass(frozen=True)
class Stage:
    """Trials of the same length on the same seeds; the results are best first, failed arms last."""

    name: str
    rounds: int
    seeds: tuple[int, ...]
    results: tuple[Result, ...]


@dataclass
class Race:
    """The stages of a search for a method.

    Every trial is a complete run with as many rounds as its stage has, and with the final pass: so methods whose
    behaviour depends on the number of rounds show it whole, and clients that were not sampled yet count as they would
    at the end. The last stage has other seeds than those that chose its arms. In it, changed settings meet the
    experiment's own once more: short trials favour large learning rates.

    Parameters
    ----------
    runner : TrialRunner
        Carries out the trials.
    candidates : sequence of Experiment
        The experiment with every candidate.
    seeds, choosing : tuple of int
        The seeds of the last stage, and those of the stages before it.
    own : str
        The experiment's own method, which runs to the end beside the references.
    better : int
        1 if more is better, -1 if less is.
    participants, clients : int
        The clients of a round, and of the federation; they say what a trial costs.
    minutes : float or None
        No stage starts that would probably end after this time.
    """

    runner: TrialRunner
    candidates: Sequence[Experiment]
    seeds: tuple[int, ...]
    choosing: tuple[int, ...]
    own: str
    better: int
    participants: int
    clients: int
    minutes: float | None = None
    stages: list[Stage] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)

    def run(self) -> None:
        """Carry out the stages until the last one, or until the time is over."""
        first, second, *longer, rounds = lengths(self.candidates[0].rounds)
        arms = [Arm(one) for one in self.candidates]
        self._probe(arms, first)
        if not self._stage("methods", arms, first, self.choosing):
            return
        best = self._leading(METHODS, 1)
        arms = best + [variant for arm in best for variant in variants(arm)]
        if not self._stage("settings", arms, second, self.choosing):
            return
        for most, length in zip(ARMS, longer, strict=True):
            if not self._stage("longer", self._leading(most, EACH), length, self.choosing):
                return
        last = self._leading(FINALISTS, 1)
        own = [Arm(one) for one in self.candidates if spec(one.method) in {arm.method for arm in last if arm.changes}]
        self._stage("last", [*last, *own], rounds, self.seeds)

    def _stage(self, name: str, arms: Sequence[Arm], rounds: int, seeds: tuple[int, ...]) -> bool:
        """Carry out the trials of a stage; False if the time is over."""
        trials = [self._trials(arm, rounds, seeds) for arm in arms]
        flat = [trial for own in trials for trial in own]
        costs = [self._cost(arm, rounds) for arm, own in zip(arms, trials, strict=True) for _ in own]
        if self.stages and not self.runner.knows(flat) and self._late(costs):
            return False
        many = f"{len(arms)} {'methods' if name == 'methods' else 'settings of methods'}"
        readings = iter(self.runner.read(f"{many}, {rounds} round{'s' * (rounds > 1)}", flat, costs))
        results = [
            _result(arm, rounds, dict(zip(seeds, [next(readings) for _ in own], strict=True)))
            for arm, own in zip(arms, trials, strict=True)
        ]
        self.runner.forget(flat)
        self.stages.append(Stage(name, rounds, seeds, tuple(sorted(results, key=self._order))))
        if all(result.failure for result in results):
            raise UserError(f"no method ended with a usable model (first reason: {results[0].failure})")
        return True

    def _leading(self, most: int, each: int) -> list[Arm]:
        """The best arms of the last stage, at most ``each`` of a method, and the best arm of each reference."""
        chosen: list[Arm] = []
        usable = [result.arm for result in self.stages[-1].results if not result.failure]
        for arm in usable:
            if len(chosen) < most and sum(other.method == arm.method for other in chosen) < each:
                chosen.append(arm)
        for name in dict.fromkeys([*REFERENCES, self.own]):
            if name not in {arm.method for arm in chosen}:
                chosen += [arm for arm in usable if arm.method == name][:1]
        return chosen

    def _order(self, result: Result) -> tuple[bool, float, float, str]:
        """Better values first; of equal ones, what sends fewer bytes, so that no measured time decides."""
        value = result.value
        worth = float("inf") if value is None else -self.better * value
        return value is None, worth, result.megabytes, str(result.arm)

    def _probe(self, arms: Sequence[Arm], rounds: int) -> None:
        """Time the first trials, one in every process, and tell how long all of them take."""
        if self.runner.knows(trial for arm in arms for trial in self._trials(arm, rounds, self.choosing)):
            return
        some = arms[: self.runner.workers]
        first = [trial for arm in some for trial in self._trials(arm, rounds, self.choosing[:1])]
        readings = self.runner.read(
            "first trials, for an estimate of the time", first, [self._cost(arm, rounds) for arm in some]
        )
        training = self.participants * rounds
        pace = min(one.seconds / (arm.work * training) for arm, one in zip(some, readings, strict=True)) / len(some)
        seconds = [pace * cost for cost in self._expected(arms)]
        self.runner.callback.estimated(f"trials of {len(arms)} methods and their settings", sum(seconds))
        if self.minutes is not None and seconds[0] > 60 * self.minutes:
            raise UserError(
                f"--minutes {self.minutes:g}: the first trials of {len(arms)} methods alone take about "
                f"{seconds[0] / 60:.1f} minutes; give more, fewer --rounds, or fewer --methods"
            )

    def _expected(self, arms: Sequence[Arm]) -> list[float]:
        """The probable cost of every stage."""
        mean = fmean(arm.work for arm in arms)
        counts = [len(arms), min(METHODS + len(REFERENCES), len(arms)) * 3, *ARMS, 2 * FINALISTS + len(REFERENCES)]
        each = zip(counts, lengths(self.candidates[0].rounds), strict=True)
        return [len(self.choosing) * count * mean * self._passes(length) for count, length in each]

    def _late(self, costs: Sequence[float]) -> bool:
        expected = self.runner.estimate(sum(costs))
        if self.minutes is None or expected is None or self.runner.seconds + expected <= 60 * self.minutes:
            return False
        done = self.stages[-1]
        self.notes.append(
            f"--minutes {self.minutes:g} ended the search after trials of {done.rounds} of "
            f"{self.candidates[0].rounds} rounds: the next ones would take about {expected / 60:.1f} minutes more; the "
            f"same command with more minutes continues it"
        )
        return True

    def _trials(self, arm: Arm, rounds: int, seeds: Iterable[int]) -> list[Trial]:
        short = arm.settings.model_copy(update={"rounds": rounds})
        return [trial_of(arm.method, trial_settings(short, seed), rounds) for seed in seeds]

    def _cost(self, arm: Arm, rounds: int) -> float:
        return arm.work * self._passes(rounds)

    def _passes(self, rounds: int) -> float:
        """The trainings of clients in a run, with those of the final pass."""
        return rounds * self.participants + self.clients


def lengths(rounds: int) -> list[int]:
    """The rounds of the trials in every stage.

    >>> lengths(50), lengths(8), lengths(2)
    ([7, 7, 13, 25, 50], [3, 3, 3, 4, 8], [2, 2, 2, 2, 2])
    """
    return [max(-(-rounds // part), min(LEAST, rounds)) for part in PARTS]


def variants(arm: Arm) -> list[Arm]:
    """The arm with each of its main settings smaller and larger: the learning rate and the method's first numbers."""
    found: list[Arm] = []
    for dimension in space_of(arm.settings):
        for value in _beside(dimension, value_at(arm.settings, dimension.key)):
            try:
                changed = experiment(arm.settings, {dimension.key: value})
            except UserError:  # it does not fit the other settings
                continue
            if changed.method.inert() is None:
                found.append(Arm(changed, {dimension.key: value}))
    return found


def _beside(dimension: Dimension, value: float) -> list[float]:
    """A smaller and a larger value in the range of a setting.

    >>> _beside(Dimension("training.lr", 0.003, 3.0, log=True), 0.1)
    [0.0333, 0.3]
    """
    if dimension.log:
        step = WHOLE_STEP if dimension.whole else STEP
        tried = [value / step, value * step]
    else:
        tried = [(dimension.low + value) / 2, (dimension.high + value) / 2]
    rounded: Callable[[float], float] = (lambda number: round(number)) if dimension.whole else _short
    return [one for one in map(rounded, tried) if dimension.contains(one) and one != value]


def _short(number: float) -> float:
    return float(f"{number:.3g}")


def _result(arm: Arm, rounds: int, readings: Mapping[int, Reading]) -> Result:
    failures = [one.failure for one in readings.values() if one.failure]
    return Result(
        arm,
        rounds,
        {seed: one.value for seed, one in readings.items() if one.value is not None},
        {seed: dict(one.clients) for seed, one in readings.items()},
        fmean(one.megabytes for one in readings.values()),
        sum(one.seconds for one in readings.values()),
        failures[0] if failures else "",
    )
