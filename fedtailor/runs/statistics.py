"""The one criterion by which a difference between two rows of a table is decided, and wins counted by client."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean, stdev
from typing import Literal

CONFIDENCE = 0.95
SEEDS = 3  # fewer seeds decide nothing
LEVEL = 2.0  # points; of measures that are not percentages, % of the other row's value

UNDECIDED: Literal["not decidable at this size"] = "not decidable at this size"
Outcome = Literal["ahead", "behind", "level", "not decidable at this size"]

CRITERION = (
    "A difference is decided by the 95 % t-interval of the paired difference over at least three seeds (same clients, "
    "same start). Ahead: the interval lies on the better side of 0; behind: on the other; level: it contains 0 and is "
    "narrower than 2 points (of measures that are not percentages: 2 % of the other value); else it is not decidable "
    "at this size."
)


@dataclass(frozen=True)
class Interval:
    """Mean and 95 % t-interval of paired differences."""

    mean: float
    low: float
    high: float

    @property
    def width(self) -> float:
        return self.high - self.low


@dataclass(frozen=True)
class Difference:
    """The paired differences of two rows, a number per seed, and what they decide.

    Attributes
    ----------
    values : tuple of float
        The differences, one for each seed that both rows have.
    unit : str
        ``points`` for percentages, otherwise ``%`` of the other row's value.
    better : int
        1 if more is better, -1 if less is.
    """

    values: tuple[float, ...]
    unit: Literal["points", "%"]
    better: int = 1

    @property
    def mean(self) -> float | None:
        return fmean(self.values) if self.values else None

    @property
    def interval(self) -> Interval | None:
        return interval(self.values)

    @property
    def outcome(self) -> Outcome:
        return outcome(self.values, better=self.better)


@dataclass(frozen=True)
class Wins:
    """The number of clients, over all seeds that both rows have, for which a row is better, equal or worse."""

    won: int
    tied: int
    lost: int


def decided(found: Difference | None, won: Wins | None) -> dict[str, float | int | str | None]:
    """A difference with one value per key, as in JSON documents and CSV files; None where there is none."""
    limits = None if found is None else found.interval
    return {
        "difference": None if found is None else found.mean,
        "difference_low": None if limits is None else limits.low,
        "difference_high": None if limits is None else limits.high,
        "difference_unit": None if found is None else found.unit,
        "decided": None if found is None else found.outcome,
        "clients_won": None if won is None else won.won,
        "clients_tied": None if won is None else won.tied,
        "clients_lost": None if won is None else won.lost,
    }


def half_width(deviation: float | None, tested: int, population: int) -> float | None:
    """Half of the 95 % t-interval of the mean over a population, from a sample without replacement.

    ``deviation`` is that of the sample, divided by its size. None without a sample, or with one of a single client.

    Examples
    --------
    >>> round(half_width(0.1, 101, 10_001), 6), half_width(0.1, 20, 20), half_width(0.1, 20, 0)
    (0.01974, 0.0, None)
    """
    if not population or tested < 2 or deviation is None:
        return None
    error = deviation / math.sqrt(tested - 1) * math.sqrt(max(0.0, 1 - tested / population))
    return _quantile(tested - 1) * error


def interval(differences: Sequence[float]) -> Interval | None:
    """The 95 % t-interval of the mean; None for fewer than two numbers, or if one is not finite.

    Examples
    --------
    >>> interval([1.0, 2.0, 3.0])
    Interval(mean=2.0, low=-0.48413771175..., high=4.48413771175...)
    """
    if len(differences) < 2 or not all(map(math.isfinite, differences)):
        return None
    mean = fmean(differences)
    half = _quantile(len(differences) - 1) * stdev(differences) / math.sqrt(len(differences))
    return Interval(mean, mean - half, mean + half)


def outcome(differences: Sequence[float], than: float = 0.0, better: int = 1) -> Outcome:
    """What paired differences decide.

    Parameters
    ----------
    differences
        One number for each seed, in points or %.
    than
        The difference that they are compared with.
    better
        1 if a larger difference is better, -1 if a smaller one is.

    Returns
    -------
    Outcome
        ``ahead`` if the 95 % interval is on the better side of ``than``, ``behind`` if it is on the other, ``level``
        if it contains ``than`` and is narrower than 2, otherwise, and with fewer than three seeds,
        ``not decidable at this size``.
    """
    found = interval(differences)
    if found is None or len(differences) < SEEDS:
        return UNDECIDED
    low, high = sorted((better * (found.low - than), better * (found.high - than)))
    if low > 0:
        return "ahead"
    if high < 0:
        return "behind"
    return "level" if found.width < LEVEL else UNDECIDED


def paired(ours: Mapping[int, float | None], theirs: Mapping[int, float | None], relative: bool = False) -> list[float]:
    """Differences of the seeds that both have; runs of one seed share clients and initial model.

    With ``relative`` they are in % of the other value; a seed whose other value is 0 has none.
    """
    found = []
    for seed, one in ours.items():
        other = theirs.get(seed)
        if one is not None and other is not None and not (relative and other == 0):
            found.append(100 * (one - other) / abs(other) if relative else one - other)
    return found


def difference(
    ours: Mapping[int, float | None], theirs: Mapping[int, float | None], points: bool = True, better: int = 1
) -> Difference:
    """Compare the values of two rows by seed; ``points``: they are percentages."""
    return Difference(tuple(paired(ours, theirs, relative=not points)), "points" if points else "%", better)


def wins(
    ours: Mapping[int, Mapping[int, float]], theirs: Mapping[int, Mapping[int, float]], better: int = 1
) -> Wins | None:
    """Compare two rows client by client, in every seed that both have; None if they share no client.

    Parameters
    ----------
    ours, theirs
        By seed and client, the value of a client.
    better
        1 if more is better, -1 if less is.
    """
    gains = [
        better * (value - theirs[seed][client])
        for seed, values in ours.items()
        if seed in theirs
        for client, value in values.items()
        if client in theirs[seed]
    ]
    gains = [gain for gain in gains if not math.isnan(gain)]
    if not gains:
        return None
    return Wins(sum(gain > 0 for gain in gains), sum(gain == 0 for gain in gains), sum(gain < 0 for gain in gains))


def comparisons_text(count: int) -> str:
    """How many comparisons a page makes, and how many of them chance alone would decide.

    >>> comparisons_text(24)
    '24 comparisons were made; if no row truly differed, about 1.2 of them would still be decided.'
    """
    if count == 1:
        return "1 comparison was made."
    chance = count * (1 - CONFIDENCE)
    return (
        f"{count} comparisons were made; if no row truly differed, about {chance:.1f} of them would still be decided."
    )


def _quantile(freedom: int) -> float:
    """The quantile of the t-distribution that bounds the interval."""
    from scipy.special import stdtrit  # scipy.stats, which takes half a second to import, calls it too

    return float(stdtrit(freedom, (1 + CONFIDENCE) / 2))
