"""Clients in the records of a run: by number and by name."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import fedtailor
from fedtailor.data import Federation
from fedtailor.errors import UserError
from fedtailor.runs import Callback, RoundReport, Run
from fedtailor.runs.store import Store, find_client

QUICK: dict[str, Any] = {"rounds": 2, "model": {"name": "linear"}, "engine": {"kind": "inline"}}
ABSENT = {"participation": {"absent": [[1, 1]]}}


def clinics(*names: str) -> Federation:
    stream = np.random.RandomState(0)
    return Federation.from_clients({name: (stream.random_sample((12, 3)), np.arange(12) % 2) for name in names})


class Reports(Callback):
    def __init__(self) -> None:
        self.names: list[dict[int, str]] = []

    def round_done(self, report: RoundReport) -> None:
        self.names.append(dict(report.names))


def test_clients_with_names_have_them_in_every_record(tmp_path: Path) -> None:
    reports = Reports()
    federation = clinics("cairo", "lima", "oslo")
    with fedtailor.run({**QUICK, **ABSENT}, folder=tmp_path / "run", federation=federation, callbacks=reports) as run:
        assert [row["name"] for row in run.scores()] == ["cairo", "lima", "oslo"]
        assert [(row["round"], row["client"], row["name"]) for row in run.events()] == [(1, 1, "lima")]
        assert {row["client"]: row["name"] for row in run.tasks()} == {0: "cairo", 1: "lima", 2: "oslo"}
        assert [run.client("oslo"), run.client("2"), run.client(2)] == [2, 2, 2]
        assert run.clients()[0].items() >= {"client": 0, "name": "cairo", "train": 9, "val": 0, "test": 3}.items()
        with pytest.raises(UserError, match="unknown client 'osla': did you mean 'oslo'"):
            run.client("osla")
        for wrong in (3, "3", "-1", -1):
            with pytest.raises(UserError, match="client"):
                run.client(wrong)
    assert reports.names == [{1: "lima"}, {}]
    place = fedtailor.export_client(tmp_path / "run", "lima", tmp_path / "model")
    card = json.loads((place / "card.json").read_text())
    assert (card["client"], card["name"]) == (1, "lima")


def test_clients_without_names_have_numbers(tmp_path: Path) -> None:
    settings = {**QUICK, "data": {"clients": 3, "samples": 90}}
    with fedtailor.run(settings, folder=tmp_path / "run") as run:
        assert "name" not in run.scores()[0]
        assert (run.names, run.label(2), run.client("2")) == ((), "2", 2)
        with pytest.raises(UserError, match="there is no client cairo: this run has clients 0 to 2"):
            run.client("cairo")


def test_a_name_that_is_a_number_comes_before_the_number(tmp_path: Path) -> None:
    fedtailor.run(QUICK, folder=tmp_path / "run", federation=clinics("2", "0", "1")).close()
    with Store(tmp_path / "run") as store:
        assert [find_client(store, "2"), find_client(store, 2)] == [0, 2]
    with Run(tmp_path / "run") as run:
        assert run.label(0) == "2"
