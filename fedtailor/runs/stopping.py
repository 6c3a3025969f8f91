"""The best round by validation data, and the early end of a run. Test data have no part in it.

After every round the headline of the models that clients hold, on their validation samples, is averaged over clients.
The decision is a function of these means, which are stored with their rounds: it is the same after a crash.
"""

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

from fedtailor.errors import UserError
from fedtailor.runs import checkpoints
from fedtailor.runs.measures import Measures
from fedtailor.runs.store import Store

if TYPE_CHECKING:
    from fedtailor.runs.sections import Checkpoints, Stopping

VALIDATION = "validation"  # the model of validation rows in the tables scores, metrics and measures


@dataclass(frozen=True)
class Best:
    """The best round so far, and the mean over clients of the headline on validation data."""

    round: int
    value: float


def better(found: float, best: float | None, lower: bool, gain: float = 0.0) -> bool:
    """Whether a value beats the best so far by more than ``gain``; NaN never does.

    >>> better(0.5, 0.5, lower=False), better(0.4, 0.5, lower=True), better(0.56, 0.5, lower=False, gain=0.1)
    (False, True, False)
    """
    if math.isnan(found):
        return False
    return best is None or (best - found if lower else found - best) > gain


class Keeper:
    """Keeps states of rounds: those that the settings name, and that of the best round."""

    def __init__(self, store: Store, checkpoints: "Checkpoints | None", stopping: "Stopping | None"):
        self._store, self._checkpoints, self._stopping = store, checkpoints, stopping
        self.best = best_of(store)
        self.stopped: int | None = store.meta("stopped")  # the round after which the run ended early

    def round_done(self, round: int, found: Measures | None) -> None:
        """Look at a round whose results have just been written, in its transaction."""
        if self._checkpoints is not None and round % self._checkpoints.every == 0:
            checkpoints.keep_round(self._store, round, self._checkpoints.keep)
        if self._stopping is not None and found is not None:
            self._look(round, found, self._stopping)

    def _look(self, round: int, found: Measures, settings: "Stopping") -> None:
        value, best = found.main.mean, self.best
        lower = found.main.better == "lower"
        if value is not None and better(value, best.value if best else None, lower, settings.min_gain):
            self.best = best = Best(round, value)
            checkpoints.keep(self._store, checkpoints.BEST)
            self._store.set_meta("best", vars(best))
        waited = round - (best.round if best else 0)
        if settings.patience is not None and waited >= settings.patience and round >= settings.min_rounds:
            self.stopped = round
            self._store.set_meta("stopped", round)


def best_of(store: Store) -> Best | None:
    """The best round of a run by validation data; None if it chooses none."""
    known = store.meta("best")
    return None if known is None else Best(**known)


def check_validation(stopping: "Stopping | None", samples: int, private: bool) -> None:
    """Raise a `UserError` if a run cannot choose its best round."""
    if stopping is None:
        return
    if private:
        raise UserError("stopping: the scores on validation data get no noise, so a private run cannot use them")
    if not samples:
        raise UserError(
            "stopping: no client has validation samples; give some, as in Federation.from_clients(..., "
            "validation=True) or data.val = 0.2"
        )
