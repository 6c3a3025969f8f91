"""What is shown of devices and of the time on them - and that nothing is, where there are none."""

import doctest
import io
from pathlib import Path
from statistics import fmean
from typing import Any

import pytest

from fedtailor.devices import clock
from fedtailor.runs import Comparison, RoundClock, RoundReport, Run, compare
from fedtailor.views.comparison import comparison_csv, comparison_grid
from fedtailor.views.curves import comparison_curves, draw_comparison
from fedtailor.views.pages import run_page
from fedtailor.views.progress import Lines
from fedtailor.views.report import failure_grid, report

SMALL: dict[str, Any] = {
    "name": "cmp",
    "rounds": 3,
    "data": {"clients": 4, "samples": 200},
    "training": {"batch_size": 64},
    "engine": {"kind": "inline"},
    "devices": {"failure": 0.2, "speed": 0.01},
}


@pytest.fixture(scope="module")
def comparison(tmp_path_factory: pytest.TempPathFactory) -> Comparison:
    return compare(SMALL, methods=["fedavg", "pfedme"], seeds=[0, 1], folder=tmp_path_factory.mktemp("views") / "cmp")


def clocks(comparison: Comparison, method: str) -> list[list[dict[str, Any]]]:
    found = []
    for seed in (0, 1):
        with Run(comparison.folder / f"{method}-s{seed}") as one:
            found.append(one.clock())
    return found


def test_the_table_of_a_comparison_has_the_clock(comparison: Comparison) -> None:
    grid = comparison_grid(comparison.summary())
    assert grid.header[-8:-3] == ("time on devices s", "straggling s", "idle %", "late", "dropped")
    for row in comparison.table():
        runs = clocks(comparison, row.method)
        assert row.clock is not None
        assert row.clock.seconds == pytest.approx(fmean(r[-1]["begin"] + r[-1]["seconds"] for r in runs))
        several = [[x["latency"] for x in r if x["latency"] is not None] for r in runs]  # one client alone has none
        assert row.clock.latency == pytest.approx(fmean(map(fmean, several)))
        assert row.clock.idle == pytest.approx(fmean(fmean(x["idle"] for x in r) for r in runs))
        assert row.clock.dropped > 0
    fast, slow = comparison.table()
    assert slow.clock.latency > 3 * fast.clock.latency  # five steps where FedAvg has one
    assert "virtual_seconds,latency,idle,late,dropped" in comparison_csv(comparison.summary())


def test_without_devices_there_is_nothing_of_them(tmp_path: Path) -> None:
    plain = {key: value for key, value in SMALL.items() if key != "devices"}
    done = compare({**plain, "rounds": 1}, methods=["fedavg"], seeds=[0], folder=tmp_path / "cmp")
    assert "straggling s" not in comparison_grid(done.summary()).header
    assert "latency" not in comparison_csv(done.summary())
    with Run(tmp_path / "cmp" / "fedavg-s0") as run:
        assert "devices" not in report(run)


def test_curves_over_time_end_when_the_run_ends(comparison: Comparison, tmp_path: Path) -> None:
    over_rounds = {curve.label: curve for curve in comparison_curves(comparison)}
    for curve in comparison_curves(comparison, over="time"):
        ends = [r[-1]["begin"] + r[-1]["seconds"] for r in clocks(comparison, curve.label)]
        assert curve.rounds[-1] == pytest.approx(fmean(ends))
        assert curve.means == over_rounds[curve.label].means
    drawn = draw_comparison(comparison, tmp_path / "t.png", over="time")
    assert drawn.read_bytes().startswith(b"\x89PNG")


def test_a_run_tells_its_time_on_the_devices(comparison: Comparison) -> None:
    with Run(comparison.folder / "fedavg-s0") as run:
        clock = run.summary().clock
        told = f"% idle, 0 late, {clock.dropped} dropped out"
        assert told in report(run)
        assert any(told in str(part) for part in run_page(run).renderables)  # type: ignore[union-attr]


def test_late_clients_are_counted_together_whatever_their_seconds() -> None:
    events = [{"client": k, "round": k, "detail": f"late: {k}.5 s, deadline 1 s"} for k in (1, 2)]
    events.append({"client": 3, "round": 1, "detail": "dropped out"})
    assert failure_grid(events).rows == (("2", "1, 2", "1, 2", "late"), ("1", "3", "1", "dropped out"))


def test_progress_tells_the_clock_and_the_first_late_client_only(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("fedtailor.views.progress.EVERY", 0.0)
    display = Lines()
    display.console.file = text = io.StringIO()
    display.begin("try", 2, 0)
    for round in (1, 2):
        late = {round: f"late: {round}.5 s, deadline 1 s"}
        taken = RoundClock(begin=20.0 * (round - 1), seconds=20.0, latency=1.0, idle=0.5)
        display.round_done(RoundReport(round, 2, (0, 1), late, 0, 0, 0.5, clock=taken))
    display.end()
    lines = text.getvalue().splitlines()
    assert lines[1] == "try: client 1 left out of round 1: late: 1.5 s, deadline 1 s"
    assert lines[2:] == [
        "try: round 1/2  clock 20 s  1 left out  0.5 s left",
        "try: round 2/2  clock 40 s  2 left out",
    ]


def test_examples_in_the_docstrings() -> None:
    assert doctest.testmod(clock).failed == 0
