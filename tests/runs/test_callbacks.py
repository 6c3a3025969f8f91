"""One callback, several, or none."""

from pathlib import Path
from typing import Any

import pytest

import fedtailor
from fedtailor.runs import Callback, RoundReport

SETTINGS: dict[str, Any] = {
    "rounds": 2,
    "data": {"clients": 3, "samples": 90},
    "training": {"epochs": 1},
    "engine": {"kind": "inline"},
}


class Heard(Callback):
    """Notes what it is told, with its own name, in a list that it shares."""

    def __init__(self, name: str, notes: list[tuple[str, str]]):
        self.name, self.notes = name, notes

    def warning(self, sentence: str) -> None:
        self.notes.append((self.name, "warning"))

    def begin(self, name: str, rounds: int, done: int) -> None:
        self.notes.append((self.name, f"begin {done}/{rounds}"))

    def task_done(self, done: int, total: int) -> None:
        self.notes.append((self.name, "task"))

    def rewarded(self, name: str, value: float) -> None:
        self.notes.append((self.name, f"reward {name}"))

    def round_done(self, report: RoundReport) -> None:
        self.notes.append((self.name, f"round {report.round}"))

    def final_done(self, done: int, total: int) -> None:
        self.notes.append((self.name, f"final {done}/{total}"))

    def end(self) -> None:
        self.notes.append((self.name, "end"))


def test_several_callbacks_get_the_same_calls_in_order(tmp_path: Path) -> None:
    notes: list[tuple[str, str]] = []
    method = {"name": "feddrl"}
    several = [Heard("a", notes), Heard("b", notes)]
    fedtailor.run({**SETTINGS, "method": method}, folder=tmp_path / "run", callbacks=several).close()
    first, second = notes[::2], notes[1::2]
    assert {name for name, _ in first} == {"a"}
    assert [note for _, note in first] == [note for _, note in second]
    told = {note.split()[0] for _, note in first}
    assert told >= {"begin", "task", "reward", "round", "final", "end"}
    alone: list[tuple[str, str]] = []
    fedtailor.run({**SETTINGS, "method": method}, folder=tmp_path / "alone", callbacks=Heard("a", alone)).close()
    assert alone == first


def test_resume_and_compare_take_several_too(tmp_path: Path) -> None:
    notes: list[tuple[str, str]] = []
    several = (Heard("a", notes), Heard("b", notes))
    fedtailor.compare(SETTINGS, methods=["local"], folder=tmp_path / "cmp", callbacks=several)
    assert notes.count(("b", "round 2")) == 1
    notes.clear()
    fedtailor.resume(tmp_path / "cmp" / "local-s0", callbacks=several).close()
    assert ("b", "begin 2/2") in notes


def test_an_exception_of_a_callback_ends_the_run_at_its_last_complete_round(tmp_path: Path) -> None:
    class Broken(Callback):
        def round_done(self, report: RoundReport) -> None:
            raise ArithmeticError("mine")

    with pytest.raises(ArithmeticError, match="mine"):
        fedtailor.run(SETTINGS, folder=tmp_path / "run", callbacks=[Callback(), Broken()])
    with fedtailor.Run(tmp_path / "run") as run:
        assert (run.rounds_done, run.status) == (1, "stopped")
