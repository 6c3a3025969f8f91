"""The records of a search: a line of JSON for every reading. A search that was killed reads them and resumes."""

import json
import os
from hashlib import blake2b
from pathlib import Path

from fedtailor.errors import UserError
from fedtailor.runs.trials.trial import Reading

FILE = "readings.jsonl"


class Records:
    """All readings by the name of their trial, in memory and in a file that only grows.

    A line that a killed process had half written is removed. Every line has a digest, so that damage is noticed.
    """

    def __init__(self, folder: Path):
        self.path = folder / FILE
        self.readings: dict[str, Reading] = {}
        data = self.path.read_bytes() if self.path.exists() else b""
        whole = data.rpartition(b"\n")[0] + b"\n" if b"\n" in data else b""
        for number, line in enumerate(whole.splitlines(), 1):
            try:
                entry = json.loads(line)
                if entry["digest"] != _digest(entry["trial"], entry["reading"]):
                    raise ValueError("another digest")
                self.readings[entry["trial"]] = Reading.from_dict(entry["reading"])
            except (ValueError, KeyError, TypeError, AttributeError):
                raise UserError(
                    f"{self.path} is damaged in line {number}: remove that line and those below it, and the search "
                    f"makes their trials again"
                ) from None
        if len(whole) < len(data):
            os.truncate(self.path, len(whole))

    def add(self, trial: str, reading: Reading) -> None:
        """Store a reading for good."""
        values = json.loads(json.dumps(reading.as_dict()))
        line = json.dumps({"trial": trial, "reading": values, "digest": _digest(trial, values)})
        with self.path.open("ab") as file:
            file.write(line.encode() + b"\n")
            file.flush()
            os.fsync(file.fileno())
        self.readings[trial] = reading


def _digest(trial: str, reading: object) -> str:
    return blake2b(f"{trial} {json.dumps(reading, sort_keys=True)}".encode(), digest_size=8).hexdigest()
