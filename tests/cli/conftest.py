"""A finished run and a way to call the command line in this process, which loads torch once."""

import json
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

SMALL = ["--engine", "inline", "--rounds", "2", "--set", "data.clients=4", "--set", "training.batch_size=64"]


@dataclass(frozen=True)
class Called:
    """What a call of the command line gave."""

    code: int
    out: str
    err: str

    @property
    def document(self) -> Any:
        return json.loads(self.out)


Call = Callable[..., Called]


@pytest.fixture
def call(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Call:
    """Call ``fedtailor ARGUMENTS...`` in an empty folder."""
    from fedtailor.__main__ import main

    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", list(sys.path))

    def run(*arguments: str | Path) -> Called:
        capsys.readouterr()
        code = main([str(argument) for argument in arguments])
        captured = capsys.readouterr()
        return Called(code, captured.out, captured.err)

    return run


@pytest.fixture(scope="session")
def finished(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of a finished run; only to be looked at."""
    folder = tmp_path_factory.mktemp("finished")
    program = [sys.executable, "-m", "fedtailor", "run", *SMALL, "--name", "done", "--json"]
    subprocess.run(program, cwd=folder, check=True, capture_output=True, env=environment())
    return folder / "runs" / "done"


def environment() -> dict[str, str]:
    """The environment of a real subprocess: it finds this package."""
    import os

    import fedtailor

    return {**os.environ, "PYTHONPATH": str(Path(fedtailor.__file__).parents[1]), "COLUMNS": "100"}


@pytest.fixture(name="environment")
def environment_fixture() -> dict[str, str]:
    return environment()


@pytest.fixture
def small() -> list[str]:
    """Options that make a run take a moment."""
    return list(SMALL)
