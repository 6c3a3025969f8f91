"""A client's states on its own disk: every version until the coordinator has acknowledged a later one.

The coordinator knows a state by its digest, stores that with the round, and sends it with the next task. So a node
that saved a state whose round was never completed goes on from the state that the coordinator knows.
"""

import os
from pathlib import Path

from fedtailor.messages.trees import digest
from fedtailor.methods import Moment

Version = tuple[int, int]  # episode, round


class States:
    """The states of one run."""

    def __init__(self, folder: Path):
        self.folder = folder
        folder.mkdir(parents=True, exist_ok=True)

    def load(self, name: str, moment: Moment) -> bytes | None:
        """The state of this digest, which the coordinator has acknowledged if it is of an earlier round."""
        found = [(version, file) for version, file in self._files() if file.name.endswith(f"-{name}")]
        if not found:
            return None
        version, file = max(found)
        if version < (moment.episode, moment.round):
            self._forget(moment, keep=name)
        return file.read_bytes()

    def start_over(self, moment: Moment) -> None:
        """The coordinator knows of no state: those of earlier rounds were never acknowledged."""
        self._forget(moment, keep="")

    def save(self, state: bytes, moment: Moment) -> str:
        """Keep a state, on disk before this returns; its digest."""
        name = digest(state)
        file = self.folder / f"{moment.episode}-{moment.round}-{name}"
        draft = file.with_suffix(".part")
        with draft.open("wb") as opened:
            opened.write(state)
            opened.flush()
            os.fsync(opened.fileno())
        draft.replace(file)
        return name

    def _files(self) -> list[tuple[Version, Path]]:
        found = []
        for file in self.folder.iterdir():
            episode, _, rest = file.name.partition("-")
            round, _, name = rest.partition("-")
            if name and not file.suffix:
                found.append(((int(episode), int(round)), file))
        return found

    def _forget(self, moment: Moment, keep: str) -> None:
        for version, file in self._files():
            if version < (moment.episode, moment.round) and not (keep and file.name.endswith(f"-{keep}")):
                file.unlink(missing_ok=True)
