"""What a comparison makes sure of before it begins."""

from pathlib import Path
from typing import ClassVar

import pytest

import fedtailor
from fedtailor.methods import Method


class Lacking(Method):
    """A method that needs what is not here."""

    name: ClassVar = "lacking"

    def check(self) -> None:
        raise fedtailor.UserError("lacking needs a library")


def test_what_the_last_method_lacks_is_said_before_the_first_runs(tmp_path: Path) -> None:
    settings = {"rounds": 1, "data": {"clients": 4, "samples": 200}, "engine": {"kind": "inline"}}
    methods = ["local", {"name": "tests.runs.test_comparing:Lacking"}]
    with pytest.raises(fedtailor.UserError, match="needs a library"):
        fedtailor.compare(settings, methods=methods, folder=tmp_path / "two")
    assert not (tmp_path / "two").exists()


def test_a_folder_holds_one_comparison_however_long_agents_learn_elsewhere(tmp_path: Path) -> None:
    settings = {"rounds": 1, "data": {"clients": 2, "samples": 80}, "engine": {"kind": "inline"}}
    fedtailor.compare(settings, methods=["local"], folder=tmp_path / "one")
    longer = {**settings, "pretrain": {"episodes": 7}}
    assert fedtailor.compare(longer, methods=["local", "fedavg"], folder=tmp_path / "one").finished()
    with pytest.raises(fedtailor.UserError, match="holds something else"):
        fedtailor.compare({**settings, "rounds": 2}, methods=["local"], folder=tmp_path / "one")
