from fedtailor.runs import Run
from fedtailor.views.panels import clock
from tests.views.panels.conftest import Made


def test_the_straggler_comes_first_and_the_round_lasts_as_long(made: Made) -> None:
    with Run(made("hapfl")) as run:
        (panel,) = clock.panels(run)
        rows = [row for row in run.times() if row["round"] == 2]
        round = run.clock()[1]
    totals = {str(row["client"]): row["compute"] + row["transfer"] for row in rows}
    frame = panel["frames"][1]
    assert [bar["name"] for bar in frame["rows"]] == sorted(totals, key=lambda name: -totals[name])
    assert [bar["parts"][-1][2] for bar in frame["rows"]] == sorted(totals.values(), reverse=True)
    assert frame["end"] == round["seconds"]
    assert f"straggling latency {round['latency']:.4g} s" in frame["said"]


def test_a_run_without_devices_has_no_clock(made: Made) -> None:
    with Run(made("fedavg")) as run:
        assert clock.panels(run) == []
