"""Locks on runs, so that several processes can share the runs of a reproduction."""

import errno
import fcntl
import os
from pathlib import Path

from fedtailor.runs.reproduce.plan import Step

FILE = ".lock"
DIGITS = 15  # of a step's key: a position in the file that fits into 63 bits


class Locks:
    """The runs that this process has taken. A process that ends, however it ends, releases its own.

    Parameters
    ----------
    folder : Path
        The folder of the runs, which exists. A lock is on one byte of an empty file in it, at the position of the key.
    """

    def __init__(self, folder: Path) -> None:
        self._file = os.open(folder / FILE, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o666)

    def __enter__(self) -> "Locks":
        return self

    def __exit__(self, *_: object) -> None:
        os.close(self._file)

    def take(self, step: Step) -> bool:
        """Take a run; False if another process has it. On a disk that has no locks, every run can be taken."""
        try:
            fcntl.lockf(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB, 1, _position(step))
        except OSError as error:
            return error.errno not in (errno.EACCES, errno.EAGAIN)
        return True

    def release(self, step: Step) -> None:
        """Let other processes have a run."""
        fcntl.lockf(self._file, fcntl.LOCK_UN, 1, _position(step))


def _position(step: Step) -> int:
    return int(step.key[:DIGITS], 16)
