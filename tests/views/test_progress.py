"""What is shown while a run goes."""

import doctest
import io
import signal

import pytest
from rich.console import Console

from fedtailor.runs import Measures, RoundReport
from fedtailor.views import numbers, progress, report
from fedtailor.views.progress import Display, Lines, Live


def on_paper(display: Display) -> io.StringIO:
    """Let a display write into a text."""
    text = io.StringIO()
    display.console.file = text
    return text


def measured(accuracy: float | None) -> Measures:
    return Measures(1, accuracy, None, None, None, None, None, None, 2, 10)


def done(round: int, failed: dict[int, str] | None = None, accuracy: float = 0.5) -> RoundReport:
    metrics = {"held": measured(accuracy), "global": measured(None)}
    return RoundReport(round, 3, (0, 1), failed or {}, 600, 400, 0.5, metrics)


@pytest.mark.parametrize("module", [numbers, report])
def test_examples_in_the_docstrings(module) -> None:
    assert doctest.testmod(module).failed == 0


def test_lines_tell_round_accuracy_bytes_and_time_left(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(progress, "EVERY", 0.0)
    display = Lines()
    text = on_paper(display)
    display.begin("try", 3, 0)
    display.round_done(done(1))
    display.round_done(done(2))
    display.end()
    lines = text.getvalue().splitlines()
    assert lines[0] == "try: starts, 3 rounds"
    assert lines[1] == "try: round 1/3  held 50.0 %  1.0 kB  1.0 s left"
    assert lines[2] == "try: round 2/3  held 50.0 %  2.0 kB  0.5 s left"


def test_lines_come_every_few_seconds_only(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(progress, "EVERY", float("inf"))
    display = Lines()
    text = on_paper(display)
    display.begin("try", 3, 0)
    for round in (1, 2, 3):
        display.round_done(done(round))
    display.end()
    assert [line.partition("  ")[0] for line in text.getvalue().splitlines()] == [
        "try: starts, 3 rounds",
        "try: round 3/3",
    ]


def test_a_reason_for_failure_is_told_once_and_counted() -> None:
    display = Display()
    text = on_paper(display)
    display.begin("try", 3, 0)
    display.round_done(done(1, {4: "not finite", 7: "not finite"}))
    display.round_done(done(2, {4: "not finite", 5: "no answer"}))
    display.end()
    assert text.getvalue().splitlines() == [
        "try: client 4 left out of round 1: not finite",
        "try: client 5 left out of round 2: no answer",
    ]
    assert "4 left out" in display.state()


def test_the_live_display_shows_runs_rounds_and_tasks() -> None:
    display = Live(runs=2)
    display._progress.live.console = display.console = Console(file=io.StringIO(), force_terminal=True, width=120)
    display.begin("a[b]-s0", 3, 1)
    display.task_done(1, 4)
    display.round_done(done(2))
    shown = io.StringIO()
    Console(file=shown, width=120).print(display._progress.get_renderable())
    display.end()
    runs, rounds, tasks = (line.rstrip() for line in shown.getvalue().splitlines())
    assert runs.startswith("2 runs")
    assert rounds.startswith("a[b]-s0")
    assert "2/3" in rounds
    assert "held 50.0 %" in rounds
    assert "1/4" in tasks


def test_a_signal_is_noted_and_handed_on_to_the_run() -> None:
    heard = []
    before = signal.signal(signal.SIGINT, lambda *_: heard.append("run"))
    try:
        display = Lines()
        text = on_paper(display)
        mine = signal.getsignal(signal.SIGINT)
        display.begin("try", 3, 0)
        signal.raise_signal(signal.SIGINT)
        display.task_done(1, 2)
        display.task_done(2, 2)
        display.end()
        assert signal.getsignal(signal.SIGINT) is mine
    finally:
        signal.signal(signal.SIGINT, before)
    assert heard == ["run"]
    assert text.getvalue().count("finishing this round... (Ctrl-C again to stop at once)") == 1


def test_a_warning_is_shown_once_for_all_runs() -> None:
    display = Display(2)
    text = on_paper(display)
    for name in ("a-s0", "a-s1"):
        display.begin(name, 1, 0)
        display.warning("mu = 0 switches the proximal term off")
        display.end()
    assert text.getvalue().count("proximal") == 1
