"""TensorBoard: event files in the folder ``tensorboard`` of a run or comparison.

A round is one record, which a process that is killed has written completely or not at all. A later session reads which
rounds are there, leaves those files alone and writes the others into a file of its own.
"""

import os
import struct
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from fedtailor.runs.tracking.base import Ending, Point, Subject, Tracker

FOLDER = "tensorboard"
MARK = "cost/seconds"  # the tag that every round has


class TensorBoard(Tracker):
    """The event files of a run or comparison. TensorBoard finds them below any parent folder."""

    def __init__(self, subject: Subject):
        self._subject, self._folder = subject, subject.folder / FOLDER
        self._file: int | None = None
        self._rounds: set[int] = set()
        self._others: set[tuple[str, int]] = set()  # tag and step of what is written once
        for path in sorted(self._folder.glob("*tfevents*")):
            for event in _events(path):
                tags = [value.tag for value in event.summary.value]
                if MARK in tags:
                    self._rounds.add(event.step)
                else:
                    self._others |= {(tag, event.step) for tag in tags}

    def log(self, points: Sequence[Point]) -> None:
        self._once("settings", 0, lambda tag: _text(tag, _markdown(self._subject.settings)))
        for point in points:
            if point.step not in self._rounds:
                self._write(point.step, _scalars(point.values))
                self._rounds.add(point.step)

    def finish(self, ending: Ending) -> None:
        from torch.utils.tensorboard.summary import hparams

        self.log(())
        values = {tag: value for tag, value in ending.values.items() if (tag, ending.step) not in self._others}
        if values:
            self._write(ending.step, _scalars(values))
            self._others |= {(tag, ending.step) for tag in values}
            if ending.finished and self._subject.kind == "run":
                for summary in hparams(dict(self._subject.settings), values):  # type: ignore[no-untyped-call]
                    self._write(ending.step, summary)
        for path in ending.files:
            if path.name in ("report.md", "table.md"):
                self._once(path.stem, ending.step, lambda tag, path=path: _text(tag, path.read_text(encoding="utf-8")))
            elif path.suffix == ".png":
                self._once(path.stem, ending.step, lambda tag, path=path: _picture(tag, path.read_bytes()))

    def close(self) -> None:
        if self._file is not None:
            os.close(self._file)
            self._file = None

    def _once(self, tag: str, step: int, make: Any) -> None:
        # TensorBoard's text plugin adds a suffix to its tags
        if not {(tag, step), (f"{tag}/text_summary", step)} & self._others:
            self._write(step, make(tag))
            self._others.add((tag, step))

    def _write(self, step: int, summary: Any) -> None:
        from tensorboard.compat.proto.event_pb2 import Event

        if self._file is None:
            self._folder.mkdir(exist_ok=True)
            number = 1 + len(list(self._folder.glob("*tfevents*")))
            path = self._folder / f"events.out.tfevents.{number:06d}.fedtailor"
            self._file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_APPEND, 0o666)
            _append(self._file, Event(wall_time=time.time(), file_version="brain.Event:2"))
        _append(self._file, Event(wall_time=time.time(), step=step, summary=summary))


def _append(file: int, event: Any) -> None:
    from tensorboard.summary.writer.record_writer import RecordWriter

    class Whole:
        def write(self, record: bytes) -> None:
            if os.write(file, record) < len(record):
                raise OSError("the disk is full")

    RecordWriter(Whole()).write(event.SerializeToString())


def _events(path: Path) -> Iterator[Any]:
    """The events of a file; a record that a killed process has not finished is none."""
    from tensorboard.compat.proto.event_pb2 import Event

    data, at = path.read_bytes(), 0
    while at + 12 <= len(data):  # length, its digest, the event, its digest
        (length,) = struct.unpack_from("<Q", data, at)
        end = at + 12 + length + 4
        if end > len(data):
            return
        yield Event.FromString(data[at + 12 : end - 4])
        at = end


def _scalars(values: Mapping[str, float]) -> Any:
    from tensorboard.compat.proto.summary_pb2 import Summary

    return Summary(value=[Summary.Value(tag=tag, simple_value=value) for tag, value in values.items()])


def _text(tag: str, text: str) -> Any:
    from torch.utils.tensorboard import summary

    return summary.text(tag, text)  # type: ignore[no-untyped-call]


def _picture(tag: str, png: bytes) -> Any:
    from tensorboard.compat.proto.summary_pb2 import Summary

    width, height = struct.unpack(">II", png[16:24])
    image = Summary.Image(height=height, width=width, colorspace=4, encoded_image_string=png)
    return Summary(value=[Summary.Value(tag=tag, image=image)])


def _markdown(settings: Mapping[str, object]) -> str:
    return "\n".join(["| setting | value |", "| --- | --- |", *(f"| {key} | {settings[key]} |" for key in settings)])
