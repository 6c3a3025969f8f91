import numpy as np
import pytest

from fedtailor.runs import Run
from fedtailor.views.panels import about, panels, pfedrlla
from tests.views.panels.conftest import Made


def test_recorded_slots_are_those_that_cohorts_imply(made: Made) -> None:
    """Runs of earlier versions recorded no slots: without failures their order is that of the last cohort."""
    with Run(made("pfedrlla", participation={"ratio": 0.7})) as run:
        rows = run.decisions()
        assert all("own" in row["slots"] for row in rows)
        recorded = pfedrlla.mixtures(run, rows)
        implied = pfedrlla.mixtures(run, [{**row, "slots": None} for row in rows])
    assert recorded == implied
    assert len({tuple(one.weights) for one in recorded}) > 3
    assert all(sum(one.weights.values()) == pytest.approx(1, abs=1e-5) for one in recorded)


def test_without_recorded_slots_rounds_with_failures_are_left_out(made: Made) -> None:
    """Whether a client failed before or after it sent its head cannot be known."""
    with Run(made("pfedrlla")) as run:
        rows, failed = run.decisions(), {event["round"] for event in run.events()}
        assert failed
        assert len(pfedrlla.mixtures(run, rows)) == len(rows)
        kept = pfedrlla.mixtures(run, [{**row, "slots": None} for row in rows])
    fine = [row for row in rows if not failed & {row["round"], max(1, row["round"] - 1)}]
    assert [(one.round, one.client) for one in kept] == [(row["round"], row["about"]) for row in fine]


def test_a_frame_has_the_weights_of_a_round(made: Made) -> None:
    with Run(made("pfedrlla")) as run:
        weights, means, rewards = panels(run)
        rows = [row for row in run.decisions() if row["round"] == 3]
        mean = pfedrlla.mean_weights(run)
    frame = weights["frames"][-1]
    assert frame["name"] == "round 3"
    assert frame["down"] == [str(row["about"]) for row in rows]
    first, target = rows[0], str(rows[0]["about"])
    shown = dict(zip(frame["across"], frame["rows"][0], strict=True))
    assert shown[target] == pytest.approx(float(first["action"][first["slots"].index("own")]))
    assert sum(value for value in shown.values() if value is not None) == pytest.approx(1, abs=1e-5)
    table = means["frames"][0]["rows"]
    assert [[value is None for value in row] for row in table] == np.isnan(mean).tolist()
    assert rewards["title"] == "Rewards of head-weights"


def test_a_client_is_told_whose_heads_it_got(made: Made) -> None:
    with Run(made("pfedrlla")) as run:
        last = pfedrlla.mixtures(run)[-1]
        (said,) = about(run, last.client)
    name, most = max(last.weights.items(), key=lambda item: item[1])
    assert said.startswith(f"In round {last.round} its head was mixed from {len(last.weights)} heads")
    assert f"{'its own' if name == last.client else name} {most:.3f}" in said
