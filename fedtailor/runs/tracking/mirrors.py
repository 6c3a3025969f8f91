"""Brings the copies of a run or comparison up to date with its folder."""

from collections.abc import Callable, Iterable, Sequence
from contextlib import closing
from functools import partial
from pathlib import Path

from fedtailor.errors import UserError, one_line, unknown
from fedtailor.runs.folders import PLAN
from fedtailor.runs.store import Store, in_use
from fedtailor.runs.tracking.base import Ending, Subject, Tracker
from fedtailor.runs.tracking.subjects import (
    comparison_ending,
    comparison_subject,
    is_complete,
    points,
    run_ending,
    run_subject,
    set_complete,
)
from fedtailor.runs.tracking.trackers import PACKAGES, check_trackers, tracker


class Mirror:
    """A tracker's copy of a run. All functions must be called from one thread."""

    def __init__(self, name: str, folder: Path):
        self.name, self.folder = name, folder
        self._tracker: Tracker | None = None
        self._last = 0  # the latest round that the copy has

    def update(self, store: Store) -> None:
        """Add the rounds that are stored and not yet in the copy."""
        if self._tracker is None:
            set_complete(self.folder, self.name, False)
            self._tracker = tracker(self.name)(run_subject(self.folder, store.meta("experiment")))
        new = points(store, self._last)
        if new:
            self._tracker.log(new)
            self._last = new[-1].step

    def finish(self, store: Store) -> None:
        """Add all that is missing, also the end, and close the copy."""
        from fedtailor.runs.reading import Run

        self.update(store)
        assert self._tracker is not None
        with Run(self.folder) as run:
            ending = run_ending(self.folder, run.summary())
        self._tracker.finish(ending)
        self.close()
        set_complete(self.folder, self.name, ending.finished)

    def close(self) -> None:
        """Close the copy: the next call opens it again and looks up what it holds."""
        before, self._tracker, self._last = self._tracker, None, 0
        if before is not None:
            before.close()


def track(folder: str | Path, to: Iterable[str] | None = None) -> list[str]:
    """Copy a run or a comparison, as far as it is stored, into trackers; what they have already is not sent again.

    Parameters
    ----------
    folder : str or Path
        The folder of a run or a comparison.
    to : iterable of str, optional
        ``tensorboard``, ``mlflow`` or ``wandb``; by default those of its setting ``track``.

    Returns
    -------
    list of str
        The trackers.

    Raises
    ------
    UserError
        If there is no such folder, a tracker is not installed, the run is running, or a tracker fails.

    Examples
    --------
    >>> fedtailor.track("runs/first", to=["tensorboard"])
    ['tensorboard']
    """
    place = Path(folder)
    names = list(to) if to is not None else _declared(place)
    if not names:
        raise UserError(f"{place} names no trackers: choose some, as in --to tensorboard,mlflow")
    for name in names:
        if name not in PACKAGES:
            raise unknown("tracker", name, PACKAGES)
    check_trackers(names)
    for error in mirror(place, names, again=True).values():
        raise UserError(error)
    return names


def add_files(folder: Path, names: Sequence[str]) -> None:
    """Add the report and pictures that were written after the end to the copies; a tracker that fails is left out."""
    if not (folder / PLAN).is_file():
        names = [name for name in names if is_complete(folder, name)]
    if names:
        mirror(folder, names, again=not (folder / PLAN).is_file())


def mirror(folder: Path, names: Sequence[str], again: bool = False) -> dict[str, str]:
    """Copy a folder into trackers; with ``again`` also a run that was copied completely before, for its new files.

    Returns
    -------
    dict of str to str
        By tracker that failed, the reason.
    """
    if not (folder / PLAN).is_file():
        return _mirror_run(folder, names, again)
    failed: dict[str, str] = {}
    for child in sorted(path.parent for path in folder.glob("*/run.db")):
        failed |= _mirror_run(child, [name for name in names if name not in failed], again)
    return failed | _mirror_comparison(folder, [name for name in names if name not in failed])


def _mirror_run(folder: Path, names: Sequence[str], again: bool) -> dict[str, str]:
    wanted = [name for name in names if again or not is_complete(folder, name)]
    if not wanted:
        return {}
    if in_use(folder):
        raise UserError(f"{folder} is running: it is tracked while it runs if it began with --track")
    with Store(folder, write=True) as store:  # locked, so that no two processes write to one copy
        return _tried({name: partial(_finish, Mirror(name, folder), store) for name in wanted})


def _finish(copy: Mirror, store: Store) -> None:
    with closing(copy):
        copy.finish(store)


def _mirror_comparison(folder: Path, names: Sequence[str]) -> dict[str, str]:
    from fedtailor.runs.comparing import Comparison

    comparison = Comparison(folder)
    settings = comparison.experiment.compare
    finished = len(comparison.finished()) == len(settings.methods) * len(settings.seeds)
    ending = comparison_ending(folder, comparison.summary(), finished)
    return _tried({name: partial(_end, name, comparison_subject(folder), ending) for name in names})


def _end(name: str, subject: Subject, ending: Ending) -> None:
    with closing(tracker(name)(subject)) as copy:
        copy.finish(ending)


def _tried(works: dict[str, Callable[[], None]]) -> dict[str, str]:
    failed: dict[str, str] = {}
    for name, work in works.items():
        try:
            work()
        except Exception as error:  # a tracker may fail in any way
            failed[name] = f"{name} failed: {reason_of(error)}"
    return failed


def reason_of(error: BaseException) -> str:
    """An exception of a tracker as one line."""
    return one_line(f"{type(error).__name__}: {error}", most=200)


def _declared(place: Path) -> list[str]:
    from fedtailor.runs.comparing import Comparison
    from fedtailor.runs.reading import Run

    if (place / PLAN).is_file():
        return list(Comparison(place).experiment.track)
    with Run(place) as run:
        return list(run.settings.get("track", ()))
