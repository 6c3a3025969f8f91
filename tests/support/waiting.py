"""Waiting for events, with a bound that no load reaches."""

import time
from collections.abc import Callable

PATIENCE = 600.0  # seconds after which an event is taken not to happen at all


def wait_until(happened: Callable[[], object], what: str) -> None:
    """Return when ``happened()`` is true; fail if that takes longer than any load explains."""
    end = time.monotonic() + PATIENCE
    while not happened():
        assert time.monotonic() < end, f"{what} did not happen within {PATIENCE:g} s"
        time.sleep(0.02)
