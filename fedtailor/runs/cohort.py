"""The cohort of a round: clients that are available, clients that are sampled, and clients that do not answer."""

import math
from collections.abc import Iterable, Sequence
from decimal import Decimal
from random import Random, SystemRandom

import numpy as np

from fedtailor.devices import VirtualClock
from fedtailor.methods import Moment
from fedtailor.records import BROKEN, DROPPED
from fedtailor.runs.settings import Experiment
from fedtailor.seeding import numpy_stream


def choose_cohort(
    experiment: Experiment, clients: int, moment: Moment, available: Sequence[int] | None = None
) -> list[int]:
    """Sample the clients of a round, sorted by id; fewer if too few clients are available."""
    settings = experiment.participation
    stream = numpy_stream(moment.seed, moment.episode, moment.round, "cohort")
    if experiment.privacy.hides_clients:  # the accountant needs Poisson sampling; a cohort may be empty
        assert not isinstance(settings.ratio, tuple)
        drawn = SystemRandom() if experiment.privacy.generator == "system" else Random(stream.randint(2**31))
        return [client for client in range(clients) if drawn.random() < settings.ratio]
    if settings.clients is not None:
        size = min(settings.clients, clients)
    else:
        ratio = settings.ratio
        if isinstance(ratio, tuple):
            ratio = ratio[0] + (ratio[1] - ratio[0]) * stream.random_sample()
        size = _size(ratio, clients)
    order = stream.permutation(clients)
    if available is not None:
        there = np.zeros(clients, bool)
        there[list(available)] = True
        order = order[there[order]]
    return sorted(order[:size].tolist())


def largest_cohort(experiment: Experiment, clients: int) -> int:
    """The largest possible number of clients in a round."""
    settings = experiment.participation
    if experiment.privacy.hides_clients:
        return clients
    if settings.clients is not None:
        return min(settings.clients, clients)
    highest = settings.ratio[1] if isinstance(settings.ratio, tuple) else settings.ratio
    return _size(highest, clients)


def expected_cohort(experiment: Experiment, clients: int) -> float:
    """The mean number of clients in a round, if all of them are available."""
    settings = experiment.participation
    if settings.clients is not None:
        return min(settings.clients, clients)
    ratio = sum(settings.ratio) / 2 if isinstance(settings.ratio, tuple) else settings.ratio
    return clients * ratio


def _size(ratio: float, clients: int) -> int:
    """The ceiling of the decimal product: 0.07 of 100 clients are 7, although the float product is above 7."""
    return max(1, math.ceil(Decimal(repr(float(ratio))) * clients))


def drop_outs(experiment: Experiment, cohort: Iterable[int], moment: Moment) -> list[int]:
    """The clients of a cohort that the settings let drop out."""
    rate, absent = experiment.participation.dropout, experiment.participation.absent_in(moment.round)
    found = [client for client in cohort if client in absent]
    if not rate:
        return found
    return found + [
        client
        for client in cohort
        if client not in absent
        and numpy_stream(moment.seed, moment.episode, moment.round, client, "dropout").random_sample() < rate
    ]


def unanswered(
    experiment: Experiment, cohort: Iterable[int], moment: Moment, clock: VirtualClock | None
) -> dict[int, str]:
    """The clients of a cohort that will not answer, each with the reason."""
    reasons = dict.fromkeys(drop_outs(experiment, cohort, moment), DROPPED)
    if clock is not None:
        now = clock.at(moment)
        reasons |= {client: BROKEN for client in cohort if now.fails(client)}
    return reasons
