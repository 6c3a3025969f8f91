"""Drafts: what a command writes has another name until it is complete, so it appears at once or not at all.

A draft is a hidden folder beside its target, named ``.NAME-`` and eight letters. It is locked while its process lives,
so that a later process can tell a draft in the making from one that a killed process left.
"""

import fcntl
import os
import re
import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from secrets import token_hex

from fedtailor.errors import UserError

LETTERS = r"[a-z0-9_]{8}"
DRAFT = re.compile(rf"\.(.+)-(?:{LETTERS}|removed-[0-9]+)")
OLD = "-old"  # the ending of a folder that is being replaced

Ours = Callable[[Path], bool]


@contextmanager
def folder_at_once(target: Path, ours: Ours, again: bool = False) -> Iterator[Path]:
    """A folder to write into, which becomes ``target`` at the end: it is complete or does not exist.

    With ``again``, it replaces a folder of that name. ``ours`` says whether a folder holds only what this command
    writes: such drafts of killed processes are removed first.
    """
    if os.path.lexists(target) and not again:
        raise UserError(f"{target} exists: name another folder with --out")
    absent = [folder for folder in target.parents if not folder.exists()]
    draft, handle = None, None
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        remove_drafts(target, ours)
        draft, handle = new_draft(target)
        yield draft
        _replace(draft, target)
        remove_drafts(target, ours, OLD)
    except OSError as error:
        if again:
            raise
        if isinstance(error, FileExistsError | NotADirectoryError):
            raise UserError(f"{target} cannot be written: {target.parent} is not a folder") from None
        raise UserError(f"{target} cannot be written: {error.strerror or error}") from None
    finally:
        _close(draft, handle)
        with suppress(OSError):  # a folder that is not empty stays
            for folder in absent:
                folder.rmdir()


@contextmanager
def file_at_once(target: Path) -> Iterator[Path]:
    """A file to write, which becomes ``target`` at the end; drafts that killed processes left are removed first.

    An OSError names ``target``.
    """
    draft, handle = None, None
    try:
        remove_drafts(target, is_of_a_file)
        draft, handle = new_draft(target)
        yield draft / target.name
        os.rename(draft / target.name, target)
    except OSError as error:
        error.filename, error.filename2 = str(target), None
        raise
    finally:
        _close(draft, handle)


def new_draft(target: Path, mode: int = 0o777) -> tuple[Path, int | None]:
    """Make a draft of a folder or file; returns it and its lock, which holds until it is closed.

    The lock is None on a disk that has no locks: there, no draft is removed.
    """
    while True:
        # Not mkdtemp: an export is made to be passed on, so it has the mode of the umask.
        draft = target.with_name(f".{target.name}-{token_hex(4)}")
        draft.mkdir(mode)
        try:
            handle = lock_folder(draft)
        except (BlockingIOError, FileNotFoundError):
            continue  # before it was locked, another process took it for one that was left, and removes it
        except OSError:
            return draft, None
        with suppress(FileNotFoundError):
            if os.path.samestat(os.fstat(handle), draft.stat()):
                return draft, handle
        os.close(handle)


def remove_drafts(target: Path, ours: Ours, ending: str = "") -> None:
    """Remove the drafts of a folder or file that killed processes left, if they hold nothing else."""
    form = re.compile(rf"\.{re.escape(target.name)}-{LETTERS}{ending}")
    with suppress(OSError):
        for draft in [path for path in target.parent.iterdir() if form.fullmatch(path.name)]:
            remove_draft(draft, ours)


def remove_draft(draft: Path, ours: Ours) -> None:
    """Remove a draft, unless its process lives or something else is in it."""
    with suppress(OSError), locked(draft):
        if ours(draft):
            shutil.rmtree(draft, ignore_errors=True)


def is_left(draft: Path, ours: Ours) -> bool:
    """Whether a killed process left this draft, and it holds nothing else."""
    with suppress(OSError), locked(draft):
        return ours(draft)
    return False


def is_of_a_file(draft: Path) -> bool:
    """Whether a draft holds nothing, or nothing but the file that it is named after."""
    name = DRAFT.fullmatch(draft.name)
    return name is not None and all(
        path.name == name[1] and path.is_file() and not path.is_symlink() for path in draft.iterdir()
    )


@contextmanager
def locked(folder: Path) -> Iterator[None]:
    """Hold the lock of a folder; an OSError if another process has it."""
    handle = lock_folder(folder)
    try:
        yield
    finally:
        os.close(handle)


def lock_folder(folder: Path) -> int:
    """Lock a folder until the returned handle is closed or this process ends; raise an OSError if it is locked."""
    handle = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        os.close(handle)
        raise
    return handle


def _close(draft: Path | None, handle: int | None) -> None:
    if draft is not None:
        shutil.rmtree(draft, ignore_errors=True)
    if handle is not None:
        os.close(handle)


def _replace(draft: Path, target: Path) -> None:
    if target.is_dir():
        old = draft.with_name(f"{draft.name}{OLD}")
        os.rename(target, old)
        os.rename(draft, target)
        shutil.rmtree(old, ignore_errors=True)
    else:
        os.rename(draft, target)
