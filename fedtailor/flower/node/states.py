"""A client's states on its own disk: every version is kept until the coordinator acknowledges a later one.

The coordinator identifies a state by its digest, stores the digest with the round, and sends it with the next task.
So a node that saved a state of a round that was never completed resumes from the state that the coordinator knows.
"""

import hmac
import os
import re
from pathlib import Path

from fedtailor.errors import UserError
from fedtailor.flower.folders import make_private
from fedtailor.messages.digests import digest
from fedtailor.methods import Moment

SECRET = "secret"  # the node's own key, which never leaves it
Version = tuple[int, int]  # episode, round
FILE = re.compile(r"([0-9]{1,18})-([0-9]{1,18})-[0-9a-f]{32}")  # the name of a state; other files are left alone
DRAFT = ".part"  # the ending of a file that is not complete


class StateStore:
    """The client's states of one run, as files named by episode, round and digest.

    Parameters
    ----------
    folder : Path
        Where the files are; it is created if it does not exist.
    """

    def __init__(self, folder: Path):
        self.folder = folder
        make_private(folder)
        for draft in folder.glob(f"*{DRAFT}"):  # of a process that was killed
            draft.unlink(missing_ok=True)

    def load(self, key: str, moment: Moment) -> bytes | None:
        """Return the state with this digest, None if it is missing; raise a `UserError` if the file is damaged.

        The coordinator has acknowledged a state of an earlier round, so older ones are deleted.
        """
        found = [(version, file) for version, file in self._files() if file.name.endswith(f"-{key}")]
        if not found:
            return None
        version, file = max(found)
        state = file.read_bytes()
        if digest(state) != key:
            raise UserError(f"its state {file.name} is damaged: restore the file from a copy, or begin a new run")
        if version < (moment.episode, moment.round):
            self._delete_before(moment, keep=key)
        return state

    def start_over(self, moment: Moment) -> None:
        """Delete the states of earlier rounds: the coordinator knows no state, so it acknowledged none of them."""
        self._delete_before(moment, keep="")

    def save(self, state: bytes, moment: Moment) -> str:
        """Write a state to disk, durably, and return its digest."""
        key = digest(state)
        file = self.folder / f"{moment.episode}-{moment.round}-{key}"
        draft = file.with_suffix(DRAFT)
        try:
            with os.fdopen(os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb") as opened:
                opened.write(state)
                opened.flush()
                os.fsync(opened.fileno())
            draft.replace(file)
        except OSError:
            draft.unlink(missing_ok=True)
            raise
        return key

    def _files(self) -> list[tuple[Version, Path]]:
        """Return the complete files with their versions."""
        found = []
        for file in self.folder.iterdir():
            if name := FILE.fullmatch(file.name):
                found.append(((int(name[1]), int(name[2])), file))
        return found

    def _delete_before(self, moment: Moment, keep: str) -> None:
        for version, file in self._files():
            if version < (moment.episode, moment.round) and not (keep and file.name.endswith(f"-{keep}")):
                file.unlink(missing_ok=True)


def keyed(folder: Path, plain: str) -> str:
    """Return a digest of the data that needs this folder to compute, so that it confirms no guess.

    Parameters
    ----------
    folder : Path
        The node's folder, which gets a random key of its own.
    plain : str
        The digest that everybody with the same data would compute.
    """
    return hmac.new(_secret(folder), plain.encode(), "sha256").hexdigest()[:32]


def _secret(folder: Path) -> bytes:
    file = folder / SECRET
    make_private(folder)
    draft = folder / f"{SECRET}{DRAFT}"
    if not file.exists():  # one process at a time uses the folder
        draft.unlink(missing_ok=True)
        with os.fdopen(os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb") as opened:
            opened.write(os.urandom(32))
            opened.flush()
            os.fsync(opened.fileno())
        draft.replace(file)
    key = file.read_bytes()
    if len(key) != 32:
        raise UserError(f"the file {SECRET} in {folder.name} is damaged: restore it from a copy, or use a new folder")
    return key
