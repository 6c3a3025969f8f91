"""Matrix units that do not work: found out in a process of its own, and avoided."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from fedtailor.models import processor
from fedtailor.models.processor import ALL, LIMIT, WITHOUT, avoid_broken_units, survives

DIES = "import os, signal; os.kill(os.getpid(), signal.SIGILL)"


@pytest.fixture(autouse=True)
def fresh(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.setenv(LIMIT, "")
    monkeypatch.delenv(LIMIT)
    monkeypatch.setattr(processor, "announced", lambda: True)


def test_torch_computes_in_bf16_after_the_import() -> None:
    """In a new process, as on every machine: with matrix units that work, without them, or with broken ones."""
    lines = "import fedtailor.models, torch; a = torch.ones(64, 64).bfloat16(); print(float((a @ a)[0, 0]))"
    environment = {name: value for name, value in os.environ.items() if name != LIMIT}
    found = subprocess.run([sys.executable, "-c", lines], env=environment, capture_output=True, text=True, check=True)
    assert found.stdout.strip() == "64.0"


@pytest.mark.parametrize(
    ("trial", "limit"), [(DIES, WITHOUT), ("pass", ALL), ("raise ImportError", ALL), (DIES.replace("ILL", "KILL"), ALL)]
)
def test_units_are_used_unless_the_trial_dies(trial: str, limit: str) -> None:
    avoid_broken_units(trial)
    assert os.environ[LIMIT] == limit
    assert processor.matrix_units() == (limit == ALL)


def test_the_choice_of_the_user_stays(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(LIMIT, "AVX2")
    avoid_broken_units(DIES)
    assert os.environ[LIMIT] == "AVX2"


def test_without_announced_units_nothing_is_tried(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(processor, "announced", lambda: False)
    monkeypatch.setattr(processor, "survives", lambda trial: pytest.fail("tried"))
    avoid_broken_units()
    assert LIMIT not in os.environ


def test_the_trial_runs_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    marks = tmp_path / "marks"
    trial = f"open({str(marks)!r}, 'a').write('x')\n{DIES}"
    for _ in range(2):
        monkeypatch.delenv(LIMIT, raising=False)
        avoid_broken_units(trial)
        assert os.environ[LIMIT] == WITHOUT
    assert marks.read_text() == "x"
    monkeypatch.delenv(LIMIT)
    avoid_broken_units("pass")  # another trial
    assert os.environ[LIMIT] == ALL


def test_a_cache_that_cannot_be_used_is_no_obstacle(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "fedtailor").write_text("a file, not a folder")
    avoid_broken_units(DIES)
    assert os.environ[LIMIT] == WITHOUT
    (tmp_path / "fedtailor").unlink()
    (tmp_path / "fedtailor").mkdir()
    (tmp_path / "fedtailor" / "matrix-units.json").write_text("{}")
    monkeypatch.delenv(LIMIT)
    avoid_broken_units("pass")
    assert os.environ[LIMIT] == ALL


def test_a_process_that_cannot_start_gives_no_verdict(monkeypatch: pytest.MonkeyPatch) -> None:
    assert not survives(DIES)
    for program in ("", "/no/such/program"):
        monkeypatch.setattr(sys, "executable", program)
        assert survives(DIES)
