"""What a reproduction shows: cells in words, and one bar with the time left."""

from dataclasses import replace
from pathlib import Path

import pytest

from fedtailor.runs import RoundReport
from fedtailor.runs.reproduce import Cell, Lead, Measure, Step, make_plan
from fedtailor.runs.reproduce.measuring import parse
from fedtailor.views import reproduction_progress
from fedtailor.views.reproduction import cell_text, lead_text
from fedtailor.views.reproduction_progress import Overall

ACCURACY, SECONDS, ROUNDS = parse("held.accuracy"), parse("clock.seconds"), parse("rounds to held.accuracy 80")
DEMO = Path(__file__).parents[2] / "recipes" / "demo"


@pytest.mark.parametrize(
    ("cell", "text"),
    [
        (Cell(ACCURACY, {}), "–"),
        (Cell(ACCURACY, {0: 50.0}), "50.0"),
        (Cell(ACCURACY, {0: 50.0, 1: 52.0, 2: 54.0}), "52.0 ± 2.0"),
        (Cell(SECONDS, {0: 1200.0, 1: 1200.0}), "1,200"),  # no deviation at all
        (Cell(ROUNDS, {0: 3.0, 1: None, 2: 5.0}), "4.0 ± 1.4 (2 of 3)"),
        (Cell(ROUNDS, {0: None, 1: None}), "never"),
        (Cell(SECONDS, {0: 30.0}, "change", {0: 40.0}), "-25.0 %"),
        (Cell(ACCURACY, {0: 60.0}, "value and change", {0: 50.0}), "60.0 (+20.0 %)"),
        (Cell(ACCURACY, {0: 60.0, 1: 62.0}, "difference", {0: 50.0, 1: 54.0}), "+9.0 [-3.7, +21.7]"),
        (Cell(ACCURACY, {0: 60.0}, "ratio", {0: 50.0}), "1.20"),
        (Cell(ACCURACY, {0: 60.0}, "ratio", {}), "–"),
    ],
)
def test_cells(cell: Cell, text: str) -> None:
    assert cell_text(cell) == text


def test_a_lead_names_the_row_that_it_is_over() -> None:
    assert lead_text(Lead("fedala", (1.0, 3.0))) == "+2.0 [-10.7, +14.7] (fedala), not decidable"
    assert lead_text(Lead("fedala", (2.9, 3.0, 3.1))) == "+3.0 [+2.8, +3.2] (fedala), ahead"
    assert lead_text(None) == "–"


def test_less_is_better_in_times_and_losses() -> None:
    def better(text: str) -> int:
        return Measure(text, text).better

    assert [better(text) for text in ("held.accuracy", "held.loss", "held.deviation", "bytes")] == [1, -1, -1, 0]
    assert ROUNDS.better == -1


def report(round: int, rounds: int) -> RoundReport:
    return RoundReport(round, rounds, (0,), {}, 0, 0, 1.0)


def test_the_bar_counts_all_work_and_tells_the_time_left(monkeypatch: pytest.MonkeyPatch) -> None:
    first: Step = make_plan(DEMO).steps["digits"]["local"][0]
    second = replace(first, key="other")
    now = [100.0]
    monkeypatch.setattr(reproduction_progress.time, "monotonic", lambda: now[0])
    shown = Overall()
    shown.plan([first, second], [30.0, 90.0])
    shown.step_begins(first)
    shown.begin("first", 25, 0)
    now[0] += 60
    shown.round_done(report(25, 25))
    shown.end()
    shown.step_ends(first)
    assert shown.part == pytest.approx(0.25)
    assert shown.text() == "1 of 2 runs  about 3 min 00 s left"  # a quarter took a minute
    shown.step_begins(second)
    shown.begin("second", 25, 5)  # resumed: a fifth was there before
    assert shown.part == pytest.approx(0.4)
    assert "round 5/25" in shown.text()
    shown.end()
