"""Follows a run in progress: a thread per tracker, so that a slow or broken one does not hold up a round."""

import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, contextmanager, suppress
from pathlib import Path

from fedtailor.errors import UserError
from fedtailor.runs.callbacks import Callback, RoundReport
from fedtailor.runs.store import Store
from fedtailor.runs.tracking.mirrors import Mirror, reason_of

PATIENCE = 120.0  # seconds that a run waits at its end for a tracker


@contextmanager
def following(
    folder: Path, names: Sequence[str], show: Callable[[str], None], keep: Callable[[str], None]
) -> Iterator[Callback]:
    """A callback that keeps the copies of a run up to date until the block ends, however it ends.

    Parameters
    ----------
    folder
        The folder of the run, whose database exists.
    names
        The trackers.
    show
        Shows a sentence to the user.
    keep
        Shows a sentence and stores it as a warning of the run.
    """
    followers = [Follower(name, folder) for name in names]
    for follower in followers:
        follower.start()
    try:
        yield Followers(followers, show)
    finally:
        for follower in followers:
            follower.end()
        for follower in followers:
            follower.join(PATIENCE)
            reason = follower.failed if not follower.is_alive() else f"no answer within {PATIENCE:g} s"
            if reason:
                with suppress(UserError):  # the disk of the run is full too, and the run says so
                    keep(f"{follower.tracker} lacks a part of this run ({reason}): 'fedtailor track RUN' adds it")


class Followers(Callback):
    """Wakes the followers after every round."""

    def __init__(self, followers: Sequence["Follower"], show: Callable[[str], None]):
        self._followers, self._show = followers, show
        self._told: set[str] = set()

    def round_done(self, report: RoundReport) -> None:
        for follower in self._followers:
            follower.wake()
            if follower.failed and follower.tracker not in self._told:
                self._told.add(follower.tracker)
                self._show(
                    f"{follower.tracker} failed ({follower.failed}); the run continues, and tries again at its end"
                )


class Follower(threading.Thread):
    """Keeps one copy up to date. After a failure it tries again only at the end of the run."""

    def __init__(self, tracker: str, folder: Path):
        super().__init__(name=f"tracking-{tracker}", daemon=True)
        self.tracker, self.folder = tracker, folder
        self.failed = ""  # the reason
        self._new, self._ends = threading.Event(), threading.Event()
        self._mirror = Mirror(tracker, folder)

    def wake(self) -> None:
        self._new.set()

    def end(self) -> None:
        self._ends.set()
        self._new.set()

    def run(self) -> None:
        try:
            with Store(self.folder) as store, closing(self._mirror):  # a connection of this thread
                self._follow(store)
        except BaseException as error:  # nothing that a tracker does may end the run
            self.failed = reason_of(error)

    def _follow(self, store: Store) -> None:
        while not self._ends.is_set():
            if not self.failed:
                try:
                    self._mirror.update(store)
                except BaseException as error:
                    self.failed = reason_of(error)
                    with suppress(BaseException):
                        self._mirror.close()
            self._new.wait()
            self._new.clear()
        self._mirror.finish(store)
        self.failed = ""
