"""Private folders for sockets and logs, and folders for files that other accounts must not read."""

import fcntl
import os
import shutil
import tempfile
from contextlib import suppress
from pathlib import Path

PREFIX = "fedtailor-flower-"


class TemporaryFolder:
    """A folder that only this account can open; `close` removes it.

    A process that is killed cannot remove its folder, so the next one does: the lock of a folder ends with its process.
    """

    def __init__(self) -> None:
        _remove_leftovers()
        while True:
            self.path = Path(tempfile.mkdtemp(prefix=PREFIX))  # mode 0700
            lock = _locked(self.path)
            if lock is not None:
                if self.path.exists():
                    break
                os.close(lock)  # another process took the folder for a leftover before it was locked
        self._lock = lock

    def close(self) -> None:
        """Remove the folder."""
        shutil.rmtree(self.path, ignore_errors=True)
        os.close(self._lock)


def make_private(folder: Path) -> None:
    """Create a folder that only this account can open; an existing folder becomes so."""
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    with suppress(PermissionError):  # the folder of another account, which gave us the right to write
        folder.chmod(0o700)


def _locked(folder: Path) -> int | None:
    """Lock a folder and return the lock; None if it is gone or in use."""
    try:
        handle = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
    except OSError:
        return None
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        os.close(handle)
        return None
    return handle


def _remove_leftovers() -> None:
    """Remove the folders of this account's processes that were killed."""
    for folder in Path(tempfile.gettempdir()).glob(f"{PREFIX}*"):
        with suppress(OSError):
            if folder.lstat().st_uid == os.getuid() and (lock := _locked(folder)) is not None:
                shutil.rmtree(folder, ignore_errors=True)
                os.close(lock)
