"""The audit log: what was changed later is noticed."""

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from fedtailor.errors import UserError
from fedtailor.flower import audit

Lines = list[str]


@pytest.fixture
def log(tmp_path: Path) -> Path:
    file = tmp_path / audit.FILE
    for name in ("anna", "bert", "carla"):
        audit.record(file, "registered", who=name, key=f"SHA256:{name}")
    return file


def test_events_are_read_as_they_were_written(log: Path) -> None:
    events = audit.verified(log)
    assert [(e["event"], e["who"]) for e in events] == [("registered", n) for n in ("anna", "bert", "carla")]
    assert events[0]["previous"] == audit.FIRST
    assert events[2]["previous"] == events[1]["digest"]
    assert log.stat().st_mode & 0o077 == 0


@pytest.mark.parametrize(
    ("change", "line"),
    [
        (lambda lines: [lines[0].replace("anna", "otto"), *lines[1:]], 1),
        (lambda lines: [lines[0], lines[2]], 2),
        (lambda lines: [lines[0], lines[2], lines[1]], 2),
        (lambda lines: [*lines, lines[0]], 4),
        (lambda lines: [*lines, "{}"], 4),
        (lambda lines: [lines[0], "x", *lines[2:]], 2),
    ],
)
def test_a_change_is_noticed(log: Path, change: Callable[[Lines], Lines], line: int) -> None:
    log.write_text("\n".join(change(log.read_text().splitlines())) + "\n")
    with pytest.raises(UserError, match=f"line {line}, is not what was written"):
        audit.verified(log)


def test_a_digest_that_was_made_to_fit_breaks_the_next_line(log: Path) -> None:
    first, *others = log.read_text().splitlines()
    changed = {k: v for k, v in json.loads(first.replace("anna", "otto")).items() if k != "digest"}
    changed["digest"] = audit._digest(changed)
    log.write_text("\n".join([json.dumps(changed), *others]) + "\n")
    with pytest.raises(UserError, match="line 2"):
        audit.verified(log)
