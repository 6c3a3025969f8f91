"""Sentences for the coordinator's user. Nodes and unknown senders influence their words and their number."""

import threading
import time
from collections import deque
from collections.abc import Callable

from fedtailor.errors import one_line

MAX_SENTENCE = 500  # characters
MOST, SECONDS = 30, 10.0  # at most MOST sentences in SECONDS


class Notices:
    """Passes sentences on: each on one line and with control characters escaped, and only some of a flood.

    Parameters
    ----------
    say : callable
        Receives the sentences.
    clock : callable
        Returns the time in seconds.

    Examples
    --------
    >>> Notices(print)("refused: \\x1b[2J")
    refused: \\x1b[2J
    """

    def __init__(self, say: Callable[[str], None], clock: Callable[[], float] = time.monotonic):
        self._say, self._clock = say, clock
        self._times: deque[float] = deque(maxlen=MOST)
        self._left_out = 0
        self._lock = threading.Lock()  # the gateway speaks from a thread of its own

    def __call__(self, sentence: str) -> None:
        with self._lock:
            now = self._clock()
            if len(self._times) == MOST and now - self._times[0] < SECONDS:
                self._left_out += 1
                return
            self._times.append(now)
            if self._left_out:
                self._say(f"{self._left_out} sentences like the last ones were left out")
                self._left_out = 0
            self._say(one_line(sentence, MAX_SENTENCE))
