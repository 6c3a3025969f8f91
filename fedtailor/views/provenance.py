"""The line of a page that says how a program made it."""

import time
from collections.abc import Iterable

from fedtailor.runs.environment import environment
from fedtailor.version import RESULTS
from fedtailor.views.numbers import duration


def made_by(command: str, begin: float, seeds: Iterable[int] = ()) -> str:
    """Command, day, duration, seeds and versions, in a sentence.

    Parameters
    ----------
    command
        What a user types to make the page again, without a path of this machine.
    begin
        When the program began, in seconds of ``time.monotonic``.
    seeds
        The seeds of the runs on the page; none if it has no runs.
    """
    drawn = ", ".join(map(str, seeds))
    facts = ", ".join(f"{name} {value}" for name, value in environment().items())
    took = duration(time.monotonic() - begin)
    with_seeds = f", seeds {drawn}" if drawn else ""
    day = time.strftime("%Y-%m-%d")
    return f"Written by `{command}` on {day} in {took}{with_seeds}; results version {RESULTS}, {facts}."
