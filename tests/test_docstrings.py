"""The examples in the docstrings of the public functions are right."""

import doctest
from pathlib import Path
from typing import Any

import pytest

import fedtailor
from fedtailor.engines import Inline

# In the order of a user's day: later examples use what earlier ones have written.
EXAMPLES: list[Any] = [
    fedtailor.Experiment,
    fedtailor.run,
    fedtailor.Run,
    fedtailor.Run.summary,
    fedtailor.resume,
    fedtailor.compare,
    fedtailor.Comparison,
    fedtailor.export_client,
    fedtailor.export_clients,
    fedtailor.export_global,
    fedtailor.load_model,
    fedtailor.predict,
    fedtailor.pretrain,
    fedtailor.tune,
    fedtailor.advise,
]


def test_examples_in_the_docstrings_of_the_public_functions(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("fedtailor.runs.resources.open_engine", lambda settings: Inline())
    known = {"fedtailor": fedtailor, "experiment": fedtailor.experiment}
    finder, runner = doctest.DocTestFinder(recurse=False), doctest.DocTestRunner()
    for example in EXAMPLES:
        (found,) = finder.find(example, example.__qualname__, globs=known)
        assert found.examples, f"{example.__qualname__} has no example"
        assert runner.run(found).failed == 0, example.__qualname__
