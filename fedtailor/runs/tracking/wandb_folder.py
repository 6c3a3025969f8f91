"""Weights & Biases: offline by default, in the folder ``wandb`` of a run or comparison.

``WANDB_MODE=online`` sends the run while it goes. Offline nothing leaves this machine until ``wandb sync``. A session
writes the offline folder anew from the run's database, so that it is always one folder with every round once.
"""

import os
import shutil
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from fedtailor.runs.tracking.base import Ending, Point, Subject, Tracker

FOLDER = "wandb"
PATIENCE = 20.0  # seconds that its process may take to write the last round
BLOCK, HEADER, FIRST = 32768, 7, 7  # of W&B's file: bytes of a block, of a part's header, of the file's own header


class WandB(Tracker):
    """A run of Weights & Biases; the runs of a comparison are a group."""

    def __init__(self, subject: Subject):
        os.environ.setdefault("WANDB_ERROR_REPORTING", "false")
        import wandb

        mode: Any = os.environ.get("WANDB_MODE", "offline")
        place = subject.folder / FOLDER
        if mode == "offline":
            shutil.rmtree(place, ignore_errors=True)
        place.mkdir(exist_ok=True)
        group = subject if subject.parent is None else subject.parent
        self._run: Any = wandb.init(
            project=os.environ.get("WANDB_PROJECT", "fedtailor"),
            id=subject.id,
            name=subject.name,
            group=f"{group.name}-{group.id[:8]}" if group.kind == "comparison" else None,
            job_type=subject.method or subject.kind,
            config=dict(subject.settings),
            dir=str(subject.folder),
            resume="allow" if mode != "offline" else None,
            reinit="create_new",
            settings=wandb.Settings(
                mode=mode,
                silent=True,
                console="off",
                disable_git=True,
                disable_code=True,
                x_disable_stats=True,
                x_disable_meta=True,
                x_save_requirements=False,
            ),
        )
        self._offline = mode == "offline"
        self._last = 0 if self._offline else max(0, int(self._run.step) - 1)  # the next step, after a resume
        self._sent: set[int] = set()
        self._code = 1  # until the run is finished

    def log(self, points: Sequence[Point]) -> None:
        for point in points:
            if point.step > self._last:
                self._run.log(dict(point.values), step=point.step, commit=True)
                self._last = point.step
                self._sent.add(point.step)

    def finish(self, ending: Ending) -> None:
        self._run.summary.update({**ending.values, "finished": ending.finished})
        files = Path(self._run.dir)
        for path in ending.files:
            shutil.copyfile(path, files / path.name)
        for name, text in ending.texts.items():
            (files / name).write_text(text, encoding="utf-8")
        for name in (*(path.name for path in ending.files), *ending.texts):
            self._run.save(str(files / name), base_path=str(files), policy="now")
        self._code = 0 if ending.finished else 1
        self.close()
        if self._offline:
            self._check(files.parent)

    def _check(self, folder: Path) -> None:
        """Check that the other process, which writes the file a moment later, could write it."""
        end = time.monotonic() + PATIENCE
        while missing := self._sent - {step for path in folder.glob("*.wandb") for step in steps(path)}:
            if time.monotonic() > end:
                raise OSError(f"{len(missing)} rounds are not in its folder, the first is {min(missing)}")
            time.sleep(0.01)

    def close(self) -> None:
        self._run.finish(exit_code=self._code)


def steps(path: Path) -> list[int]:
    """The rounds in a file of an offline run, in order and as often as they are there."""
    from wandb.proto.wandb_internal_pb2 import Record

    found = []
    for data in _records(path.read_bytes()):
        record = Record.FromString(data)
        if record.WhichOneof("record_type") == "history":
            found.append(int(record.history.step.num))
    return found


def _records(data: bytes) -> Iterator[bytes]:
    """The records of a file: it has blocks; a part of a record has a header of digest (4), length (2) and kind (1)."""
    at, parts = FIRST, b""
    while at + HEADER <= len(data):
        left = BLOCK - at % BLOCK
        if left < HEADER:  # the rest of a block is padding
            at += left
            continue
        length, kind = int.from_bytes(data[at + 4 : at + 6], "little"), data[at + 6]
        end = at + HEADER + length
        if end > len(data) or not 1 <= kind <= 4:  # whole, first, middle, last
            return
        parts = (parts if kind in (3, 4) else b"") + data[at + HEADER : end]
        if kind in (1, 4):
            yield parts
            parts = b""
        at = end
