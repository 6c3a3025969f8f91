"""The audit log of a coordinator: who was registered, revoked and refused, with which key, when and why.

Every line is a JSON object with the digest of the line before it and its own, so a line that is changed, removed or
inserted later is noticed. A log that was cut at its end is not: keep the last digest in another place.
"""

import fcntl
import json
import os
from datetime import UTC, datetime
from hashlib import sha256
from pathlib import Path
from typing import Any

from fedtailor.errors import UserError

FILE = "audit.jsonl"
FIRST = "0" * 64  # stands for the digest before the first line


def record(file: Path, event: str, **facts: Any) -> None:
    """Append an event."""
    handle = os.open(file, os.O_RDWR | os.O_APPEND | os.O_CREAT | os.O_NOFOLLOW, 0o600)
    with os.fdopen(handle, "a+", encoding="utf-8") as opened:
        fcntl.flock(opened, fcntl.LOCK_EX)
        opened.seek(0)
        lines = opened.read().splitlines()
        line = {"time": datetime.now(UTC).isoformat(timespec="seconds"), "event": event, **facts}
        line["previous"] = json.loads(lines[-1])["digest"] if lines else FIRST
        opened.write(json.dumps({**line, "digest": _digest(line)}) + "\n")
        opened.flush()
        os.fsync(opened.fileno())


def verified(file: Path) -> list[dict[str, Any]]:
    """Return the events of a log; raise a `UserError` that names the first line that is not what was written."""
    try:
        lines = file.read_text(encoding="utf-8").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        raise UserError(f"{file} cannot be read: {error}") from None
    events: list[dict[str, Any]] = []
    previous = FIRST
    for number, line in enumerate(lines, 1):
        try:
            found = json.loads(line)
            digest = found.pop("digest")
            sound = found["previous"] == previous and _digest(found) == digest
        except (ValueError, TypeError, KeyError, AttributeError, RecursionError):
            sound = False
        if not sound:
            raise UserError(f"{file}, line {number}, is not what was written: the log was changed")
        events.append({**found, "digest": digest})
        previous = digest
    return events


def _digest(line: dict[str, Any]) -> str:
    return sha256(json.dumps(line, sort_keys=True).encode()).hexdigest()
