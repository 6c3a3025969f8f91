"""Divides the work of a round among clients so that they wait little for each other."""

from collections.abc import Mapping, Sequence
from math import ceil, floor

NEARLY = 1e-9  # relative: times that differ by less are equal


def divide(shares: Sequence[float], total: int) -> list[int]:
    """Divide ``total`` into integers, at least 1 each, the rest in proportion to the shares.

    Each share's part of the rest is rounded down; the remaining units go one by one to the largest remainders, the
    first of equals. Shares need not sum to one; if all are 0, they count as equal.
    """
    rest = total - len(shares)
    if rest < 0:
        raise ValueError(f"{total} cannot be divided among {len(shares)} with at least 1 each")
    scale = sum(shares)
    parts = [rest * share / scale if scale > 0 else rest / len(shares) for share in shares]
    whole = [floor(part) for part in parts]
    first = sorted(range(len(parts)), key=lambda i: (whole[i] - parts[i], i))
    for i in first[: rest - sum(whole)]:
        whole[i] += 1
    return [1 + number for number in whole]


def best_sizes(times: Sequence[float], ratios: Sequence[float]) -> list[int]:
    """Choose a size for each client such that the ratio of the slowest to the fastest time is smallest.

    A client's time with a size is its own time multiplied by the size's ratio. The search is exact: for every
    possible shortest time, each client takes the smallest size that is not faster. Among equally good choices it
    takes the one with the largest models.
    """
    order = sorted(range(len(ratios)), key=ratios.__getitem__)
    best, found = float("inf"), [order[-1]] * len(times)
    for least in sorted({time * ratio for time in times for ratio in ratios}, reverse=True):
        chosen = [next((a for a in order if time * ratios[a] >= least * (1 - NEARLY)), None) for time in times]
        sizes = [a for a in chosen if a is not None]
        if len(sizes) < len(times):
            continue
        spread = max(time * ratios[a] for time, a in zip(times, sizes, strict=True)) / least
        if spread < best * (1 - NEARLY):
            best, found = spread, sizes
    return found


def best_epochs(times: Sequence[float], total: int) -> list[int]:
    """Divide ``total`` epochs, at least 1 each, such that slowest and fastest client finish as close as possible.

    ``times`` are seconds per epoch. The search is exact: for every possible time of the first client to finish, it
    finds the earliest time at which all others can finish.
    """
    ideal = total / sum(1 / time for time in times)  # the common end if epochs were divisible
    latest = 2 * max(ideal, *times)
    ends = sorted({n * time for time in times for n in range(1, floor(latest / time) + 1)})
    best, window = float("inf"), (ends[0], ends[-1])
    last = 0
    for first in ends:
        low = [_least(first, time) for time in times]
        if sum(low) > total:
            break
        while last < len(ends) and not _fits(low, [_most(ends[last], time) for time in times], total):
            last += 1
        if last == len(ends):
            break
        if ends[last] - first < best * (1 - NEARLY):
            best, window = ends[last] - first, (first, ends[last])
    epochs = [_least(window[0], time) for time in times]
    for _ in range(total - sum(epochs)):
        room = [i for i, time in enumerate(times) if epochs[i] < _most(window[1], time)]
        epochs[min(room, key=lambda i: (epochs[i] + 1) * times[i])] += 1
    return epochs


def even_shares(times: Sequence[float], total: int) -> list[float]:
    """The shares of the rest (see `divide`) with which all clients would take equally long if epochs were divisible.

    A client that would need less than one epoch gets a very small share, and the others wait for it.
    """
    slow: set[int] = set()
    while True:
        fast = [i for i in range(len(times)) if i not in slow]
        moment = (total - len(slow)) / sum(1 / times[i] for i in fast)
        late = {i for i in fast if times[i] > moment}
        if not late or len(late) == len(fast):
            break
        slow |= late
    parts = [max(moment / time - 1, 0.05) for time in times]  # a twentieth of an epoch: a share of 0 has no logarithm
    return [part / sum(parts) for part in parts]


def cohorts(seconds: Mapping[int, float], largest: int) -> list[dict[int, float]]:
    """Divide clients into groups of ``largest`` at most, each with fast and slow ones, sorted by their times."""
    order = sorted(seconds, key=lambda k: (seconds[k], k))
    groups = -(-len(order) // largest)
    return [{k: seconds[k] for k in order[place::groups]} for place in range(groups)]


def beside(cohort: Mapping[int, float], client: int, seconds: float, largest: int) -> dict[int, float]:
    """A cohort with one more client, sorted by time; in a full one it replaces the client with the nearest time."""
    others = dict(cohort)
    if len(others) >= largest:
        del others[min(others, key=lambda k: (abs(others[k] - seconds), k))]
    return cohorts({**others, client: seconds}, largest)[0]


def relative(seconds: Mapping[int, float]) -> dict[int, float]:
    """Divide times by the shortest."""
    fastest = positive(min(seconds.values()))
    return {k: positive(time) / fastest for k, time in seconds.items()}


def positive(seconds: float) -> float:
    """Replace times of 0, of clients without data: a ratio needs positive times."""
    return max(seconds, 1e-12)


def _least(moment: float, time: float) -> int:
    return max(1, ceil(moment / time * (1 - NEARLY)))


def _most(moment: float, time: float) -> int:
    return floor(moment / time * (1 + NEARLY))


def _fits(low: Sequence[int], high: Sequence[int], total: int) -> bool:
    return all(a <= b for a, b in zip(low, high, strict=True)) and sum(high) >= total
